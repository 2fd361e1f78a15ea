"""Copies of one environment of another library as a scene."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.foreign.copies import Copies, Row, Rows
from unity_bridge.simulators.foreign.environment import Agent, Environment
from unity_bridge.simulators.foreign.roles import Role, assign_roles
from unity_bridge.simulators.foreign.spaces import float32
from unity_bridge.simulators.foreign.state import State, state_of
from unity_bridge.simulators.scene import SceneError, Steps, concatenate, step_batch
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

_DEFAULT_FPS = 30


class ForeignScene:
    """N copies of an environment; agents decide whenever their copy waits for them.

    Behaviors are as ``foreign.roles`` says, spaces become sensors and actions as ``foreign.spaces`` and
    ``foreign.actions`` say, masks are found as ``foreign.masks`` says. Copy i has the agents i·P to i·P + P − 1, in
    the order of the P possible agents; where the environment has groups it is group i + 1. Rewards are the agents'
    own.

    An agent may leave before the others: its episode has ended, its group lives on. It may come later. When
    no agent is left, a copy starts again; that message holds the last observations and the next first ones, but for
    copies that start again by a step of their own: their first ones are in the next message.
    ``terminated`` and ``truncated`` stay what they are (both at once is terminated).

    With state, each agent has one more sensor, the last: the environment's ``state()``, or where there is none
    all agents' observations side by side.
    """

    def __init__(
        self,
        code: ForeignCode,
        name: str,
        copies: Copies,
        *,
        with_state: bool | None = None,
        behaviors: Sequence[tuple[str, str]] = (),
    ) -> None:
        """
        Args:
            code: the environment's; takes warnings.
            name: of the environment, which behaviors are called by.
            copies: of the environment.
            with_state: None shows it where there are several behaviors and no pictures.
            behaviors: see ``assign_roles``; those of the agents' own names if empty.
        """
        self._code = code
        self._copies = copies
        env = copies.description
        self._roles = code.call("spaces", assign_roles, env, name, code, behaviors)
        self._role_of = {agent: role for role in self._roles for agent in role.agents}
        self._index = {agent: i for i, agent in enumerate(env.spaces)}
        self._state: State | None = None
        if copies.environment and (self._shows_state() if with_state is None else with_state):
            self._state = code.call("state", state_of, copies.environment, self._roles, code)
            copies.show(self._state)
        self.behaviors: Mapping[str, BehaviorSpec] = {role.behavior: self._spec(role) for role in self._roles}
        self._waiting: list[Row] = []
        """The agents to act, by copy and in the environment's order."""
        self._waiting_by_behavior: dict[str, Rows] = {}
        """The agents to act, in the order of the last message's rows."""

    @property
    def copies(self) -> int:
        """N."""
        return len(self._copies)

    @property
    def environment(self) -> Environment | None:
        """Copy 0; None where copies are stepped together only."""
        return self._copies.environment

    @property
    def frame_s(self) -> float:
        return 1 / (self._copies.description.metadata.get("render_fps") or _DEFAULT_FPS)

    def reset(self, seed: int | None = None) -> Steps:
        return self._code.call("reset()", self._steps, [], self._copies.reset(seed))

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        return self._code.call("step()", self._step, actions)

    def render(self) -> NDArray[np.uint8]:
        """Renders copy 0: how its episode ended where it did in the last step, and not how the next one begins."""
        try:
            frame = self._copies.render()
        except SceneError as error:
            if not isinstance(error.__cause__, NotImplementedError):
                raise
            raise self._code.error("it has no render(): there is no picture to show or to film") from None
        if not isinstance(frame, np.ndarray):
            raise self._code.error(
                f"render() gave no picture but {frame!r}; a function that makes environments is asked for pictures by "
                "its parameter render_mode"
            )
        return np.array(frame, np.uint8)

    def close(self) -> None:
        self._code.release()
        self._copies.close()

    def _shows_state(self) -> bool:
        sensors = (sensor for role in self._roles for sensor in role.interface.sensors)
        names = {role.behavior.partition("?")[0] for role in self._roles}
        return len(names) > 1 and not any(sensor.spec.is_picture for sensor in sensors)

    def _spec(self, role: Role) -> BehaviorSpec:
        state = () if self._state is None else (self._state.sensor.spec,)
        sensors = tuple(sensor.spec for sensor in role.interface.sensors)
        return BehaviorSpec((*sensors, *state), role.interface.actuator.spec)

    def _chosen(self, actions: Mapping[str, ActionBatch]) -> list[dict[Agent, Any]]:
        """The actions of each copy's agents, in the order in which the environment named them."""
        chosen: list[dict[Agent, Any]] = [{} for _ in range(len(self._copies))]
        for row in self._waiting:
            chosen[row.copy][row.step.agent] = None
        for role in self._roles:
            rows = self._waiting_by_behavior.get(role.behavior)
            if rows:
                batch = actions[role.behavior]
                built = role.interface.actuator.build(
                    batch.continuous.astype(np.float64), batch.discrete.astype(np.int64)
                )
                for row, action in zip(rows, built, strict=True):
                    chosen[row.copy][row.step.agent] = action
        return chosen

    def _step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        return self._steps(*self._copies.step(self._chosen(actions)))

    def _steps(self, ended: Rows, waiting: Rows) -> Steps:
        """The batches of one message; behaviors without rows are absent."""
        self._waiting = waiting
        self._waiting_by_behavior = self._by_behavior(waiting)
        leaving = self._by_behavior(ended)
        steps: dict[str, StepBatch] = {}
        for role in self._roles:
            parts = [
                self._batch(role, rows[role.behavior], deciding=rows is not leaving)
                for rows in (leaving, self._waiting_by_behavior)
                if role.behavior in rows
            ]
            if parts:
                steps[role.behavior] = parts[0] if len(parts) == 1 else concatenate(*parts)
        return steps

    def _by_behavior(self, rows: Rows) -> dict[str, Rows]:
        """Splits rows by behavior. Raises SceneError for an agent that is none of the possible ones."""
        parts: dict[str, Rows] = {}
        for row in rows:
            role = self._role_of.get(row.step.agent)
            if role is None:
                known = ", ".join(map(str, self._index))
                raise SceneError(f"agent '{row.step.agent}' is none of its possible_agents: {known}")
            parts.setdefault(role.behavior, []).append(row)
        return parts

    def _batch(self, role: Role, rows: Rows, *, deciding: bool) -> StepBatch:
        steps = [row.step for row in rows]
        index, width = self._index, len(self._index)
        observations = [step.observation for step in steps]
        seen = [sensor.read_all(observations) for sensor in role.interface.sensors]
        if self._state is not None:
            seen.append(self._state.sensor.read_all([row.state for row in rows]))
        groups: dict[str, Any] = {}
        if self._copies.description.has_groups:
            paid = float32(np.array([step.group_reward for step in steps]))
            groups = {"group_ids": np.array([row.copy + 1 for row in rows], np.int64), "group_rewards": paid}
        return step_batch(
            seen,
            float32(np.array([step.reward for step in steps])),
            agent_ids=np.array([row.copy * width + index[row.step.agent] for row in rows], np.int64),
            allowed_actions=role.masks.read(steps, deciding=deciding),
            terminated=None if deciding else np.array([step.terminated for step in steps]),
            truncated=None if deciding else np.array([step.truncated for step in steps]),
            **groups,
        )
