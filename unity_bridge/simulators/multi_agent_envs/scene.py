"""Copies of one environment of several agents as a scene; each copy's agents are a group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.multi_agent_envs.copy import AgentStep, Copy
from unity_bridge.simulators.multi_agent_envs.roles import Agent, Role, assign_roles
from unity_bridge.simulators.multi_agent_envs.rows import BatchBuilder, Row
from unity_bridge.simulators.multi_agent_envs.state import State, state_of
from unity_bridge.simulators.scene import SceneError, Steps
from unity_bridge.simulators.third_party import call_guarded, copy_seed
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

_DEFAULT_FPS = 30


class MultiAgentScene:
    """N copies of an environment; agents decide whenever their copy waits for them.

    Behaviors are as ``multi_agent_envs.roles`` says, spaces become sensors and actions as ``gym_envs.spaces`` says.
    Copy i is group i + 1, is seeded with seed + 1000 i, and has the agents i·P to i·P + P − 1, in the order of the P
    possible agents. Rewards are the agents' own. A mask in ``observation["action_mask"]`` or else in
    ``info["action_mask"]`` is respected where it fits.

    An agent may leave before the others: its episode has ended, its group lives on. It may come later. When
    no agent is left, a copy begins anew; that message holds the last observations and the next first ones.
    ``terminated`` and ``truncated`` stay what they are (both at once is terminated).

    With state, each agent has one more sensor, the last: the environment's ``state()``, or where there is none
    all agents' observations side by side.

    Raises:
        SceneError: a space that cannot be sent, or whatever the environment raised.
    """

    def __init__(
        self,
        called: str,
        name: str,
        copies: Sequence[Copy],
        *,
        with_state: bool | None = None,
        behaviors: Sequence[tuple[str, str]] = (),
        rendered: bool = False,
    ) -> None:
        """
        Args:
            called: as the user wrote it, for messages.
            name: of the environment, which behaviors are called by.
            copies: all in this process; the first one is rendered.
            with_state: None shows it where there are several behaviors and no pictures.
            behaviors: see ``assign_roles``; those of the agents' own names if empty.
            rendered: whether render() will be called.
        """
        self._called = called
        self._copies = copies
        env = copies[0].env
        self._roles = call_guarded(called, "spaces", lambda: assign_roles(env, name, behaviors))
        self._state = self._choose_state(with_state)
        self.behaviors: Mapping[str, BehaviorSpec] = {role.behavior: self._spec(role) for role in self._roles}
        self._batches = BatchBuilder(self._roles, env.possible_agents, self._state)
        self._rendered = rendered
        self._last_picture: NDArray[np.uint8] | None = None
        """Of the episode of copy 0 that ended in the last step."""
        self._waiting: dict[str, list[tuple[int, Agent]]] = {}
        """The copies and agents that wait, by behavior and in the order of the last message's rows."""

    @property
    def frame_s(self) -> float:
        metadata = getattr(self._copies[0].env, "metadata", {})
        return 1 / (metadata.get("render_fps") or _DEFAULT_FPS)

    def reset(self, seed: int | None = None) -> Steps:
        waiting: list[Row] = []
        for i, copy in enumerate(self._copies):
            waiting += self._rows(i, copy.reset(copy_seed(seed, i)))
        return self._message([], waiting)

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        ended: list[Row] = []
        waiting: list[Row] = []
        self._last_picture = None
        for i, (copy, chosen) in enumerate(zip(self._copies, self._chosen(actions), strict=True)):
            leaving, staying = copy.step(chosen)
            ended += self._rows(i, leaving)
            if self._rendered and i == 0 and not staying:
                self._last_picture = self._draw().copy()
            waiting += self._rows(i, staying or copy.reset())
        return self._message(ended, waiting)

    def render(self) -> NDArray[np.uint8]:
        """Renders copy 0: how its episode ended where it did in the last step, and not how the next one begins."""
        return self._draw() if self._last_picture is None else self._last_picture

    def close(self) -> None:
        for copy in self._copies:
            copy.env.close()

    def _draw(self) -> NDArray[np.uint8]:
        frame = call_guarded(self._called, "render()", self._copies[0].env.render)
        if not isinstance(frame, np.ndarray):
            raise SceneError(f"{self._called}: render() gave no picture but {frame!r}")
        return np.asarray(frame, np.uint8)

    def _choose_state(self, with_state: bool | None) -> State | None:
        if with_state is None:
            pictures = any(sensor.spec.is_picture for role in self._roles for sensor in role.sensors)
            names = {role.behavior.partition("?")[0] for role in self._roles}
            with_state = len(names) > 1 and not pictures
        return state_of(self._copies[0].env, self._called, self._roles) if with_state else None

    def _spec(self, role: Role) -> BehaviorSpec:
        state = () if self._state is None else (self._state.sensor.spec,)
        return BehaviorSpec((*(sensor.spec for sensor in role.sensors), *state), role.actuator.spec)

    def _chosen(self, actions: Mapping[str, ActionBatch]) -> list[dict[Agent, Any]]:
        """The actions of each copy's agents, in the order in which the environment named them."""
        chosen: list[dict[Agent, Any]] = [dict.fromkeys(copy.waiting) for copy in self._copies]
        for role in self._roles:
            waiting = self._waiting.get(role.behavior)
            if waiting:
                numbers = actions[role.behavior].continuous.astype(np.float64)
                choices = actions[role.behavior].discrete.astype(np.int64)
                for (copy, agent), row, picks in zip(waiting, numbers, choices, strict=True):
                    chosen[copy][agent] = role.actuator.build(row, picks)
        return chosen

    def _rows(self, copy: int, steps: Sequence[AgentStep]) -> list[Row]:
        state = self._state_of(copy) if steps else None
        return [Row(copy, step, state) for step in steps]

    def _state_of(self, copy: int) -> Any:
        state = self._state
        return (
            None
            if state is None
            else call_guarded(self._called, "state", lambda: state.observe(self._copies[copy]))
        )

    def _message(self, ended: Sequence[Row], waiting: Sequence[Row]) -> Steps:
        return call_guarded(self._called, "step()", lambda: self._steps(ended, waiting))

    def _steps(self, ended: Sequence[Row], waiting: Sequence[Row]) -> Steps:
        staying = self._batches.by_behavior(waiting)
        self._waiting = {
            behavior: [(row.copy, row.step.agent) for row in rows] for behavior, rows in staying.items()
        }
        return self._batches.steps(self._batches.by_behavior(ended), staying)
