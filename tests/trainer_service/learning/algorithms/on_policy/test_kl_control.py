"""The learning rate and the epochs of updates, decided by the KL divergence from the policy before the update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from every_trainer import SMALL, make_behavior, settings_of
from short_episodes import GROUP, ShortEpisodes

from trainer_service.config import TrainerSettings
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.fast_paths import SLOW
from unity_bridge.specs import ActionSpec

RATE = 1e-3
MIXED, CHOICES = ActionSpec(2, (3, 2)), ActionSpec(0, (3,))
KL, EPOCHS = "Policy/Exact KL Divergence", "Policy/Epochs"
trainer_types = pytest.mark.parametrize("trainer_type", ["ppo", "mappo", "happo", "poca", "coma"])


def make(
    trainer_type: str, *, seed: int = 1, memory: Any = None, max_steps: int = 10_000, **changes: Any
) -> Behavior:
    """A behavior whose rollouts are eight episodes of each agent."""
    given = settings_of(trainer_type, max_steps=max_steps)
    epochs = {"num_epoch": 1 if trainer_type == "coma" and "ratio_clip" not in changes else 3}
    group = {} if trainer_type == "ppo" else {"group_size": GROUP}
    given["hyperparameters"] |= {
        "batch_size": 40, "buffer_size": 96, "learning_rate": RATE, **epochs, **group, **changes,
    }  # fmt: skip
    given["network_settings"] = {**SMALL, "memory": memory}
    actions = CHOICES if trainer_type == "coma" else MIXED
    return make_behavior(TrainerSettings.model_validate(given), actions, seed=seed)


def world_of(behavior: Behavior) -> ShortEpisodes:
    return ShortEpisodes(behavior.spec.action_spec)


def statistics(behavior: Behavior) -> dict[str, float]:
    return {tag: series.value for tag, series in behavior.summarize(0.0).series.items()}


@pytest.fixture
def updated(live) -> Callable[..., tuple[Behavior, dict[str, float]]]:
    """A behavior after some updates, and its metrics."""

    def run(
        trainer_type: str = "ppo", *, updates: int = 1, **changes: Any
    ) -> tuple[Behavior, dict[str, float]]:
        behavior = make(trainer_type, **changes)
        live(behavior, world_of(behavior), updates)
        return behavior, statistics(behavior)

    return run


@pytest.fixture
def rate_after(updated) -> Callable[..., float]:
    """The learning rate after one update, or several, that adapt it."""

    def run(desired_kl: float | None, **changes: Any) -> float:
        behavior, _ = updated(learning_rate_schedule="adaptive", desired_kl=desired_kl, **changes)
        rate: float = behavior.learner.state_dict()["kl_control"]["learning_rate"]
        return rate

    return run


def actors(behavior: Behavior) -> dict[str, torch.Tensor]:
    networks = behavior.learner.networks
    return flat(networks["network" if "network" in networks else "actors"].state_dict())


def same(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, others[name]) for name, tensor in some.items())


@trainer_types
def test_each_epoch_raises_a_rate_that_moves_the_policy_too_little(rate_after, trainer_type: str) -> None:
    # In a group of two HAPPO has two actors, which learn in turn.
    epochs = {"coma": 1, "happo": 2 * 3}.get(trainer_type, 3)
    assert rate_after(1e3, trainer_type=trainer_type) == pytest.approx(min(RATE * 1.5**epochs, 1e-2))


@trainer_types
def test_each_epoch_lowers_a_rate_that_moves_the_policy_too_far(rate_after, trainer_type: str) -> None:
    epochs = {"coma": 1, "happo": 2 * 3}.get(trainer_type, 3)
    assert rate_after(1e-9, trainer_type=trainer_type) == pytest.approx(max(RATE / 1.5**epochs, 1e-5))


def test_the_rate_stays_between_half_of_the_desired_divergence_and_twice_of_it(updated, rate_after) -> None:
    divergence = updated(target_kl=1e3, num_epoch=1)[1][KL]
    rates = [rate_after(divergence / ratio, num_epoch=1) / RATE for ratio in (0.49, 0.51, 1.99, 2.01)]
    assert rates == pytest.approx([1.5, 1.0, 1.0, 1 / 1.5])


@pytest.mark.parametrize(("desired_kl", "limit"), [(1e3, 1e-2), (1e-12, 1e-5)])
def test_the_rate_stays_within_its_limits(rate_after, desired_kl: float, limit: float) -> None:
    assert rate_after(desired_kl, num_epoch=20) == limit


def test_the_adapted_rate_is_that_of_the_steps(updated) -> None:
    # Divided by 1.5 after each epoch, the policy moves less than at the rate it began with.
    divergences = [updated(**changes, num_epoch=6)[1][KL] for changes in (
        {"learning_rate_schedule": "adaptive", "desired_kl": 1e-9}, {"target_kl": 1e3}
    )]  # fmt: skip
    assert divergences[0] < 0.5 * divergences[1]


def test_epochs_end_above_one_and_a_half_times_the_target(updated) -> None:
    divergence = updated(target_kl=1e3, num_epoch=1)[1][KL]
    epochs = [updated(target_kl=divergence / ratio, num_epoch=2)[1][EPOCHS] for ratio in (1.49, 1.51)]
    assert epochs == [2.0, 1.0]


@pytest.mark.parametrize("trainer_type", ["ppo", "mappo", "happo"])
def test_an_update_that_is_ended_after_an_epoch_is_one_of_one_epoch(updated, trainer_type: str) -> None:
    (ended, metrics), (short, _), (whole, _) = (
        updated(trainer_type, **changes)
        for changes in ({"target_kl": 1e-9}, {"num_epoch": 1}, {"num_epoch": 3})
    )
    assert metrics[EPOCHS] == 1.0
    assert not same(actors(ended), actors(whole))
    if trainer_type != "happo":  # whose second actor meets other random minibatches
        assert same(actors(ended), actors(short))
    if trainer_type != "ppo":  # whose critic learns in the same steps
        steps = [one.learner.optimizers["critic_optimizer"].adam.steps for one in (ended, whole)]
        assert steps[0] == steps[1]


@pytest.mark.parametrize("trainer_type", ["ppo", "happo", "coma"])
def test_a_target_out_of_reach_changes_nothing(updated, trainer_type: str) -> None:
    schedules = {"learning_rate_schedule": "linear", "max_steps": 300}
    (measured, metrics), (plain, expected) = (
        updated(trainer_type, updates=2, **schedules, **changes) for changes in ({"target_kl": 1e6}, {})
    )
    state = flat(measured.learner.state_dict())
    del state["/kl_control/learning_rate"]
    assert_equal_states(state, flat(plain.learner.state_dict()))
    assert expected.items() <= metrics.items()


def test_decisions_do_not_depend_on_the_kernel(updated, monkeypatch: pytest.MonkeyPatch) -> None:
    decisions = []
    for slow in ("", "1"):
        monkeypatch.setenv(SLOW, slow)
        behavior, metrics = updated(
            learning_rate_schedule="adaptive", target_kl=0.02, num_epoch=6, learning_rate=5e-3, updates=3
        )
        decisions.append((behavior.learner.state_dict()["kl_control"]["learning_rate"], metrics[EPOCHS]))
    assert decisions[0] == decisions[1]
