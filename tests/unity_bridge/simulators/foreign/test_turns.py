"""Agents that act in turn (AEC): who is not asked says nothing, and hears everything in the end."""

from __future__ import annotations

import importlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from foreign_scenes import pettingzoo_scene
from gymnasium import spaces

from unity_bridge.simulators.foreign.turns import TurnEnvironment
from unity_bridge.simulators.registry import open_scene
from unity_bridge.simulators.scene import Scene, SceneError, Steps
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.steps import ActionBatch

# PettingZoo's modules of games say so while they are imported; it has no other way to make them with arguments.
pytestmark = pytest.mark.filterwarnings("ignore:The old environment creation API:DeprecationWarning")


def act(scene: Scene, steps: Steps, choose: Any) -> Steps:
    """Acts for all that wait. choose: takes the agent id and what it may do."""
    actions = {}
    for behavior, batch in steps.items():
        asked = range(batch.num_terminal, len(batch))
        chosen = [choose(int(batch.agent_ids[row]), batch.allowed_actions[row]) for row in asked]
        discrete = np.array(chosen, np.int32).reshape(len(chosen), 1)
        actions[behavior] = ActionBatch(np.zeros((len(chosen), 0), np.float32), discrete)
    return scene.step(actions)


def rows(steps: Steps) -> list[tuple[int, float, str]]:
    """Agent, reward and how it goes on with each, in the order of the message."""
    told = []
    for batch in steps.values():
        for agent, reward, terminated, truncated in zip(
            batch.agent_ids.tolist(), batch.rewards.tolist(), batch.terminated, batch.truncated, strict=True
        ):
            told.append((agent, reward, "terminated" if terminated else "truncated" if truncated else ""))
    return told


def test_one_agent_is_asked_at_a_time_and_rewards_wait_for_its_next_row() -> None:
    scene = pettingzoo_scene("whist_v1")
    words = iter([1, 2, 0, 2, 1, 2, 1, 2])
    steps, told = scene.reset(5), []
    while not told or len(told) < 9:
        told.append(rows(steps))
        steps = act(scene, steps, lambda agent, allowed: next(words)) if len(told) < 9 else steps
    assert told == [
        [(0, 0, "")],
        [(1, 1, "")],  # what player_0 said
        [(2, 1 + 2, "")],
        [(0, 10 + 2 + 0, "")],
        [(1, 10 + 0 + 2, "")],
        [(1, 10, "terminated"), (2, 10 + 2 + 1, "")],  # player_1 spoke twice, and is not there any more
        [(0, 10 + 1 + 2, "")],
        [(2, 10 + 1, "")],
        [(0, 10 + 2, "truncated"), (2, 10, "truncated"), (0, 0, "")],  # and the next episode begins
    ]


def test_masks_observations_groups_and_states_are_those_of_the_moment() -> None:
    scene = pettingzoo_scene("whist_v1", 2, with_state=True)
    steps = scene.reset(5)
    [batch] = steps.values()
    assert (batch.agent_ids.tolist(), batch.group_ids.tolist()) == ([0, 3], [1, 2])
    assert batch.observations[0].tolist() == [[0, 0, 5], [0, 0, 1005]]
    [batch] = act(scene, steps, lambda agent, allowed: 1).values()
    assert batch.agent_ids.tolist() == [1, 4]
    assert batch.allowed_actions.tolist() == [[True, False, True]] * 2
    assert batch.observations[1].tolist()[0] == [1, 0, 5, 1, 1, 5, 1, 2, 5], "everybody sees the present"


def test_a_mask_stays_as_it_was_when_its_agent_was_asked() -> None:
    mask = np.array([1, 0, 1])
    env = SimpleNamespace(
        possible_agents=["a"],
        agents=["a"],
        agent_selection="a",
        observation_space=lambda agent: spaces.Box(-1, 1, (1,)),
        action_space=lambda agent: spaces.Discrete(3),
        reset=lambda seed: None,
        last=lambda: (np.zeros(1), 0.0, False, False, {}),
        action_mask=lambda agent: mask,
    )
    [asked] = TurnEnvironment(env, ForeignCode("a game")).reset()
    mask[:] = [0, 1, 0]
    assert asked.mask.tolist() == [1, 0, 1]


class Player:
    """Allowed choices, drawn; the same whenever it is asked the same question."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __call__(self, agent: int, allowed: Any) -> int:
        self.asked.append(agent)
        return int(np.random.default_rng([len(self.asked), agent]).choice(np.flatnonzero(allowed)))


@pytest.mark.parametrize("game", ["classic.tictactoe_v3", "classic.connect_four_v3"])
def test_games_are_played_as_they_are(game: str) -> None:
    scene, player, module = pettingzoo_scene(game), Player(), importlib.import_module(f"pettingzoo.{game}")
    steps, told = scene.reset(1), []
    for _ in range(60):
        told += rows(steps)
        steps = act(scene, steps, player)
    expected, env, again = [], module.env(), Player()
    env.reset(seed=1)
    while len(expected) < len(told):
        if not env.agents:
            env.reset()
        seen, reward, terminated, truncated, _ = env.last()
        agent = env.possible_agents.index(env.agent_selection)
        expected.append((agent, reward, "terminated" if terminated else "truncated" if truncated else ""))
        over = terminated or truncated
        env.step(None if over else again(agent, seen["action_mask"]))
    assert told == expected
    ends = [reward for _, reward, end in told if end]
    assert len(ends) >= 4
    assert all(abs(mine) <= 1 and mine == -other for mine, other in zip(ends[::2], ends[1::2], strict=True))


def test_without_turns_there_is_nothing_to_ask_for() -> None:
    with pytest.raises(SceneError, match="pettingzoo:nursery_v1: --aec: expected a function env in it"):
        open_scene("pettingzoo:nursery_v1", options={"aec": True})


class Round:
    """A game in turns of two agents, which the game takes out in its own way after two moves each."""

    possible_agents = ("a", "b")

    def __init__(self, *, removes: tuple[str, ...] = (), truncates: bool = False) -> None:
        self.removes, self.truncates = removes, truncates

    def observation_space(self, agent: str) -> Any:
        return spaces.Box(0, 9, (1,))

    def action_space(self, agent: str) -> Any:
        return spaces.Discrete(2)

    def action_mask(self, agent: str) -> Any:
        return np.array([1, 0])

    def reset(self, seed: int | None = None) -> None:
        self.agents, self.agent_selection, self.moves = ["a", "b"], "a", 0

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.array([self.moves]), 1.0, False, self.truncates and self.moves >= 4, {}

    def step(self, action: Any) -> None:
        if self.last()[3]:
            self.agents.remove(self.agent_selection)
        self.moves += 1
        if self.moves == 4:
            self.agents = [agent for agent in self.agents if agent not in self.removes]
        self.agent_selection = [*self.agents, "a"][self.moves % max(len(self.agents), 1)]


@pytest.mark.parametrize("removes", [("a",), ("a", "b")])
def test_an_agent_that_leaves_without_a_last_turn_is_refused(removes: tuple[str, ...]) -> None:
    game = TurnEnvironment(Round(removes=removes), ForeignCode("a game"))
    game.reset()
    for agent in "aba":
        game.step({agent: 0})
    with pytest.raises(SceneError, match=r"agent 'a' left env\.agents without its last turn"):
        game.step({"b": 0})


def test_the_last_observation_of_a_truncation_has_the_mask_of_the_method() -> None:
    game = TurnEnvironment(Round(truncates=True), ForeignCode("a game"))
    game.reset()
    for agent in "abab":
        ended, _ = game.step({agent: 0})
    assert [(step.agent, step.truncated, step.mask.tolist()) for step in ended] == [
        ("a", True, [1, 0]),
        ("b", True, [1, 0]),
    ]
