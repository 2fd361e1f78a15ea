"""Steps of the agents of all copies, as one batch for each behavior."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.gym_envs.spaces import allowed_actions
from unity_bridge.simulators.multi_agent_envs.copy import AgentStep
from unity_bridge.simulators.multi_agent_envs.roles import MASK, Agent, Role
from unity_bridge.simulators.multi_agent_envs.state import State
from unity_bridge.simulators.scene import SceneError, Steps, concatenate, step_batch
from unity_bridge.simulators.third_party import float32
from unity_bridge.steps import StepBatch


class Row(NamedTuple):
    """A step of one agent of a copy."""

    copy: int
    step: AgentStep
    state: Any = None
    """The copy's state, as observe() returned it; None where it is not shown."""


class BatchBuilder:
    """Makes batches of rows.

    Copy c is group c + 1, and has the agents c·P to c·P + P − 1 in the order of the P possible agents.
    """

    def __init__(self, roles: Sequence[Role], agents: Sequence[Agent], state: State | None) -> None:
        self._roles = roles
        self._role_of = {agent: role.behavior for role in roles for agent in role.agents}
        self._index = {agent: i for i, agent in enumerate(agents)}
        self._state = state

    def by_behavior(self, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """Splits rows by behavior.

        Raises:
            SceneError: an agent that is none of the possible ones.
        """
        parts: dict[str, list[Row]] = {role.behavior: [] for role in self._roles}
        for row in rows:
            behavior = self._role_of.get(row.step.agent)
            if behavior is None:
                known = ", ".join(map(str, self._index))
                raise SceneError(f"agent '{row.step.agent}' is none of its possible_agents: {known}")
            parts[behavior].append(row)
        return parts

    def steps(self, ended: Mapping[str, list[Row]], waiting: Mapping[str, list[Row]]) -> Steps:
        """The batches of one message; behaviors without rows are absent.

        Args:
            ended: rows of agents that ended an episode, as by_behavior() returns them.
            waiting: rows of agents that are to act.

        Raises:
            SceneError: an observation is no member of its space.
        """
        steps: dict[str, StepBatch] = {}
        for role in self._roles:
            parts = [
                self._batch(role, rows[role.behavior]) for rows in (ended, waiting) if rows[role.behavior]
            ]
            if parts:
                steps[role.behavior] = parts[0] if len(parts) == 1 else concatenate(*parts)
        return steps

    def _batch(self, role: Role, rows: Sequence[Row]) -> StepBatch:
        steps = [row.step for row in rows]
        copies = np.array([row.copy for row in rows], np.int64)
        index = np.array([self._index[step.agent] for step in steps], np.int64)
        observations = [step.observation for step in steps]
        seen = [sensor.read_all(observations) for sensor in role.sensors]
        if self._state is not None:
            seen.append(self._state.sensor.read_all([row.state for row in rows]))
        return step_batch(
            seen,
            float32(np.array([step.reward for step in steps])),
            agent_ids=copies * len(self._index) + index,
            allowed_actions=_allowed(role, steps),
            terminated=np.array([step.terminated for step in steps]),
            truncated=np.array([step.truncated for step in steps]),
            group_ids=copies + 1,
            group_rewards=float32(np.array([step.group_reward for step in steps])),
        )


def _allowed(role: Role, steps: Sequence[AgentStep]) -> NDArray[np.bool_]:
    spec = role.actuator.spec
    masks = [step.observation.get(MASK) if role.shows_mask else step.mask for step in steps]
    if all(mask is None for mask in masks):
        return np.ones((len(steps), spec.mask_size), np.bool_)
    return np.stack([allowed_actions(mask, spec) for mask in masks])
