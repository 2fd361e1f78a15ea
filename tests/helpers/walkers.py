"""A tiny world whose agents walk on a line: any behaviors and teams, with groups, pictures or parameters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Steps, camera_sensor, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch


@dataclass(frozen=True)
class Walk:
    """One behavior id of the world."""

    agents: int = 2
    length: int = 5
    """Decisions in an episode of the first agent; each further agent's has one more, without groups."""

    group: bool = False
    """Whether its agents are a group, whose episodes end together."""

    from_step: int = 0
    until_step: int = 10**9
    """Steps of the world in which its agents are there."""


class Walkers:
    """Agents step left or right, and earn the parameter ``pay`` for a step to the right."""

    frame_s = 0.1

    def __init__(
        self, walks: Mapping[str, Walk], academy: Academy | None = None, *, pictures: bool = False
    ) -> None:
        self._walks = walks
        self._academy = academy or Academy()
        self._pictures = pictures
        sensors = [vector_sensor("position", 2)]
        if pictures:
            sensors = [camera_sensor("camera", 20, 20)]
        self.behaviors = {name: BehaviorSpec(tuple(sensors), ActionSpec(0, (2,))) for name in walks}
        self._step = 0
        self._ages: dict[str, NDArray[np.int64]] = {}
        self._positions: dict[str, NDArray[np.float32]] = {}
        self._rng = np.random.default_rng(0)
        self.resets = 0

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.resets += 1
        self._ages.clear()
        return {name: self._begin(name) for name in self._present()}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._step += 1
        return {name: self._advance(name, actions.get(name)) for name in self._present()}

    def render(self) -> NDArray[np.uint8]:
        return np.zeros((4, 4, 3), np.uint8)

    def close(self) -> None:
        """Holds nothing."""

    def _present(self) -> Sequence[str]:
        return [name for name, walk in self._walks.items() if walk.from_step <= self._step < walk.until_step]

    def _begin(self, name: str) -> StepBatch:
        agents = self._walks[name].agents
        self._ages[name] = np.zeros(agents, np.int64)
        self._positions[name] = self._rng.normal(size=agents).astype(np.float32)
        return self._rows(name, np.arange(agents), np.zeros(agents, np.float32))

    def _advance(self, name: str, actions: ActionBatch | None) -> StepBatch:
        if actions is None or name not in self._ages:
            return self._begin(name)
        walk = self._walks[name]
        right = actions.discrete[:, 0]
        self._positions[name] += (2 * right - 1) * np.float32(0.5)
        self._ages[name] += 1
        pay = self._academy.parameters.read("pay", 1.0, 1)[0]
        rewards = (pay * right).astype(np.float32)
        agents = np.arange(walk.agents)
        ends = self._ages[name] >= walk.length + (0 if walk.group else agents)
        if not ends.any():
            return self._rows(name, agents, rewards)
        over = np.ones(int(ends.sum()), np.bool_)
        terminal = self._rows(name, agents[ends], rewards[ends], terminated=over)
        self._academy.add_statistic("Ended", float(len(over)))
        self._ages[name][ends] = 0
        self._positions[name][ends] = self._rng.normal(size=len(over))
        return concatenate(terminal, self._rows(name, agents, np.where(ends, 0, rewards).astype(np.float32)))

    def _rows(
        self,
        name: str,
        agents: NDArray[np.int64],
        rewards: NDArray[np.float32],
        terminated: NDArray[np.bool_] | None = None,
    ) -> StepBatch:
        group = np.full(len(agents), int(self._walks[name].group), np.int64)
        return step_batch(
            [self._seen(name)[agents]],
            rewards,
            agent_ids=agents.astype(np.int64),
            allowed_actions=np.ones((len(agents), 2), np.bool_),
            terminated=terminated,
            group_ids=group,
            group_rewards=group.astype(np.float32) * rewards.sum(),
        )

    def _seen(self, name: str) -> Observation:
        positions, ages = self._positions[name], self._ages[name]
        if self._pictures:
            shade = (np.abs(positions) * 50 % 256).astype(np.uint8)
            return np.broadcast_to(shade[:, None, None, None], (len(shade), 3, 20, 20)).copy()
        return np.stack([positions, ages.astype(np.float32)], axis=1)


def walkers(*worlds: Mapping[str, Walk], pictures: bool = False) -> Callable[[int, Academy], Walkers]:
    """Simulator number n is the n-th of these worlds; further ones are the last."""
    return lambda number, academy: Walkers(worlds[min(number, len(worlds) - 1)], academy, pictures=pictures)
