"""Shared parts of group learners with a replay buffer: sensors, normalizer, and the replay of joint steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import GroupOffPolicySettings
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.observation_selection import (
    sensors_except,
    sensors_of,
    with_sensors,
)
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import (
    JointMinibatch,
    JointMinibatchBuilder,
)
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayParts
from trainer_service.learning.algorithms.common.off_policy.replay_rewards import ReplayRewards
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import make_sampler
from trainer_service.learning.networks.encoders.group_normalizer import GroupNormalizer
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.members import sensors_of_agents
from trainer_service.learning.replay.joint_sequence_replay import JointSequenceReplay
from trainer_service.learning.replay.joint_transitions import JointReplay
from trainer_service.learning.rewards import RewardSource
from trainer_service.learning.rollout.sensor_roles import SensorRole
from unity_bridge.specs import BehaviorSpec


@dataclass(frozen=True, slots=True)
class GroupView:
    """A behavior's parts for group learners with a replay buffer."""

    spec: BehaviorSpec
    """As the learner observes it, with agent ids last, if any."""

    kept: list[int]
    """Numbers of the replay buffer's sensors in the spec."""

    agent_sensors: list[int]
    """Numbers of these for an agent's own network."""

    agent_spec: BehaviorSpec
    """An agent's own sensors and actions."""

    num_agents: int
    """The most agents of a group, n."""

    @classmethod
    def of(cls, spec: BehaviorSpec, num_agents: int) -> GroupView:
        """Makes the view of a group learner with at most ``num_agents`` agents."""
        kept = sensors_except(spec, {SensorRole.AGENT_ID, SensorRole.TEAM_OBSERVATIONS})
        states = sensors_of(spec, SensorRole.GLOBAL_STATE)
        own = [number for number in kept if number not in states]
        return cls(spec, kept, own, with_sensors(spec, own), num_agents)

    def make_normalizer(self, settings: TrainerSettings) -> ObservationNormalizer:
        """Makes a normalizer, with one scale for an agent's own and for communicated observations."""
        make = GroupNormalizer if settings.hyperparameters.communicates else ObservationNormalizer
        return make(
            self.spec.observation_specs,
            normalize=settings.network_settings.normalize,
            has_sensor=sensors_of_agents(self.spec),
        )


def joint_parts(
    view: GroupView,
    settings: TrainerSettings,
    compute: Compute,
    sources: Sequence[RewardSource],
    normalizer: ObservationNormalizer,
    memory_size: int,
    *,
    follow_agents: bool = False,
) -> ReplayParts[JointMinibatch]:
    """Makes replay buffer, rewards and minibatches of a group learner.

    memory_size: floats of the networks' memories. follow_agents: whether the next observation is of each agent's own
    next decision, or of the group's next joint step.
    """
    hyper = require_settings(settings, GroupOffPolicySettings)
    memory, team = settings.network_settings.memory, hyper.reward_mode == "team_sum"
    rewards = ReplayRewards(
        sources,
        settings,
        compute,
        target_steps=hyper.target_steps,
        sensors=view.agent_sensors,
        kept=view.kept,
    )
    make: Callable[..., JointReplay] = JointReplay
    if memory is not None:
        make = partial(JointSequenceReplay, longest=memory.sequence_length, memory_size=memory_size)
    buffer = make(
        view.spec,
        hyper.buffer_size,
        num_agents=view.num_agents,
        discount=rewards.gamma,
        alpha=hyper.replay.priority_exponent,
        n_step=hyper.n_step,
        follow_agents=follow_agents,
        team=team,
        sensors=view.kept,
    )
    replay = make_sampler(buffer, hyper, memory, compute, learns_rewards=bool(rewards.models))
    builder = JointMinibatchBuilder(
        normalizer, view.kept, view.agent_sensors, rewards, replay, compute, team=team
    )
    return ReplayParts(replay, rewards, builder.newest)
