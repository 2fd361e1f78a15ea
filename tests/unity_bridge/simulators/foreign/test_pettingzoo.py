from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from foreign_scenes import pettingzoo_scene
from gymnasium import spaces
from mpe2 import simple_speaker_listener_v4, simple_spread_v3, simple_tag_v3
from pettingzoo import ParallelEnv

from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene, SceneError, Steps
from unity_bridge.steps import ActionBatch

KID, NURSE = "nursery_v1_kid?team=0", "nursery_v1_nurse?team=0"
SPREAD = "simple_spread_v3?team=0"


@pytest.fixture(autouse=True)
def importable(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(repository / "tests" / "programs"))


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


def drawn(rng: np.random.Generator) -> Callable[..., ActionBatch]:
    def choose(rows: int, spec: Any) -> ActionBatch:
        numbers = rng.uniform(-1, 1, (rows, spec.continuous_size)).astype(np.float32)
        choices = rng.integers(0, spec.discrete_branches or (1,), (rows, max(spec.discrete_size, 1)))
        return ActionBatch(numbers, choices[:, : spec.discrete_size].astype(np.int32))

    return choose


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


def test_late_agents_get_rows_once_they_come() -> None:
    scene = nursery()
    steps = scene.reset()
    steps = scene.step(answer(scene, steps))
    steps = scene.step(answer(scene, steps))
    assert steps[KID].agent_ids.tolist() == [1, 2]
    assert steps[NURSE].agent_ids.tolist() == [3]
    assert steps[NURSE].num_terminal == 0
    steps = scene.step(answer(scene, steps))
    assert (steps[KID].agent_ids.tolist(), steps[NURSE].agent_ids.tolist()) == ([2], [3])


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


def test_last_and_next_first_observations_share_a_message() -> None:
    scene = nursery()
    steps = scene.reset(8)
    for _ in range(4):
        steps = scene.step(answer(scene, steps))
    kids, nurse = steps[KID], steps[NURSE]
    assert kids.agent_ids.tolist() == [2, 0, 1, 2]
    assert kids.truncated.tolist() == [True, False, False, False]
    assert kids.observations[0].tolist() == [[4, 2, 8], [0, 0, 8], [0, 1, 8], [0, 2, 8]]
    assert (nurse.agent_ids.tolist(), nurse.truncated.tolist()) == ([3], [True])
    assert NURSE not in scene.step(answer(scene, steps)), "she is not there yet"


def test_terminated_and_truncated_at_once_is_terminated() -> None:
    scene = nursery(limit=1)
    steps = scene.step(answer(scene, scene.reset()))
    assert steps[KID].terminated.tolist() == [True, False, False, False, False, False]
    assert steps[KID].truncated.tolist() == [False, True, True, False, False, False]


def test_rewards_never_reach_the_next_episode() -> None:
    scene = nursery(2)
    steps = scene.reset()
    rewards: dict[int, list[float]] = {}
    for _ in range(4):
        choices = {KID: [[int(agent) % 3] for agent in steps[KID].agent_ids[steps[KID].num_terminal :]]}
        actions = answer(scene, steps)
        count = len(choices[KID])
        actions[KID] = ActionBatch(
            np.zeros((count, 0), np.float32), np.array(choices[KID], np.int32).reshape(-1, 1)
        )
        if NURSE in actions:
            actions[NURSE] = ActionBatch(np.full((2, 1), 0.5, np.float32), np.zeros((2, 0), np.int32))
        steps = scene.step(actions)
        for batch in steps.values():
            for agent, reward in zip(batch.agent_ids.tolist(), batch.rewards.tolist(), strict=True):
                rewards.setdefault(agent, []).append(reward)
    assert rewards == {
        0: [0, 0],  # its last and its next first row
        1: [1, 1, 0],
        2: [2, 2, 2, 2, 0],
        3: [0, 7.5, 7.5],  # −1 to 1 stands for 0 to 10
        4: [1, 0],
        5: [2, 2, 0],
        6: [0, 0, 0, 0, 0],
        7: [0, 7.5, 7.5],
    }


def test_copies_are_groups_with_seeds_and_agents_of_their_own() -> None:
    scene = nursery(3)
    steps = scene.reset(10)[KID]
    assert steps.group_ids.tolist() == [1, 1, 1, 2, 2, 2, 3, 3, 3]
    assert steps.agent_ids.tolist() == [0, 1, 2, 4, 5, 6, 8, 9, 10]
    assert steps.observations[0][::3, 2].tolist() == [10, 1010, 2010]
    assert scene.reset()[KID].observations[0][::3, 2].tolist() == [10, 1010, 2010], "not seeded again"


@pytest.mark.parametrize("masks", ["observation", "info"])
def test_masks_are_found_in_observations_and_infos(masks: str) -> None:
    scene = nursery(masks=masks)
    steps = scene.reset()
    assert [spec.name for spec in scene.behaviors[KID].observation_specs] == ["observation"]
    assert steps[KID].allowed_actions.tolist() == [[True, False, False]] * 3
    steps = scene.step(answer(scene, steps))
    assert steps[KID].allowed_actions[1:].tolist() == [[True, False, True]] * 2
    # Nobody asks what a kid may do that has gone home; its row may say anything that allows a choice.
    assert steps[KID].allowed_actions[0].any()


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
        (simple_spread_v3, True, True),
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


@pytest.mark.parametrize("module", [simple_spread_v3, simple_speaker_listener_v4, simple_tag_v3])
@pytest.mark.parametrize("continuous", [False, True])
def test_a_copy_is_the_environment_itself_with_its_seed(module: Any, continuous: bool) -> None:
    kwargs = {"max_cycles": 7, "continuous_actions": continuous}
    scene = pettingzoo_scene(module.__name__, 2, kwargs, with_state=False)
    env, rng = module.parallel_env(**kwargs), np.random.default_rng(1)
    seen, _ = env.reset(seed=42 + 1000)
    steps = scene.reset(42)
    earned: dict[str, float] = {}
    for _ in range(20):
        actions = answer(scene, steps, drawn(rng))
        steps_before, steps = steps, scene.step(actions)
        chosen = mine(scene, steps_before, actions, env, continuous)
        seen, earned, _, truncated, _ = env.step(chosen)
        last = seen
        if all(truncated.values()):
            seen, _ = env.reset()
        compare(env, steps, seen, earned, last if all(truncated.values()) else None)


def rows_of_copy(steps: Steps, env: Any, copy: int, *, terminal: bool) -> dict[str, tuple[str, int]]:
    """The row of each agent."""
    places = {}
    for behavior, batch in steps.items():
        rows = range(batch.num_terminal) if terminal else range(batch.num_terminal, len(batch))
        for row in rows:
            number, index = divmod(int(batch.agent_ids[row]), len(env.possible_agents))
            if number == copy:
                places[env.possible_agents[index]] = (behavior, row)
    return places


def mine(scene: Scene, steps: Steps, actions: Any, env: Any, continuous: bool) -> dict[str, Any]:
    """The second copy's share of the actions, in the environment's own units."""
    chosen = {}
    for agent, (behavior, row) in rows_of_copy(steps, env, 1, terminal=False).items():
        asked = row - steps[behavior].num_terminal
        if continuous:
            chosen[agent] = (actions[behavior].continuous[asked] + 1) / 2
        else:
            chosen[agent] = int(actions[behavior].discrete[asked, 0])
    return chosen


def compare(env: Any, steps: Steps, seen: Any, earned: Any, last: Any) -> None:
    places = rows_of_copy(steps, env, 1, terminal=False)
    assert set(places) == set(env.possible_agents)
    for agent, (behavior, row) in places.items():
        np.testing.assert_allclose(steps[behavior].observations[0][row], seen[agent], rtol=1e-6)
        assert steps[behavior].rewards[row] == pytest.approx(0 if last else earned[agent], rel=1e-6)
    places = rows_of_copy(steps, env, 1, terminal=True)
    assert set(places) == (set(env.possible_agents) if last else set())
    for agent, (behavior, row) in places.items():
        np.testing.assert_allclose(steps[behavior].observations[0][row], last[agent], rtol=1e-6)
        assert steps[behavior].rewards[row] == pytest.approx(earned[agent], rel=1e-6)
        assert steps[behavior].truncated[row]


def test_agents_that_act_in_turn_are_made_parallel() -> None:
    in_turn = pettingzoo_scene("spread_in_turn", kwargs={"max_cycles": 5})
    parallel = pettingzoo_scene("mpe2.simple_spread_v3", kwargs={"max_cycles": 5})
    theirs, ours = in_turn.reset(3), parallel.reset(3)
    for step in range(12):
        choose = drawn(np.random.default_rng(step))
        theirs = in_turn.step(answer(in_turn, theirs, choose))
        choose = drawn(np.random.default_rng(step))
        ours = parallel.step(answer(parallel, ours, choose))
        batches = theirs["spread_in_turn?team=0"], ours[SPREAD]
        np.testing.assert_array_equal(*[batch.observations[0] for batch in batches])
        np.testing.assert_array_equal(*[batch.rewards for batch in batches])
        np.testing.assert_array_equal(*[batch.truncated for batch in batches])


class Gallery:
    """Two kinds of agents; one looks at a painting."""

    possible_agents = ("guard_0", "visitor_0")
    agents = possible_agents
    painting = np.arange(24 * 25 * 3, dtype=np.uint8).reshape(24, 25, 3)

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 255, (24, 25, 3), np.uint8) if agent == "visitor_0" else spaces.Box(-1, 1, (2,))

    def action_space(self, agent: str) -> Any:
        return spaces.MultiDiscrete([2, 3])

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return {"guard_0": np.zeros(2), "visitor_0": self.painting}, {}


def test_with_pictures_state_must_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gallery", SimpleNamespace(parallel_env=Gallery))
    scene = pettingzoo_scene("gallery")
    [seen] = scene.reset()["gallery_visitor?team=0"].observations
    assert (seen.dtype, seen.shape) == (np.uint8, (1, 3, 24, 25))
    np.testing.assert_array_equal(seen[0], Gallery.painting.transpose(2, 0, 1))
    with pytest.raises(SceneError, match="no state to show: agent 'visitor_0' sees pictures"):
        pettingzoo_scene("gallery", with_state=True)
    monkeypatch.setattr(Gallery, "state", lambda self: self.painting, raising=False)
    state_space = spaces.Box(0, 255, (24, 25, 3), np.uint8)
    monkeypatch.setattr(Gallery, "state_space", state_space, raising=False)
    scene = pettingzoo_scene("gallery", with_state=True)
    state = scene.reset()["gallery_guard?team=0"].observations[1]
    np.testing.assert_array_equal(state[0], Gallery.painting.transpose(2, 0, 1))
    assert scene.behaviors["gallery_guard?team=0"].observation_specs[1].is_picture


def test_pictures_are_those_of_the_first_copy() -> None:
    scene = nursery(2, rendered=True)
    scene.step(answer(scene, scene.reset()))
    assert scene.render().tolist() == np.full((4, 6, 3), 1).tolist()
    assert scene.frame_s == 0.2
    scene, shown = nursery(rendered=True), []
    steps = scene.reset()
    for _ in range(6):
        steps = scene.step(answer(scene, steps))
        shown.append(int(scene.render()[0, 0, 0]))
    assert shown == [1, 2, 3, 4, 1, 2], "an episode's last picture, not the next one's first"
    scene = pettingzoo_scene("mpe2.simple_spread_v3", rendered=True)
    scene.reset(0)
    assert scene.render().shape == (700, 700, 3)
    scene.close()


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


@pytest.mark.parametrize("option", [{"with_state": True}, {"behaviors": (("a", "b"),)}])
@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        ("sim:basic", "--.* is for gymma: and pettingzoo: environments only"),
        ("sim:spread", "--.* is for gymma: and pettingzoo: environments only"),
        ("gym:CartPole-v1", "it has no --.*; expected --wrap, --vector"),
    ],
)
def test_its_options_mean_nothing_to_others(env: str, complaint: str, option: Any) -> None:
    with pytest.raises(SceneError, match=f"{env}: {complaint}"):
        open_scene(env, options=option)
