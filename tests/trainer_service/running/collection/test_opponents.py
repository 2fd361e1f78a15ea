"""Behaviors that play against their own past: the steps that are learned from, and the policies that act."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from behaviors_of_simulators import BehaviorsOfSimulators

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.actor import Actor
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.behaviors.self_play import TurnScheduler
from trainer_service.running.collection.opponents import FixedOpponent, OpponentPolicies, Snapshot
from trainer_service.running.collection.records import BehaviorTick
from trainer_service.running.policy import Policy
from unity_bridge.server.bridge import Tick
from unity_bridge.side_channels import SideChannelRecord, expert_record
from unity_bridge.simulators.scene import choices, concatenate, step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

COPIES = 16
MEMBERS = 2
AGENTS = COPIES * MEMBERS
CHOICES = 3

Score = Callable[[Mapping[str, np.ndarray]], Mapping[str, np.ndarray]]
"""From what the agents of each id chose, [copies, members], to each id's result, [copies]."""


class OneThrow:
    """Games of one decision on many courts: the result comes as the reward of each court's group."""

    def __init__(self, score: Score, ids: tuple[str, ...]) -> None:
        self._score = score
        self._ids = ids

    def begin(self) -> dict[str, StepBatch]:
        return {each: self._batch(np.zeros(COPIES), over=False) for each in self._ids}

    def step(self, actions: Mapping[str, ActionBatch]) -> dict[str, StepBatch]:
        results = self._score(
            {each: batch.discrete.reshape(COPIES, MEMBERS) for each, batch in actions.items()}
        )
        begun = self.begin()
        return {each: concatenate(self._batch(results[each], over=True), begun[each]) for each in self._ids}

    def _batch(self, results: np.ndarray, *, over: bool) -> StepBatch:
        return step_batch(
            [np.ones((AGENTS, 1), np.float32)],
            np.zeros(AGENTS, np.float32),
            agent_ids=np.arange(AGENTS, dtype=np.int64),
            allowed_actions=np.ones((AGENTS, CHOICES), np.bool_),
            terminated=np.full(AGENTS, over),
            group_ids=np.repeat(np.arange(1, COPIES + 1), MEMBERS),
            group_rewards=np.repeat(results, MEMBERS).astype(np.float32),
        )


def higher_wins(chosen: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Scores of a game that the team with the larger numbers wins."""
    sums = {each: picks.sum(axis=1) for each, picks in chosen.items()}
    return {
        each: np.sign(own - np.mean([sums[other] for other in sums if other != each], axis=0))
        for each, own in sums.items()
    }


SPEC = BehaviorSpec((ObservationSpec("one", (1,)),), ActionSpec(0, (CHOICES,)))


def settings(**self_play: Any) -> TrainerSettings:
    rules = {"save_steps": 512, "team_change": 1024, "swap_steps": 256, "window": 4, **self_play}
    return settings_of(self_play=rules)


def settings_of(trainer_type: str = "ppo", **changes: Any) -> TrainerSettings:
    hyper: dict[str, Any] = {"batch_size": 128, "buffer_size": 256, "learning_rate": 0.01}
    if trainer_type == "ppo":
        hyper["learning_rate_schedule"] = "constant"
    if trainer_type in {"happo", "poca"}:
        hyper["group_size"] = 1
    given = {
        "trainer_type": trainer_type,
        "hyperparameters": hyper,
        "network_settings": {"hidden_units": 16, "num_layers": 1},
        "max_steps": 10**6,
        "time_horizon": 8,
        "self_play": {},
        **changes,
    }
    return TrainerSettings.model_validate(given)


def meet(*ids: str, chosen: TrainerSettings) -> BehaviorsOfSimulators:
    turn_scheduler = TurnScheduler()
    assert chosen.self_play is not None
    fixed = [FixedOpponent(name, None, 1200.0) for name in chosen.self_play.fixed_opponents]

    def create(name: str, spec: BehaviorSpec, group: int) -> Behavior:
        compute = Compute(torch.device("cpu"), 1)
        return Behavior(name, spec, chosen, compute, turn_scheduler=turn_scheduler, fixed_opponents=fixed)

    behaviors = BehaviorsOfSimulators(create)
    for each in ids:
        behaviors.connect(0, each, SPEC)
    return behaviors


def play(
    behaviors: BehaviorsOfSimulators, world: OneThrow, games: int, expert: int | None = None
) -> list[dict[str, ActionBatch]]:
    """Plays so many games on every court, as the loop does. Returns all actions.

    expert: what the world's own expert chooses, and says with every tick; None where there is none.
    """
    messages: tuple[SideChannelRecord, ...] = ()
    if expert is not None:
        shown = choices(np.full(AGENTS, expert))
        messages = (expert_record(dict.fromkeys(IDS, shown)),)
    steps, done = world.begin(), []
    for _ in range(games):
        behaviors.observe(Tick(0, {}, steps, messages))
        for behavior in behaviors.values():
            if behavior.ready_to_update():
                behavior.update()
        if behaviors.advance_turns():
            behaviors.drop(0)
            behaviors.observe(Tick(0, {}, steps := world.begin(), messages))
        actions = behaviors.act()[0]
        done.append(actions)
        steps = world.step(actions)
    return done


def favourites(actions: list[dict[str, ActionBatch]], each: str, last: int = 20) -> np.ndarray:
    """How often the agents of an id made each choice lately."""
    picks = np.concatenate([tick[each].discrete[:, 0] for tick in actions[-last:]])
    return np.bincount(picks, minlength=CHOICES) / len(picks)


IDS = ("Duel?team=0", "Duel?team=1")


@pytest.mark.probe
def test_a_team_that_beats_its_past_finds_the_best_move() -> None:
    behaviors = meet(*IDS, chosen=settings())
    actions = play(behaviors, OneThrow(higher_wins, IDS), games=150)
    duel = behaviors["Duel"]
    assert Policy(checkpoint_of(duel)).act(
        [np.ones((1, 1), np.float32)], agent_indices=[0]
    ).discrete.tolist() == [[2]]
    assert favourites(actions, IDS[0])[2] > 0.6


def test_only_who_learns_is_learned_from_and_counted() -> None:
    behaviors = meet(*IDS, chosen=settings(team_change=10**6))
    play(behaviors, OneThrow(higher_wins, IDS), games=11)
    duel = behaviors["Duel"]
    assert duel.self_play is not None
    assert duel.step == duel.self_play.ghost_steps == 10 * AGENTS
    stats = duel.summarize(1.0).stats
    assert stats.episodes == 10 * AGENTS
    assert len(stats.group_returns) == 10 * COPIES
    collected = checkpoint_of(duel).algorithm["collected"]
    assert collected["lengths"].sum() == 10 * AGENTS - 256


def test_a_snapshot_plays_with_weights_of_its_own() -> None:
    newest = meet(*IDS, chosen=settings())["Duel"].learner.actor
    changed = ({name: value + step for name, value in newest.weights().items()} for step in (1, 2))
    snapshots = [Snapshot(weights, 0, 1200.0) for weights in changed]
    against = SimpleNamespace(opponent=lambda team: snapshots[0])
    policies = OpponentPolicies(against, newest, Compute(torch.device("cpu"), 1), SPEC)
    steps = BehaviorTick(0, 1, OneThrow(higher_wins, IDS).begin()[IDS[1]])
    while snapshots:
        actor = policies.actor(steps)
        assert isinstance(actor, Actor)
        weights = actor.weights()
        assert all(torch.equal(weights[name], theirs) for name, theirs in snapshots[0].weights.items())
        del snapshots[0]


def test_opponents_keep_their_weights_while_the_learner_moves_on() -> None:
    # With one snapshot, taken at the start, team 1 goes on acting at random while team 0 learns what wins.
    frozen = settings(save_steps=10**6, team_change=10**6, play_against_latest_model_ratio=0.0)
    behaviors = meet(*IDS, chosen=frozen)
    actions = play(behaviors, OneThrow(higher_wins, IDS), games=120)
    assert favourites(actions, IDS[0])[2] > 0.8
    assert favourites(actions, IDS[1]) == pytest.approx(np.full(3, 1 / 3), abs=0.15)
    duel = behaviors["Duel"]
    assert duel.self_play is not None
    # It wins most of 1900 games; by luck alone 0.5 √1900 = 22 points would be one standard deviation.
    assert duel.self_play.rating > 1200 + 5 * 22


@pytest.mark.parametrize("trainer_type", ["ppo", "sac", "poca", "happo"])
def test_a_frozen_policy_decides_as_its_algorithm_did(trainer_type: str) -> None:
    network: dict[str, Any] = {"hidden_units": 8, "num_layers": 1, "normalize": True, "deterministic": True}
    network["memory"] = {"memory_size": 4, "sequence_length": 4}
    behaviors = meet(*IDS, chosen=settings_of(trainer_type, network_settings=network))
    rng = np.random.default_rng(4)
    for _ in range(6):
        seen = rng.normal(size=(5, 1)).astype(np.float32)
        batch = step_batch(
            [seen], np.zeros(5, np.float32), agent_ids=np.arange(5), allowed_actions=np.ones((5, 3), np.bool_)
        )
        behaviors.observe(Tick(0, {}, dict.fromkeys(IDS, batch)))
        behaviors.advance_turns()
        actions = behaviors.act()[0]
        # The opponent is the first snapshot, and nothing was learned since.
        np.testing.assert_array_equal(actions[IDS[0]].discrete, actions[IDS[1]].discrete)


SINGLE_RANK: dict[str, Any] = {"save_steps": 10**6, "team_change": 10**6, "swap_steps": 64}


def test_an_expert_plays_what_the_simulator_says() -> None:
    behaviors = meet(*IDS, chosen=settings(opponents=["expert"], **SINGLE_RANK))
    actions = play(behaviors, OneThrow(higher_wins, IDS), games=4, expert=1)
    assert favourites(actions, IDS[1]).tolist() == [0.0, 1.0, 0.0]
    with pytest.raises(UserError, match=r"does not say what an expert would do as 'Duel\?team=0'"):
        play(behaviors, OneThrow(higher_wins, IDS), games=1)
