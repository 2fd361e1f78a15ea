"""Whole episodes are handed out, the first that start, with other agents beside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trainer_service.learning.rollout.whole_episodes import WholeEpisodes
from unity_bridge.demonstrations import DemonstratedSegment
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch


def rows(agents: Sequence[int], at: float, *, over: str = "") -> StepBatch:
    """Agents that see ``at`` and their own number, and earned ``at``."""
    many = len(agents)
    return step_batch(
        [np.array([[at, agent] for agent in agents], np.float32).reshape(many, 2)],
        np.full(many, at, np.float32),
        agent_ids=np.array(agents, np.int64),
        allowed_actions=np.ones((many, 3), np.bool_),
        terminated=np.full(many, over == "terminated"),
        truncated=np.full(many, over == "truncated"),
    )


class World:
    """Ticks of one simulator; every agent's action is made of the tick and its number."""

    def __init__(self, episodes: WholeEpisodes, simulator: int = 0, team: int = 0) -> None:
        self.episodes, self.simulator, self.team = episodes, simulator, team

    def tick(
        self, at: float, deciding: Sequence[int], ended: Sequence[int] = (), how: str = "terminated"
    ) -> list[DemonstratedSegment]:
        batch = concatenate(rows(ended, at, over=how), rows(deciding, at))
        segments = self.episodes.observe(self.simulator, self.team, batch)
        numbers = np.array(deciding, np.int32).reshape(-1, 1)
        actions = ActionBatch((numbers + at / 16).astype(np.float32), numbers % 3)
        self.episodes.acted(self.simulator, self.team, batch, actions)
        batch.observations[0][:] = actions.continuous[:] = -1.0  # whoever owns the arrays may use them again
        return segments


def test_an_episode_holds_what_its_agent_saw_did_and_earned() -> None:
    world = World(WholeEpisodes(1))
    assert world.tick(1, [7, 8]) == []
    assert world.tick(2, [8, 7]) == []
    (segment,) = world.tick(3, [7], ended=[7], how="truncated")
    np.testing.assert_array_equal(segment.observations[0], [[1, 7], [2, 7]])
    np.testing.assert_array_equal(segment.continuous_actions, [[7 + 1 / 16], [7 + 2 / 16]])
    np.testing.assert_array_equal(segment.discrete_actions, [[1], [1]])
    np.testing.assert_array_equal(segment.rewards, [2, 3])
    np.testing.assert_array_equal(segment.final_observations[0], [[3, 7]])
    assert (segment.terminated, segment.truncated, segment.starts_episode) == (False, True, True)
    assert world.episodes.complete


def test_the_first_episodes_to_start_are_recorded() -> None:
    world = World(WholeEpisodes(2))
    world.tick(1, [1, 2])
    assert len(world.tick(2, [1, 2], ended=[1])) == 1
    for at in (3, 4):
        assert world.tick(at, [1, 2], ended=[1]) == []  # these started later
        assert not world.episodes.complete
    (long,) = world.tick(5, [1], ended=[1, 2])
    assert long.rewards.tolist() == [2, 3, 4, 5]
    assert world.episodes.complete


def test_agents_with_one_id_differ_by_simulator_and_team() -> None:
    episodes = WholeEpisodes(3)
    worlds = [World(episodes, 0), World(episodes, 1), World(episodes, 1, team=1)]
    for at, world in enumerate(worlds):
        world.tick(at, [5])
    ended = [world.tick(10 + at, [], ended=[5])[0] for at, world in enumerate(worlds)]
    assert [segment.observations[0].tolist() for segment in ended] == [[[at, 5]] for at in range(3)]
    assert [segment.rewards.tolist() for segment in ended] == [[10], [11], [12]]


def test_an_agent_that_ends_before_it_begins_is_passed_over() -> None:
    world = World(WholeEpisodes(1))
    assert world.tick(1, [], ended=[3]) == []
    world.tick(2, [3])
    assert len(world.tick(3, [], ended=[3])) == 1
