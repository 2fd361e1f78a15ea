"""Save, load, continue equals never having stopped."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from behavior_worlds import OneDecision, begin_world, run_ticks, state

from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, initialize, restore

AGENTS = 8
TICKS_OF_A_ROLLOUT = 16


@pytest.fixture
def walker(make_behavior):
    """A behavior that is equal each time but for its seed."""

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


def test_a_resumed_summary_comes_at_the_step_it_would_have(walker) -> None:
    behavior, other = walker(summary_freq=100), walker(summary_freq=100)
    behavior.step = 250
    restore(other, checkpoint_of(behavior))
    assert not other.summary_due()
    other.step = 299
    assert not other.summary_due()
    other.step = 304
    assert other.summary_due()
    assert other.summarize(0.0).step == 300
    assert not other.summary_due()


def test_another_runs_weights_are_a_new_start(walker) -> None:
    trained = walker()
    run_ticks(trained, *begin_world(trained, OneDecision(AGENTS)), 3 * TICKS_OF_A_ROLLOUT + 5)
    fresh = walker(seed=99)
    before = state(fresh)
    initialize(fresh, checkpoint_of(trained))
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
        ({"hyperparameters": {"shared_critic": True}}, "does not fit the configured networks"),
        (
            {"trainer_type": "sac", "hyperparameters": {}},
            "behavior 'Probe': the checkpoint is of trainer type 'ppo', the configuration says 'sac'",
        ),
    ],
    ids=["units", "normalizer", "shared-critic", "trainer-type"],
)
def test_a_checkpoint_of_other_settings_is_refused(walker, changes: dict[str, Any], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        restore(walker(**changes), checkpoint_of(walker()))


def test_weights_of_another_activation_are_refused_though_they_fit(walker) -> None:
    expected = "does not fit the configured networks: network_settings.activation was swish, now relu"
    for begin in (restore, initialize):
        network = {"hidden_units": 8, "num_layers": 1, "normalize": True, "activation": "relu"}
        other = walker(network_settings=network)
        with pytest.raises(UserError, match=expected):
            begin(other, checkpoint_of(walker()))
        begin(other, checkpoint_of(other))


def test_a_checkpoint_of_another_body_is_refused(walker, make_behavior) -> None:
    with pytest.raises(UserError, match="is not what its checkpoint was trained for: actions were"):
        restore(make_behavior(sizes=(2,), continuous=2), checkpoint_of(walker()))
