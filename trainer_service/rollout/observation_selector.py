"""What a learner is shown of what a simulator sends: without what it must not see, with who is who."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainer_service.rollout.group_trajectories import group_keys
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation, StepBatch

AGENT_ID = "agent_id"
"""The sensor of our own that says which place of its group an agent has, as one-hot."""

TEAM_OBSERVATIONS = "team_observations"
"""The sensor of our own that says what the whole group sees: a block per place, and in it one sensor after another."""


@dataclass(frozen=True, slots=True, eq=False)
class SensorView:
    """From a simulator's sensors to a learner's."""

    spec: BehaviorSpec
    """What the learner is told that agents see and do."""

    kept: tuple[int, ...]
    """The simulator's sensors that it sees, in order."""

    places: int
    """Length of the agents' ids, which come last; 0 where there are none."""

    inputs: BehaviorSpec
    """What a model of the policy takes: all of the simulator's sensors, the team's where it is asked for, and the ids
    last."""

    team: bool
    """Whether each agent is shown what everyone in its group sees, before the ids."""

    @property
    def picks(self) -> tuple[int, ...]:
        """Which of these ``inputs`` the learner sees, in its order."""
        given = len(self.spec.observation_specs) - len(self.kept)
        size = len(self.inputs.observation_specs)
        return (*self.kept, *range(size - given, size))

    def batch(self, batch: StepBatch, slots: NDArray[np.int64] | None) -> StepBatch:
        """A tick as the learner sees it. slots: each row's place in its group, [N]; for ids.

        Raises ValueError for a place that is not there.
        """
        if self.places and slots is not None:
            groups, first = group_keys(batch, 0), batch.num_terminal
            seen = self.rows(batch.observations, slots, groups, first)
            return replace(batch, observations=tuple(seen))
        seen = [batch.observations[sensor] for sensor in self.kept]
        return batch if len(seen) == len(batch.observations) else replace(batch, observations=tuple(seen))

    def rows(
        self,
        observations: Sequence[Observation],
        slots: NDArray[np.int64],
        groups: NDArray[np.int64],
        first: int = 0,
    ) -> list[Observation]:
        """What the learner is shown of N agents that have places. The simulator's sensors, [N, …] each.

        slots, groups: each row's place and group, [N]. Rows before the ``first`` are of episodes that ended: they do
        not see the others, nor do the others see them. Raises ValueError for a place that is not there.
        """
        seen = [observations[sensor] for sensor in self.kept]
        ids = one_hot(slots, self.places)
        if not self.team:
            return [*seen, ids]
        own = np.concatenate(seen, axis=1, dtype=np.float32)
        parts = (slice(None, first), slice(first, None))
        shared = [team_rows(own[part], slots[part], groups[part], self.places) for part in parts]
        return [*seen, np.concatenate(shared), ids]


def view_of(spec: BehaviorSpec, *, with_state: bool, places: int, team: bool = False) -> SensorView:
    """The view of a learner that is shown the global state or not, and ids of a length or none (0).

    team: whether it is shown what everyone in its group sees; needs ids, and sensors that are vectors. Raises
    ValueError for others.
    """
    sensors = spec.observation_specs
    kept = tuple(i for i, sensor in enumerate(sensors) if with_state or sensor.name != GLOBAL_STATE)
    added = (ObservationSpec(AGENT_ID, (places,)),) if places else ()
    if team:
        added = (_team_sensor([sensors[i] for i in kept], places), *added)
    shown = (*(sensors[i] for i in kept), *added)
    inputs = BehaviorSpec((*sensors, *added), spec.action_spec)
    return SensorView(BehaviorSpec(shown, spec.action_spec), kept, places, inputs, team)


def _team_sensor(sensors: Sequence[ObservationSpec], places: int) -> ObservationSpec:
    for sensor in sensors:
        if len(sensor.shape) != 1:
            raise ValueError(
                f"agents that tell each other what they see need sensors that are vectors; '{sensor.name}' has "
                f"shape {sensor.shape}"
            )
    return ObservationSpec(TEAM_OBSERVATIONS, (places * sum(sensor.size for sensor in sensors),))


def team_rows(
    own: NDArray[np.float32], slots: NDArray[np.int64], groups: NDArray[np.int64], places: int
) -> NDArray[np.float32]:
    """What everyone in an agent's group sees, in the order of their places; zeros for who is not there.

    own: [N, d]; slots, groups: of each row, [N]. Returns [N, places·d].
    """
    _, group = np.unique(groups, return_inverse=True)
    size = int(group.max(initial=-1)) + 1
    everyone = np.zeros((size, places, own.shape[1]), np.float32)
    everyone[group, slots] = own
    rows: NDArray[np.float32] = everyone.reshape(size, places * own.shape[1])[group]
    return rows


def one_hot(slots: NDArray[np.int64], places: int) -> NDArray[np.float32]:
    """[N] to [N, places]. Raises ValueError for a place that is not there."""
    if len(slots) and int(slots.max()) >= places:
        raise ValueError(f"a group of at least {int(slots.max()) + 1} agents came, {places} were expected")
    if len(slots) and int(slots.min()) < 0:
        raise ValueError(f"places are counted from 0, got {int(slots.min())}")
    hot: NDArray[np.float32] = (slots[:, None] == np.arange(places)).astype(np.float32)
    return hot
