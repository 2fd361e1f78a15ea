"""The loop of frozen policies: where episodes do not end, and where they take long."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from itertools import count
from typing import Any

import numpy as np
import pytest

from trainer_service.config import parse_player
from trainer_service.errors import UserError
from trainer_service.learning.rollout.agents import MAX_SILENT_TICKS
from trainer_service.learning.rollout.episode_scores import Score
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.callbacks import SimulatorStep
from trainer_service.running.evaluation.evaluate import PolicyActors, score
from trainer_service.running.evaluation.loop import EpisodeLoop
from trainer_service.running.evaluation.match import play_match
from trainer_service.running.evaluation.players import Player
from trainer_service.running.policy import Policy, random_policy
from unity_bridge.server.bridge import Departure, Tick
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

SPEC = BehaviorSpec((ObservationSpec("body", (1,)),), ActionSpec(1, (3,)))
NEVER = 10**9


class World:
    """Agents that earn 1 a step, each with an end after so many steps; a simulator in this process."""

    def __init__(self, ends: Mapping[str, list[int]]) -> None:
        """ends: steps of an episode of each agent, by behavior id."""
        self.ends = ends
        self.resets = 0
        self.silent = False
        """Whether agents are gone without a word."""
        self._ages = {name: np.zeros(len(ages), np.int64) for name, ages in ends.items()}
        self._over = {name: np.zeros(len(ages), np.bool_) for name, ages in ends.items()}
        self._specs = dict.fromkeys(ends, SPEC)

    def receive(self, timeout_s: float) -> list[Tick | Departure]:
        specs, self._specs = self._specs, {}
        return [Tick(0, specs, {} if self.silent else {name: self._batch(name) for name in self.ends})]

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        for name, ends in self.ends.items():
            self._ages[name] += 1
            self._over[name] = self._ages[name] >= ends
            self._ages[name][self._over[name]] = 0

    def reset(self, simulator: int) -> None:
        self.resets += 1
        for name in self.ends:
            self._ages[name][:] = 0
            self._over[name][:] = False

    def _batch(self, name: str) -> StepBatch:
        def rows(agents: np.ndarray, over: bool) -> StepBatch:
            return step_batch(
                [np.ones((len(agents), 1), np.float32)],
                np.ones(len(agents), np.float32),
                agent_ids=agents,
                allowed_actions=np.ones((len(agents), 3), np.bool_),
                terminated=np.full(len(agents), over),
            )

        agents = np.arange(len(self.ends[name])) + (100 if "team=1" in name else 0)
        return concatenate(rows(agents[self._over[name]], True), rows(agents, False))


def policies() -> dict[str, Policy]:
    return {"Ball": random_policy("Ball", SPEC)}


def evaluate(loop: EpisodeLoop, policies: Mapping[str, Policy], **counted: Any) -> dict[str, Score]:
    return score(loop, PolicyActors(policies, deterministic=True), **counted)


def test_an_endless_environment_is_reset_at_every_cut() -> None:
    world, done = World({"Ball?team=0": [NEVER]}), []
    loop = EpisodeLoop(world, 5, progress=lambda *counts: done.append(counts))
    score = evaluate(loop, policies(), episodes=3)["Ball"]
    assert (score.returns, score.lengths, score.num_cut) == ((5.0,) * 3, (5,) * 3, 3)
    assert world.resets == 2  # none after the last
    assert done == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_a_behavior_whose_episodes_are_all_there_stops_no_reset() -> None:
    world = World({"Ball?team=0": [NEVER], "Cube?team=0": [2]})
    both = {**policies(), "Cube": random_policy("Cube", SPEC)}
    scores = evaluate(EpisodeLoop(world, 5), both, episodes=3)
    assert scores["Ball"].lengths == (5, 5, 5)
    assert (scores["Cube"].lengths, scores["Cube"].num_cut) == ((2, 2, 2), 0)


def test_a_reset_makes_policies_forget(make_behavior) -> None:
    memory = {"hidden_units": 4, "num_layers": 1, "memory": {"memory_size": 4, "sequence_length": 2}}
    behavior = make_behavior(name="Ball", sizes=(1,), continuous=1, branches=(3,), network_settings=memory)
    drawn: list[float] = []

    def note(name: str, step: SimulatorStep) -> None:
        drawn.extend(step.actions.continuous.ravel().tolist())

    loop = EpisodeLoop(World({"Ball?team=0": [NEVER]}), 4)
    known = {"Ball": Policy(checkpoint_of(behavior))}
    evaluate(loop, known, episodes=2, on_step=note)
    assert drawn[:4] == drawn[4:]
    assert len(set(drawn)) == 4  # what is remembered does change what is done


def test_endless_games_are_cut_and_drawn_on_every_side() -> None:
    world = World({"Ball?team=0": [NEVER], "Ball?team=1": [NEVER]})
    chance = Player(parse_player("random"))
    played = play_match(EpisodeLoop(world, 4, what="game"), chance, chance, games=4)
    for games in played.values():
        assert (games.results, games.lengths, games.interrupted, games.cut) == ((0.5, 0.5), (4, 4), 2, 2)
        assert games.opponent_returns == (4.0, 4.0)
        assert games.to_json()["cut_episodes"] == 2
    assert world.resets == 3  # within each half, and between them


def ticking(seconds: float) -> Callable[[], float]:
    """A clock that goes on by so much at every look."""
    times: Iterator[int] = count()
    return lambda: seconds * next(times)


class Enough(Exception):
    pass


def until(ticks: int) -> Callable[[], None]:
    left = iter(range(ticks))

    def check() -> None:
        if next(left, None) is None:
            raise Enough

    return check


def lines_of(caplog: pytest.LogCaptureFixture, loop: EpisodeLoop) -> list[str]:
    with caplog.at_level(logging.WARNING), pytest.raises(Enough):
        evaluate(loop, policies(), episodes=7)
    return [record.getMessage() for record in caplog.records]


def test_silence_is_told_of_with_growing_pauses(caplog: pytest.LogCaptureFixture) -> None:
    loop = EpisodeLoop(World({"Ball?team=0": [NEVER]}), clock=ticking(1.0), check_stop=until(300))
    lines = lines_of(caplog, loop)
    assert "No episode has ended for 30 s. 'Ball': 0 of 7 ended" in lines[0]
    assert "have lasted 29 steps so far. Perhaps episodes of this environment have no end." in lines[0]
    assert "--max-episode-steps N" in lines[0]
    assert len(lines) == 3  # at 30 s, 90 s, 210 s


def test_a_policy_whose_agents_never_came_is_named(caplog: pytest.LogCaptureFixture) -> None:
    played = {name: random_policy(name, SPEC, 0) for name in ("Ball", "Ghost", "Spook")}
    scores = evaluate(EpisodeLoop(World({"Ball?team=0": [3]})), played, episodes=2)
    assert list(scores) == ["Ball"]
    assert caplog.messages == [
        "The evaluation has no score of 'Ghost', 'Spook', of which no agent took part."
    ]


def test_agents_that_are_gone_are_not_waited_for_for_ever() -> None:
    world = World({"Ball?team=0": [NEVER]})
    ticks = count()

    def vanish() -> None:
        world.silent = next(ticks) >= 3

    with pytest.raises(UserError, match="no episode has ended for 10,"):
        evaluate(EpisodeLoop(world, 50, check_stop=vanish), policies(), episodes=7)
    assert next(ticks) < MAX_SILENT_TICKS + 100
