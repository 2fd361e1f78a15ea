from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from foreign_scenes import pettingzoo_scene
from gymnasium import spaces
from mpe2 import simple_speaker_listener_v4, simple_spread_v3
from pettingzoo import ParallelEnv

from unity_bridge.simulators.foreign.open import open_made
from unity_bridge.simulators.foreign.pettingzoo import ParallelEnvironment
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene, SceneError, Steps
from unity_bridge.simulators.schemes import SceneRequest
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.steps import ActionBatch

KID, NURSE = "nursery_v1_kid?team=0", "nursery_v1_nurse?team=0"


def nursery(
    copies: int = 1, *, with_state: bool | None = False, rendered: bool = False, **kwargs: Any
) -> Any:
    return pettingzoo_scene("nursery_v1", copies, kwargs, with_state=with_state, rendered=rendered)


def answer(scene: Scene, steps: Steps, choose: Callable[..., ActionBatch] | None = None) -> Any:
    """An action for every row that waits, zeros unless ``choose`` knows better."""
    actions = {}
    for behavior, batch in steps.items():
        spec, rows = scene.behaviors[behavior].action_spec, len(batch) - batch.num_terminal
        actions[behavior] = choose(rows, spec) if choose else ActionBatch.zeros(rows, spec)
    return actions


def test_early_deaths_are_terminal_while_the_group_continues() -> None:
    scene = nursery()
    steps = scene.reset(5)
    assert set(steps) == {KID}
    assert steps[KID].agent_ids.tolist() == [0, 1, 2]
    steps = scene.step(answer(scene, steps))
    assert steps[KID].agent_ids.tolist() == [0, 1, 2]
    assert steps[KID].terminated.tolist() == [True, False, False]
    assert not steps[KID].truncated.any()
    assert steps[KID].group_ids.tolist() == [1, 1, 1]
    assert steps[KID].observations[0].tolist() == [[1, 0, 5], [1, 1, 5], [1, 2, 5]]


class Phoenix(ParallelEnv):  # type: ignore[type-arg]
    """Agent 0 dies in step 2 and is listed again in the same step; agent 1 lives for 4 steps."""

    metadata = {"name": "phoenix"}  # noqa: RUF012 - as PettingZoo declares it
    possible_agents = ["agent_0", "agent_1"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (1,), np.float32)

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(3)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents, self.count = list(self.possible_agents), 0
        return self._of(np.zeros(1, np.float32)), self._of({})

    def step(self, actions: Any) -> Any:
        assert list(actions) == self.agents
        RECEIVED.append(dict(actions))
        self.count += 1
        over = self.count == 4
        died = {"agent_0": self.count == 2, "agent_1": False}
        outcome = (
            self._of(np.full(1, self.count, np.float32)),
            self._of(1.0),
            died,
            self._of(over),
            self._of({}),
        )
        self.agents = [] if over else self.agents
        return outcome

    def _of(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


RECEIVED: list[dict[str, Any]] = []


def test_an_agent_that_is_listed_again_as_it_dies_gets_an_action(
    monkeypatch: pytest.MonkeyPatch, caplog: Any
) -> None:
    monkeypatch.setitem(sys.modules, "phoenix", SimpleNamespace(parallel_env=Phoenix))
    RECEIVED.clear()
    scene = pettingzoo_scene("phoenix")
    [batch] = scene.reset(1).values()
    rows = []
    for _ in range(4):
        twos = np.full((len(batch) - batch.num_terminal, 1), 2, np.int32)
        [batch] = scene.step(
            {"phoenix?team=0": ActionBatch(np.zeros((len(twos), 0), np.float32), twos)}
        ).values()
        ended = batch.num_terminal
        rows.append((batch.agent_ids[:ended].tolist(), batch.agent_ids[ended:].tolist()))
    assert rows == [([], [0, 1]), ([0], [1]), ([], [0, 1]), ([0, 1], [0, 1])]
    assert RECEIVED[2] == {"agent_0": 0, "agent_1": 2}
    assert "agent 'agent_0' has ended and stays in env.agents" in caplog.text


def test_copies_are_groups_with_seeds_and_agents_of_their_own() -> None:
    scene = nursery(3)
    steps = scene.reset(10)[KID]
    assert steps.group_ids.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert steps.agent_ids.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert steps.observations[0][::3, 2].tolist() == [10, 1010, 2010]
    assert scene.reset()[KID].observations[0][::3, 2].tolist() == [10, 1010, 2010], "not seeded again"


def test_missing_state_joins_observations_with_zeros_for_absent_agents() -> None:
    scene = nursery(with_state=None)
    assert [spec.name for spec in scene.behaviors[NURSE].observation_specs] == ["observation", "global_state"]
    steps = scene.reset(5)
    first = [0, 0, 5, 0, 1, 5, 0, 2, 5, 0, 0, 0]
    assert steps[KID].observations[1].tolist() == [first] * 3
    steps = scene.step(answer(scene, steps))
    steps = scene.step(answer(scene, steps))
    state = [0, 0, 0, 2, 1, 5, 2, 2, 5, 2, 3, 5]
    assert steps[KID].observations[1].tolist() == [state, state], "kid_0 is gone, kid_1 was still seen"
    assert steps[NURSE].observations[1].tolist() == [state]
    steps = scene.step(answer(scene, steps))
    steps = scene.step(answer(scene, steps))
    last = [0, 0, 0, 0, 0, 0, 4, 2, 5, 4, 3, 5]
    assert steps[KID].observations[1].tolist() == [last, first, first, first]


@pytest.mark.parametrize(
    ("module", "with_state", "shown"),
    [
        (simple_spread_v3, None, False),
        (simple_speaker_listener_v4, None, True),
        (simple_speaker_listener_v4, False, False),
    ],
)
def test_state_is_shown_for_several_behaviors_or_on_request(
    module: Any, with_state: bool | None, shown: bool
) -> None:
    env = module.parallel_env()
    env.reset(seed=3)
    scene = pettingzoo_scene(module.__name__, with_state=with_state)
    steps = scene.reset(3)
    for behavior, batch in steps.items():
        names = [spec.name for spec in scene.behaviors[behavior].observation_specs]
        assert names == (["observation", "global_state"] if shown else ["observation"])
        if shown:
            np.testing.assert_array_equal(batch.observations[-1], np.stack([env.state()] * len(batch)))


@pytest.mark.parametrize(
    ("kwargs", "complaint"),
    [
        ({"trouble": "step"}, r"pettingzoo:nursery_v1: step\(\) raised ValueError: spilt milk$"),
        ({"trouble": "nobody"}, r"pettingzoo:nursery_v1: reset\(\) left no agent that could act$"),
        ({"trouble": "lost"}, "agent 'kid_2' left without being terminated or truncated$"),
        (
            {"trouble": "stranger"},
            "agent 'stranger' is none of its possible_agents: kid_0, kid_1, kid_2, nurse_0",
        ),
        (
            {"trouble": "gym"},
            r"step\(\) raised TypeError: expected 5 dictionaries by agent .*, got 4 values$",
        ),
        (
            {"trouble": "one reward"},
            r"step\(\) raised TypeError: rewards: expected a dictionary by agent, got float$",
        ),
        ({"beds": 3}, r"make\(\) raised TypeError: .*unexpected keyword argument 'beds'"),
    ],
)
def test_environment_errors_become_one_line(kwargs: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint) as caught:  # noqa: PT012 - each trouble comes at its own place
        scene = nursery(**kwargs)
        steps = scene.reset()
        for _ in range(3):
            steps = scene.step(answer(scene, steps))
    assert str(caught.value).startswith("pettingzoo:nursery_v1: ")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"agents": 3}, "--agents is for single agents; expected --copies, --with-state, --behaviors"),
        ({"options": {"steps": 3}}, "it has no --steps; expected --copies, --with-state, --behaviors"),
        ({"options": {"behaviors": (("kid_*", "Kid"),)}}, "--behaviors: agent 'nurse_0' fits none of kid_"),
    ],
)
def test_options_that_mean_nothing_are_refused(arguments: Any, complaint: str) -> None:
    with pytest.raises(SceneError, match=f"pettingzoo:nursery_v1: {complaint}"):
        open_scene("pettingzoo:nursery_v1", **arguments)


class Pair(ParallelEnv):
    """Two agents that are truncated at once after a step, with a method of masks and a state."""

    metadata = {"name": "pair_v0"}  # noqa: RUF012 - PettingZoo's own way
    possible_agents = ["a", "b"]  # noqa: RUF012

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 1, (1,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = ["a", "b"]
        return self._all(np.zeros(1)), self._all({})

    def step(self, actions: Any) -> Any:
        self.agents = []
        return self._all(np.ones(1)), self._all(1.0), self._all(False), self._all(True), self._all({})

    def action_mask(self, agent: str) -> Any:
        if agent == "b" and not self.agents:
            raise KeyError(agent)
        return np.array([1, 0])

    def state(self) -> Any:
        return self.missing  # type: ignore[attr-defined]  # a mistake

    def _all(self, value: Any) -> dict[str, Any]:
        return {"a": value, "b": value}


def test_the_last_observation_of_a_truncation_has_the_mask_of_the_method(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env = ParallelEnvironment(Pair(), ForeignCode("pettingzoo:pair"))
    env.reset()
    [first, second], _ = env.step({"a": 0, "b": 0})
    assert (first.mask.tolist(), second.mask) == ([1, 0], None)
    [message] = caplog.messages
    assert message.startswith(
        "pettingzoo:pair: the mask of agent 'b' after its truncation raised KeyError: 'b'; every"
    )


def test_a_mistake_in_state_is_told() -> None:
    with pytest.raises(
        SceneError, match="state raised AttributeError: 'Pair' object has no attribute 'missing'"
    ):
        open_made(
            ForeignCode("mine"),
            lambda _: "pair",
            lambda *_, **__: Pair(),
            SceneRequest(options={"with_state": True}),
        )
