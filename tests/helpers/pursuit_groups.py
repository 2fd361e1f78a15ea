"""A tiny world of teams with two behaviors: a leader who sees a number and names it, and runners who hear the name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.scene import Steps, camera_sensor, concatenate, step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch, StepBatch

LEADER = BehaviorSpec((vector_sensor("number", 2),), ActionSpec(1, (3,)))
RUNNER = BehaviorSpec((vector_sensor("heard", 1), vector_sensor("seen", 3)), ActionSpec(2, (2, 2)))
SPECS = {"Leader": LEADER, "Runner": RUNNER}
LENGTH = 6
"""Decisions in an episode."""

PURSUIT = {"Pursuit": {"Leader": None, "Runner": None}}


def member(name: str, num_agents: int, *, camera: bool = False) -> MemberSpec:
    """One of the team's behaviors; the runners may have a camera too."""
    sensors = SPECS[name].observation_specs
    if camera and name == "Runner":
        sensors = (*sensors, camera_sensor("camera", 20, 20))
    return MemberSpec(name, sensors, SPECS[name].action_spec, num_agents)


class PursuitGroups:
    """Groups of one leader and some runners. A leader's first choice pays, and a runner's equal choices do."""

    frame_s = 0.1

    def __init__(
        self,
        runners: int = 2,
        teams: Sequence[int] = (0,),
        *,
        groups: int = 1,
        same_episodes: bool = False,
        discrete: bool = False,
    ) -> None:
        """
        Args:
            same_episodes: all episodes show the same, so that a run may stop and go on between any two.
            discrete: agents have choices alone, no numbers.
        """
        self._same_episodes = same_episodes
        self._counts = {"Leader": 1, "Runner": runners}
        self._teams = teams
        self._groups = groups
        specs = {name: _choices_alone(spec) if discrete else spec for name, spec in SPECS.items()}
        self.behaviors = {f"{name}?team={team}": spec for team in teams for name, spec in specs.items()}
        self._age = 0
        self._rng = np.random.default_rng(0)

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._begin()
        return {each: self._rows(each, None) for each in self.behaviors}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        self._age += 1
        steps = {each: self._rows(each, actions[each]) for each in self.behaviors}
        if self._age == LENGTH:
            self._begin()
            steps = {
                each: concatenate(_ended(batch), self._rows(each, None)) for each, batch in steps.items()
            }
        return steps

    def render(self) -> NDArray[np.uint8]:
        return np.zeros((4, 4, 3), np.uint8)

    def close(self) -> None:
        """Holds nothing."""

    def _begin(self) -> None:
        self._age = 0
        if self._same_episodes:
            self._rng = np.random.default_rng(0)

    def _rows(self, behavior_id: str, actions: ActionBatch | None) -> StepBatch:
        name, _, team = behavior_id.partition("?team=")
        agents = np.arange(self._counts[name] * self._groups)
        seen = [
            self._rng.normal(size=(len(agents), *sensor.shape)).astype(np.float32)
            for sensor in SPECS[name].observation_specs
        ]
        rewards = np.zeros(len(agents), np.float32)
        if actions is not None:
            paid = actions.discrete[:, 0] == (0 if name == "Leader" else actions.discrete[:, 1])
            rewards = paid.astype(np.float32)
        first = 10_000 * int(team) + (0 if name == "Leader" else 1000)
        return step_batch(
            seen,
            rewards,
            agent_ids=first + agents,
            allowed_actions=np.ones((len(agents), SPECS[name].action_spec.mask_size), np.bool_),
            group_ids=1 + agents % self._groups + 100 * int(team),
        )


def _choices_alone(spec: BehaviorSpec) -> BehaviorSpec:
    return replace(spec, action_spec=replace(spec.action_spec, continuous_size=0))


def _ended(batch: StepBatch) -> StepBatch:
    columns: dict[str, Any] = {
        "agent_ids": batch.agent_ids,
        "allowed_actions": batch.allowed_actions,
        "group_ids": batch.group_ids,
    }
    return step_batch(batch.observations, batch.rewards, terminated=np.ones(len(batch), np.bool_), **columns)
