"""What a learner is shown of what a simulator sends: without what it must not see, with who is who."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

AGENT_ID = "agent_id"
"""The sensor of our own that says which place of its group an agent has, as one-hot."""


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
    """What a model of the policy takes: all of the simulator's sensors, and the ids last."""

    @property
    def picks(self) -> tuple[int, ...]:
        """Which of these ``inputs`` the learner sees, in its order."""
        return (*self.kept, len(self.inputs.observation_specs) - 1) if self.places else self.kept

    def batch(self, batch: StepBatch, slots: NDArray[np.int64] | None) -> StepBatch:
        """A tick as the learner sees it. slots: each row's place in its group, [N]; for ids.

        Raises ValueError for a place that is not there.
        """
        seen = tuple(batch.observations[sensor] for sensor in self.kept)
        if self.places and slots is not None:
            return replace(batch, observations=(*seen, one_hot(slots, self.places)))
        return batch if len(seen) == len(batch.observations) else replace(batch, observations=seen)


def view_of(spec: BehaviorSpec, *, with_state: bool, places: int) -> SensorView:
    """The view of a learner that is shown the global state or not, and ids of a length or none (0)."""
    sensors = spec.observation_specs
    kept = tuple(i for i, sensor in enumerate(sensors) if with_state or sensor.name != GLOBAL_STATE)
    ids = (ObservationSpec(AGENT_ID, (places,)),) if places else ()
    shown = (*(sensors[i] for i in kept), *ids)
    inputs = BehaviorSpec((*sensors, *ids), spec.action_spec)
    return SensorView(BehaviorSpec(shown, spec.action_spec), kept, places, inputs)


def one_hot(slots: NDArray[np.int64], places: int) -> NDArray[np.float32]:
    """[N] to [N, places]. Raises ValueError for a place that is not there."""
    if len(slots) and int(slots.max()) >= places:
        raise ValueError(f"a group of at least {int(slots.max()) + 1} agents came, {places} were expected")
    hot: NDArray[np.float32] = (slots[:, None] == np.arange(places)).astype(np.float32)
    return hot
