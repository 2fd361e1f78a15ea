"""PPO with several reward signals: a value head for each, and sources that learn beside the policy."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, initialize, restore
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 8
IDS = np.arange(AGENTS, dtype=np.int64)
SMALL_NETWORK = {"hidden_units": 16, "num_layers": 1}
SIGNALS: dict[str, dict[str, Any]] = {
    "extrinsic": {},
    "curiosity": {"strength": 0.02, "network_settings": SMALL_NETWORK},
    "rnd": {"strength": 0.01, "gamma": 0.9, "network_settings": SMALL_NETWORK},
}
both = pytest.mark.parametrize("signal", ["curiosity", "rnd"])


class Toss:
    """A world of random observations that pays for numbers and choices; episodes of one decision end or are cut off."""

    def __init__(self, seed: int = 1, ends: str = "terminated", pays: float = 1.0) -> None:
        self.rng = np.random.default_rng(seed)
        self.ends = ends
        self.pays = pays

    def begin(self) -> StepBatch:
        return self.rows(np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = self.pays * (actions.continuous.sum(axis=1) + actions.discrete.sum(axis=1))
        return concatenate(self.rows(paid, **{self.ends: np.ones(AGENTS, np.bool_)}), self.begin())

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        seen = self.rng.normal(size=(AGENTS, 2)).astype(np.float32)
        allowed = np.ones((AGENTS, 3), np.bool_)
        return step_batch([seen], rewards.astype(np.float32), agent_ids=IDS, allowed_actions=allowed, **ends)


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


def leaves(content: Any, path: str = "") -> dict[str, Any]:
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        return {name: leaf for key, value in items for name, leaf in leaves(value, f"{path}/{key}").items()}
    return {path: content}


def state(behavior: Behavior) -> dict[str, Any]:
    return leaves(copy.deepcopy(dict(checkpoint_of(behavior).algorithm)))


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


def test_a_signal_may_stand_alone(make, live) -> None:
    metrics = metrics_of(make("rnd"), live)
    assert "Policy/Extrinsic Reward" not in metrics
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
    from trainer_service.learning.algorithms.on_policy import ppo

    estimate = ppo.ragged_generalized_advantage

    def spy(rewards: np.ndarray, values: np.ndarray, bootstrap: np.ndarray, *args: Any, **more: Any) -> Any:
        bootstraps.append(bootstrap.copy())
        return estimate(rewards, values, bootstrap, *args, **more)

    monkeypatch.setattr(ppo, "ragged_generalized_advantage", spy)
    live(behavior, Toss(ends=ends), 1)
    extrinsic, novelty = bootstraps[0].T
    assert bool(extrinsic.any()) == (ends == "truncated")
    assert novelty.all()


def test_a_behavior_with_reward_models_resumes_bit_for_bit(make, live, tmp_path) -> None:
    signals = ("extrinsic", "curiosity", "rnd")
    changes = {name: {"normalize_rewards": True} for name in ("extrinsic", "rnd")}
    straight = make(*signals, changes=changes)
    live(straight, Toss(), 3)
    save_checkpoint(checkpoint_of(straight), tmp_path / "checkpoint.safetensors")
    resumed = make(*signals, seed=99, changes=changes)
    restore(resumed, load_checkpoint(tmp_path / "checkpoint.safetensors"))
    for behavior in (straight, resumed):
        behavior.collector.drop(0)
        live(behavior, Toss(seed=5), 2)
    ours, theirs = state(straight), state(resumed)
    assert ours.keys() == theirs.keys()
    assert [name for name, value in ours.items() if not equal(value, theirs[name])] == []


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


def test_a_run_of_other_signals_cannot_be_resumed(make) -> None:
    with pytest.raises(UserError, match="its reward signals are extrinsic, rnd, not rnd, extrinsic"):
        restore(make("rnd", "extrinsic"), checkpoint_of(make("extrinsic", "rnd")))


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
    taken, known = leaves(ours["rewards"]["curiosity"]["network"]), theirs["rewards"]["curiosity"]["network"]
    assert all(equal(value, leaves(known)[name]) for name, value in taken.items())
    untouched = leaves(before["rewards"]["rnd"])
    assert all(equal(value, untouched[name]) for name, value in leaves(ours["rewards"]["rnd"]).items())
