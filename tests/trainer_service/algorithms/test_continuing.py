"""Save, load, continue equals never having stopped."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from trainer_service.behavior import Behavior, TeamSteps
from trainer_service.checkpoint import load_checkpoint, save_checkpoint
from trainer_service.errors import UserError
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 8
TICKS_OF_A_ROLLOUT = 16


class OneDecision:
    """Episodes of one decision, paid by what was seen and done: nothing is unfinished between two ticks."""

    def __init__(self) -> None:
        self.rng = np.random.default_rng(1)

    def begin(self) -> StepBatch:
        self.seen = (3.0 * self.rng.normal(size=(AGENTS, 2))).astype(np.float32)
        return self.rows(np.zeros(AGENTS, np.float32))

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = self.seen[:, 0] * actions.continuous[:, 0] + actions.discrete[:, 0]
        return concatenate(self.rows(paid, terminated=np.ones(AGENTS, np.bool_)), self.begin())

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        allowed = np.ones((AGENTS, 3), np.bool_)
        allowed[:, 2] = self.seen[:, 1] > 0
        ids = np.arange(AGENTS, dtype=np.int64)
        return step_batch(
            [self.seen], rewards.astype(np.float32), agent_ids=ids, allowed_actions=allowed, **ends
        )


@pytest.fixture
def walker(make_behavior):
    """The same behavior each time; only its seed may differ."""

    def make(seed: int = 1, **changes: Any) -> Behavior:
        settings = {
            "hyperparameters": {"batch_size": 32, "buffer_size": AGENTS * TICKS_OF_A_ROLLOUT},
            "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
            "max_steps": 10_000,
            **changes,
        }
        made: Behavior = make_behavior(sizes=(2,), continuous=1, branches=(3,), seed=seed, **settings)
        return made

    return make


def live(behavior: Behavior, world: OneDecision, batch: StepBatch, ticks: int) -> StepBatch:
    """Lives through so many ticks, and learns whenever it can. Returns the tick that waits for an answer."""
    for _ in range(ticks):
        batch = world.step(behavior.act()[0])
        behavior.observe(TeamSteps(0, 0, batch))
        if behavior.ready_to_update():
            behavior.update()
    return batch


def state(behavior: Behavior) -> dict[str, Any]:
    return flat(copy.deepcopy(dict(behavior.checkpoint().algorithm)))


def flat(content: Any, path: str = "") -> dict[str, Any]:
    """Every leaf of nested dicts and lists, by its path."""
    if isinstance(content, dict | list):
        items = content.items() if isinstance(content, dict) else enumerate(content)
        return {name: leaf for key, value in items for name, leaf in flat(value, f"{path}/{key}").items()}
    return {path: content}


def assert_same(some: dict[str, Any], others: dict[str, Any]) -> None:
    assert some.keys() == others.keys()
    for name, value in some.items():
        equal = torch.equal(value, others[name]) if isinstance(value, torch.Tensor) else value == others[name]
        assert equal, f"{name} differs"


@pytest.mark.parametrize(
    "ticks", [3 * TICKS_OF_A_ROLLOUT, 3 * TICKS_OF_A_ROLLOUT + 5], ids=["drained", "amid"]
)
def test_a_behavior_goes_on_from_its_checkpoint_bit_for_bit(walker, tmp_path: Path, ticks: int) -> None:
    straight, world = walker(), OneDecision()
    first = world.begin()
    straight.observe(TeamSteps(0, 0, first))
    batch = live(straight, world, first, ticks)

    save_checkpoint(straight.checkpoint(), tmp_path / "checkpoint.pt")
    resumed, its_world = walker(seed=99), copy.deepcopy(world)
    resumed.restore(load_checkpoint(tmp_path / "checkpoint.pt"))
    resumed.observe(TeamSteps(0, 0, its_world.rows(np.zeros(AGENTS))))
    assert resumed.step == straight.step == ticks * AGENTS
    assert_same(state(resumed), state(straight))

    live(straight, world, batch, 40)
    live(resumed, its_world, batch, 40)
    assert resumed.step == straight.step
    assert_same(state(resumed), state(straight))


def test_a_summary_comes_where_it_would_have_come(walker) -> None:
    behavior, other = walker(summary_freq=100), walker(summary_freq=100)
    behavior.step = 250
    other.restore(behavior.checkpoint())
    assert not other.summary_due()
    other.step = 299
    assert not other.summary_due()
    other.step = 304
    assert other.summary_due()
    assert other.summarize(0.0).step == 300
    assert not other.summary_due()


def test_another_runs_weights_are_a_new_start(walker) -> None:
    trained, world = walker(), OneDecision()
    first = world.begin()
    trained.observe(TeamSteps(0, 0, first))
    live(trained, world, first, 3 * TICKS_OF_A_ROLLOUT + 5)
    fresh = walker(seed=99)
    before = state(fresh)
    fresh.initialize(trained.checkpoint())
    assert fresh.step == 0
    after, theirs = state(fresh), state(trained)
    for name, value in after.items():
        part = name.split("/")[1]
        expected = theirs if part in {"network", "normalizer"} else before
        same = (
            torch.equal(value, expected[name]) if isinstance(value, torch.Tensor) else value == expected[name]
        )
        assert same, name


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"network_settings": {"hidden_units": 16}}, "does not fit the configured networks"),
        ({"network_settings": {"hidden_units": 8, "num_layers": 1}}, "does not fit the configured networks"),
        (
            {"hyperparameters": {"shared_critic": True}},
            "does not fit the configured networks",
        ),
    ],
    ids=["units", "normalizer", "shared-critic"],
)
def test_a_checkpoint_of_other_settings_is_refused(walker, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        walker(**changes).restore(walker().checkpoint())


def test_a_checkpoint_of_another_body_is_refused(walker, make_behavior) -> None:
    with pytest.raises(UserError, match="is not what its checkpoint was trained for: actions were"):
        make_behavior(sizes=(2,), continuous=2).restore(walker().checkpoint())
