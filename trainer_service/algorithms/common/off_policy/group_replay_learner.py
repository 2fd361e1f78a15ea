"""The base of learners of groups from a replay buffer, which holds joint steps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from torch import Tensor

from trainer_service.algorithms.common.learner import Compute
from trainer_service.algorithms.common.observation_selection import sensors_except, sensors_of, with_sensors
from trainer_service.algorithms.common.off_policy.joint_minibatch import JointMinibatch, JointMinibatchBuilder
from trainer_service.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.algorithms.common.off_policy.replay_rewards import as_transitions
from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import GroupOffPolicySettings
from trainer_service.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.networks.members import sensors_of_agents
from trainer_service.networks.shard import Part
from trainer_service.replay.joint_sequence_replay import JointSequenceReplay
from trainer_service.replay.joint_transitions import JointReplay, JointSample
from trainer_service.replay.single_steps import SingleSteps
from trainer_service.rewards import Transitions
from trainer_service.rollout.sensor_roles import SensorRole
from trainer_service.rollout.trajectories import Trajectories
from unity_bridge.specs import BehaviorSpec


class GroupReplayLearner(ReplayLearner[JointSample]):
    """A learner for agents that come in groups. Its replay holds joint steps: what all agents saw, did and got."""

    _hyper: GroupOffPolicySettings

    def __init__(self, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> None:
        """Raises ValueError where the behavior has sensors or actions that do not fit.

        spec: as the learner sees it: with agents' ids last, where there are some.
        """
        kept = sensors_except(spec, {SensorRole.AGENT_ID, SensorRole.TEAM_OBSERVATIONS})
        self._kept_sensors = kept
        """Sensors that the replay holds, by their number in the spec."""
        states = sensors_of(spec, SensorRole.GLOBAL_STATE)
        self._agent_sensors = [i for i in kept if i not in states]
        """Those of them that an agent's own network sees."""
        self._agent_spec = with_sensors(spec, self._agent_sensors)
        """What an agent sees itself, and what it can do."""
        super().__init__(spec, settings, compute)
        self._minibatches = JointMinibatchBuilder(
            self._normalizer, self._kept_sensors, self._agent_sensors, self._task_strength, self._device
        )

    @property
    def _num_agents(self) -> int:
        """Most agents of a group, n."""
        return self._hyper.num_agents

    def _make_normalizer(self) -> ObservationNormalizer:
        normalize = self._settings.network_settings.normalize
        return ObservationNormalizer(
            self._spec.observation_specs,
            normalize=normalize,
            has_sensor=sensors_of_agents(self._spec),
        )

    def _minibatch(self, sample: JointSample) -> JointMinibatch:
        """The newest sample as tensors; of several learner ranks, this one's part of it."""
        if self._shard.world == 1:
            batch = self._minibatches.build(sample)
        else:
            batch = self._minibatches.build(sample, self._replay.undivided, self._replay.part.share)
        return self._with_model_rewards(batch, sample) if self._reward_models else batch

    def _with_model_rewards(self, batch: JointMinibatch, sample: JointSample) -> JointMinibatch:
        """The minibatch with what the reward models pay now: to each agent itself, as the task's own rewards."""
        rewards = self._model_rewards(sample.rows, *batch.rewards.shape)
        if self._hyper.reward_mode == "team_sum":
            return batch._replace(summed_rewards=batch.summed_rewards + rewards.sum(dim=1))
        return batch._replace(rewards=batch.rewards + rewards)

    def _reward_spec(self) -> BehaviorSpec:
        return self._agent_spec

    def _for_rewards(self, trajectories: Trajectories) -> Trajectories:
        seen, final = (
            tuple(sensors[i] for i in self._agent_sensors)
            for sensors in (trajectories.observations, trajectories.final_observations)
        )
        return replace(trajectories, observations=seen, final_observations=final)

    def _normalize_own(self, observations: Sequence[Tensor]) -> list[Tensor]:
        return self._normalizer.some(self._agent_sensors, observations)

    def _transitions(self, steps: SingleSteps) -> Transitions:
        places = [self._kept_sensors.index(sensor) for sensor in self._agent_sensors]
        return as_transitions(steps, self._device, places)

    def _reward_part(self) -> Part:
        """A joint step has a step of each agent that is there."""
        part = self._replay.part
        steps = self._replay.undivided.present.sum(axis=1)
        if self._shard.world == 1 or part.copies > 1:
            return Part(slice(None), int(steps.sum()), part.share, part.copies)
        own = np.zeros(len(steps), np.bool_)
        own[part.rows] = True
        rows = np.flatnonzero(np.repeat(own, steps))
        return Part(rows, int(steps.sum()), len(rows) / int(steps.sum()))

    def _follows_agents(self) -> bool:
        """Whether what comes next is each agent's own next decision, or the group's next joint step."""
        return False

    def _make_buffer(self) -> JointReplay:
        hyper, memory = self._hyper, self._settings.network_settings.memory
        make: Callable[..., JointReplay] = JointReplay
        if memory is not None:
            make = partial(
                JointSequenceReplay, longest=memory.sequence_length, memory_size=self._policy.memory_size
            )
        return make(
            self._spec,
            hyper.buffer_size,
            num_agents=self._num_agents,
            discount=self._gamma,
            alpha=hyper.replay.priority_exponent,
            n_step=hyper.n_step,
            follow_agents=self._follows_agents(),
            team=hyper.reward_mode == "team_sum",
            sensors=self._kept_sensors,
        )
