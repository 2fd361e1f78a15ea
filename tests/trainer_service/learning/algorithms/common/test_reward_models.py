"""PPO with several reward signals: a value head for each, and sources that learn beside the policy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import OneDecision, assert_equal_states, flat, state

from trainer_service.learning.algorithms.on_policy import ppo
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, initialize, restore
from unity_bridge.steps import StepBatch

AGENTS = 8
SMALL_NETWORK = {"hidden_units": 16, "num_layers": 1}
SIGNALS: dict[str, dict[str, Any]] = {
    "extrinsic": {},
    "curiosity": {"strength": 0.02, "network_settings": SMALL_NETWORK},
    "rnd": {"strength": 0.01, "gamma": 0.9, "network_settings": SMALL_NETWORK},
}
both = pytest.mark.parametrize("signal", ["curiosity", "rnd"])


class Toss(OneDecision):
    """Episodes of one decision that end or are cut off, and pay so many times as much."""

    def __init__(self, ends: str = "terminated", pays: float = 1.0) -> None:
        super().__init__(AGENTS)
        self.ends, self.pays = ends, pays

    def rows(self, rewards: np.ndarray, **ends: np.ndarray) -> StepBatch:
        return super().rows(self.pays * rewards, **({self.ends: ends["terminated"]} if ends else {}))


@pytest.fixture
def make(make_behavior):
    """A hybrid behavior with these reward signals."""

    def build(*signals: str, seed: int = 1, changes: dict[str, Any] | None = None) -> Behavior:
        chosen = {name: {**SIGNALS[name], **(changes or {}).get(name, {})} for name in signals}
        made: Behavior = make_behavior(
            sizes=(2,),
            continuous=1,
            branches=(3,),
            seed=seed,
            hyperparameters={"batch_size": 32, "buffer_size": 128},
            network_settings=SMALL_NETWORK,
            reward_signals=chosen,
            max_steps=10_000,
        )
        return made

    return build


def metrics_of(behavior: Behavior, live, updates: int = 2, **world: Any) -> dict[str, float]:
    live(behavior, Toss(**world), updates)
    return {tag: series.value for tag, series in behavior.summarize(0.0).series.items()}


def equal(some: Any, other: Any) -> bool:
    return torch.equal(some, other) if isinstance(some, torch.Tensor) else bool(some == other)


def test_every_signal_reports_under_ml_agents_tags(make, live) -> None:
    metrics = metrics_of(make("extrinsic", "curiosity", "rnd"), live)
    for name in ("Extrinsic", "Curiosity", "Rnd"):
        assert f"Policy/{name} Reward" in metrics
        assert f"Policy/{name} Value Estimate" in metrics
    for name in ("Curiosity Forward Loss", "Curiosity Inverse Loss", "RND Loss"):
        assert metrics[f"Losses/{name}"] > 0.0
    assert metrics["Policy/Curiosity Reward"] > 0.0
    assert metrics["Policy/Rnd Reward"] > 0.0


def test_sources_learn_as_often_as_the_policy(make, live) -> None:
    behavior = make("extrinsic", "curiosity")
    live(behavior, Toss(), 1)
    saved = checkpoint_of(behavior).algorithm
    # 128 steps in minibatches of 32, three times.
    assert saved["optimizer"]["steps"] == saved["rewards"]["curiosity"]["optimizer"]["steps"] == 12


@both
def test_the_policy_gets_no_gradient_from_a_source(make, live, signal: str) -> None:
    # Without strength it pays nothing. However it learns, the policy becomes the same, bit for bit.
    learned = []
    for learning_rate in (1e-6, 1e-2):
        behavior = make(
            "extrinsic", signal, changes={signal: {"strength": 0.0, "learning_rate": learning_rate}}
        )
        live(behavior, Toss(), 3)
        learned.append(state(behavior))
    different = {name for name, value in learned[0].items() if not equal(value, learned[1][name])}
    assert different
    assert all(name.startswith("/rewards/") for name in different)


@both
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_novelty_is_bootstrapped_past_the_end_of_an_episode(
    make, live, monkeypatch: pytest.MonkeyPatch, signal: str, ends: str
) -> None:
    behavior = make("extrinsic", signal)
    bootstraps: list[np.ndarray] = []
    estimate = ppo.ragged_generalized_advantage

    def spy(rewards: np.ndarray, values: np.ndarray, bootstrap: np.ndarray, *args: Any, **more: Any) -> Any:
        bootstraps.append(bootstrap.copy())
        return estimate(rewards, values, bootstrap, *args, **more)

    monkeypatch.setattr(ppo, "ragged_generalized_advantage", spy)
    live(behavior, Toss(ends=ends), 1)
    extrinsic, novelty = bootstraps[0].T
    assert bool(extrinsic.any()) == (ends == "truncated")
    assert novelty.all()


def test_normalized_rewards_may_be_in_any_unit(make, live) -> None:
    # A factor that is a power of two changes no digit, so what is learned is equal bit for bit; returns are reported
    # in the task's unit.
    learned, returns = [], []
    for pays in (1.0, 1024.0):
        behavior = make("extrinsic", changes={"extrinsic": {"normalize_rewards": True}})
        live(behavior, Toss(pays=pays), 3)
        learned.append(state(behavior))
        returns.append(behavior.summarize(0.0).stats.mean_return)
    different = {name for name, value in learned[0].items() if not equal(value, learned[1][name])}
    assert different == {"/rewards/extrinsic/scale/1"}
    assert returns[1] == pytest.approx(1024 * returns[0], rel=1e-6)


def test_a_resumed_run_has_the_models_of_its_signals(make, live) -> None:
    trained, resumed = make("extrinsic", "curiosity", "rnd"), make("extrinsic", "curiosity", "rnd", seed=99)
    live(trained, Toss(), 2)
    restore(resumed, checkpoint_of(trained))
    ours, theirs = (checkpoint_of(each).algorithm["rewards"] for each in (resumed, trained))
    assert_equal_states(flat(ours), flat(theirs))


def test_a_new_run_takes_the_weights_of_known_signals(make, live) -> None:
    trained = make("curiosity", "extrinsic")
    live(trained, Toss(), 2)
    theirs = checkpoint_of(trained).algorithm
    fresh = make("extrinsic", "rnd", "curiosity", seed=99)
    before = copy.deepcopy(dict(checkpoint_of(fresh).algorithm))
    initialize(fresh, checkpoint_of(trained))
    ours = checkpoint_of(fresh).algorithm
    heads, their_heads = ours["network"]["value.weight"], theirs["network"]["value.weight"]
    assert torch.equal(heads[0], their_heads[1])
    assert torch.equal(heads[1], before["network"]["value.weight"][1])
    assert torch.equal(heads[2], their_heads[0])
    for mine, known in (
        (ours["rewards"]["curiosity"]["network"], theirs["rewards"]["curiosity"]["network"]),
        (ours["rewards"]["rnd"], before["rewards"]["rnd"]),
    ):
        assert_equal_states(flat(mine), flat(known))
