"""A policy's figures for one step: action probabilities and the value estimate."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.running.policy import Policy
from unity_bridge.steps import StepBatch

DRAWS, DRAWS_OF_PICTURES = 200, 40
"""Number of drawn actions for estimating the probabilities; fewer for pictures, whose forward pass takes longer."""


def insight_of(policy: Callable[[str], Policy | None]) -> Callable[[str, StepBatch, int], Mapping[str, Any]]:
    """Returns a function that gives the figures of an agent's decision.

    ``probabilities`` has a list for each branch, ``mean`` and ``deviation`` a number for each continuous action; all
    are of drawn actions, so they work for every trainer type. ``value`` is the critic's discounted value, or the value
    of the best action for value learners; None where a policy has no such estimate.

    Args:
        policy: returns the policy of a behavior id; None where nothing is known of its decisions.
    """

    def look(behavior_id: str, batch: StepBatch, row: int) -> Mapping[str, Any]:
        found = policy(behavior_id)
        if found is None or found.communicates or found.num_agents or found.memory_size or found.members:
            return {}  # a decision depends on more than the agent's own observation
        pictures = any(sensor.is_picture for sensor in found.spec.observation_specs)
        draws = DRAWS_OF_PICTURES if pictures else DRAWS
        observations = [np.repeat(sensor[row : row + 1], draws, axis=0) for sensor in batch.observations]
        allowed = np.repeat(batch.allowed_actions[row : row + 1], draws, axis=0)
        drawn = found.act(observations, allowed, deterministic=False)
        branches = found.spec.action_spec.discrete_branches
        counts = [
            np.bincount(drawn.discrete[:, branch], minlength=choices) / draws
            for branch, choices in enumerate(branches)
        ]
        value = found.value([sensor[row : row + 1] for sensor in batch.observations])
        return {
            "probabilities": [_rounded(each) for each in counts],
            "mean": _rounded(drawn.continuous.mean(axis=0)),
            "deviation": _rounded(drawn.continuous.std(axis=0)),
            "value": None if value is None else round(float(value[0]), 4),
        }

    return look


def _rounded(numbers: NDArray[np.floating[Any]]) -> list[float]:
    return [round(number, 3) for number in numbers.tolist()]
