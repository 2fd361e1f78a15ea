"""The parts of learners of groups from a replay buffer: sensors, normalizer, and the replay of joint steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from trainer_service.algorithms.common.checks import require_settings
from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.observation_selection import sensors_except, sensors_of, with_sensors
from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatch, JointMinibatchBuilder
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayParts
from trainer_service.algorithms.common.off_policy.replay_rewards import ReplayRewards
from trainer_service.algorithms.common.off_policy.replay_sampler import make_sampler
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import GroupOffPolicySettings
from trainer_service.networks.encoders.group_normalizer import GroupNormalizer
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.members import sensors_of_agents
from trainer_service.replay.joint_sequence_replay import JointSequenceReplay
from trainer_service.replay.joint_transitions import JointReplay
from trainer_service.rewards import RewardSource
from trainer_service.rollout.sensor_roles import SensorRole
from unity_bridge.specs import BehaviorSpec


@dataclass(frozen=True, slots=True)
class GroupView:
    """A behavior as learners of groups from a replay buffer use it."""

    spec: BehaviorSpec
    """As the learner sees it: with agents' ids last, where there are some."""

    kept: list[int]
    """Sensors that the replay holds, by their number in the spec."""

    agent_sensors: list[int]
    """Those of them that an agent's own network sees."""

    agent_spec: BehaviorSpec
    """What an agent sees itself, and what it can do."""

    num_agents: int
    """Most agents of a group, n."""

    @classmethod
    def of(cls, spec: BehaviorSpec, num_agents: int) -> GroupView:
        """The view of a learner of groups with at most so many agents."""
        kept = sensors_except(spec, {SensorRole.AGENT_ID, SensorRole.TEAM_OBSERVATIONS})
        states = sensors_of(spec, SensorRole.GLOBAL_STATE)
        own = [number for number in kept if number not in states]
        return cls(spec, kept, own, with_sensors(spec, own), num_agents)

    def make_normalizer(self, settings: TrainerSettings) -> ObservationNormalizer:
        """A normalizer; with one scale for an agent's own observations and for those that others send it."""
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
    """Replay buffer, rewards and minibatches of a learner of groups.

    memory_size: floats that the networks remember. follow_agents: whether what comes next is each agent's own next
    decision, or the group's next joint step.
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
