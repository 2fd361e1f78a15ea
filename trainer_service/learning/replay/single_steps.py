"""Single steps of replayed experience, for reward models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.arrays import Bools, Floats32, Rows
from unity_bridge.steps import Observation


@dataclass(frozen=True, slots=True, eq=False)
class SingleSteps:
    """M steps of single agents, each with the agent's next observation in its episode."""

    places: tuple[Rows, ...]
    """Indices of each step in the array of all steps whose rewards the targets of B rows add up: [n_step, B], or
    [n_step, B, n] for groups. One array [M] for each dimension."""

    observations: tuple[Observation, ...]
    """Observations of the decisions, one array per sensor. Shapes [M, *sensor shape]."""

    next_observations: tuple[Observation, ...]
    """Observations of the next decisions, or the final ones. Shapes as above."""

    continuous_actions: Floats32
    """Shape [M, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """Shape [M, branches]."""

    task_rewards: Floats32
    """The agent's own reward plus the group's. Shape [M]."""

    terminated: Bools
    """Whether the task ended with the step. Shape [M]."""

    elapsed: NDArray[np.float64] | None = None
    """Duration of the joint steps before the step, see ``JointSteps``; None for their number. Shape [M]."""
