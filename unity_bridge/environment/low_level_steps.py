"""Our records as the types of ``mlagents_envs.base_env``, and its actions as ours."""

from __future__ import annotations

import numpy as np
from mlagents_envs import base_env
from mlagents_envs.exception import UnityActionException
from numpy.typing import NDArray

from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch, as_floats

LowLevelSteps = tuple[base_env.DecisionSteps, base_env.TerminalSteps]


def low_level_spec(spec: BehaviorSpec) -> base_env.BehaviorSpec:
    """The spec of a behavior as ML-Agents' type. Pictures are (C, H, W), whatever order the simulator uses."""
    return base_env.BehaviorSpec(
        [_observation_spec(sensor) for sensor in spec.observation_specs],
        base_env.ActionSpec(spec.action_spec.continuous_size, spec.action_spec.discrete_branches),
    )


def low_level_steps(batch: StepBatch, spec: ActionSpec) -> LowLevelSteps:
    """Returns the decision steps and the terminal steps of a batch."""
    ended, waiting = slice(0, batch.num_terminal), slice(batch.num_terminal, len(batch))
    decisions = base_env.DecisionSteps(
        [as_floats(observation[waiting]) for observation in batch.observations],
        batch.rewards[waiting],
        batch.agent_ids[waiting].astype(np.int32),
        _action_mask(batch.allowed_actions[waiting], spec),
        batch.group_ids[waiting].astype(np.int32),
        batch.group_rewards[waiting],
    )
    terminals = base_env.TerminalSteps(
        [as_floats(observation[ended]) for observation in batch.observations],
        batch.rewards[ended],
        batch.truncated[ended],
        batch.agent_ids[ended].astype(np.int32),
        batch.group_ids[ended].astype(np.int32),
        batch.group_rewards[ended],
    )
    return decisions, terminals


def no_steps(spec: base_env.BehaviorSpec) -> LowLevelSteps:
    """Steps without any agent."""
    return base_env.DecisionSteps.empty(spec), base_env.TerminalSteps.empty(spec)


def action_batch(
    action: base_env.ActionTuple, agents: int, spec: base_env.ActionSpec, behavior: str
) -> ActionBatch:
    """Copies the actions of all waiting agents: the caller may reuse its arrays.

    Raises:
        UnityActionException: an array is missing or has another shape than (agents, size).
    """
    continuous = _checked("continuous", action.continuous, (agents, spec.continuous_size), behavior)
    discrete = _checked("discrete", action.discrete, (agents, spec.discrete_size), behavior)
    return ActionBatch(np.array(continuous, np.float32), np.array(discrete, np.int32))


def _checked(
    kind: str, given: NDArray[np.generic] | None, expected: tuple[int, int], behavior: str
) -> NDArray[np.generic]:
    if given is None or given.shape != expected:
        got = "none" if given is None else str(given.shape)
        raise UnityActionException(
            f"behavior '{behavior}': expected {kind} actions of shape {expected} (agents, size), got {got}"
        )
    return given


def _observation_spec(sensor: ObservationSpec) -> base_env.ObservationSpec:
    properties = sensor.dimension_property or (0,) * len(sensor.shape)
    return base_env.ObservationSpec(
        shape=sensor.shape,
        dimension_property=tuple(base_env.DimensionProperty(flags) for flags in properties),
        observation_type=base_env.ObservationType(int(sensor.observation_type)),
        name=sensor.name,
    )


def _action_mask(allowed: NDArray[np.bool_], spec: ActionSpec) -> list[NDArray[np.bool_]] | None:
    """One array per branch, shape [M, choices], true where a choice is forbidden; None without any to mask."""
    if not spec.discrete_branches or not len(allowed):
        return None
    return np.split(~allowed, np.cumsum(spec.discrete_branches)[:-1], axis=1)
