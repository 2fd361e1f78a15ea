"""PPO as a behavior uses it: random streams, schedules, strengths, and metrics."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from short_episodes import SENSOR, ShortEpisodes
from tiny_worlds import Bandit

from trainer_service.errors import UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.steps import StepBatch

AGENTS = 8


class Drift(ShortEpisodes):
    """Short episodes of a behavior's sensors, numbers, branches and masks."""

    def __init__(self, behavior: Behavior) -> None:
        super().__init__(behavior.spec.action_spec, AGENTS, behavior.spec.observation_specs[1:])

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        batch = super().rows(rewards, **ends)
        allowed = self.rng.random(batch.allowed_actions.shape) < 0.7
        allowed[:, np.cumsum([0, *self.actions.discrete_branches])[:-1]] = True
        return replace(batch, allowed_actions=allowed)


def hybrid(make_behavior, seed: int = 1, **hyperparameters: Any) -> Behavior:
    chosen = {"batch_size": 32, "buffer_size": 128, "learning_rate_schedule": "constant", **hyperparameters}
    behavior: Behavior = make_behavior(
        sizes=(SENSOR, 2), continuous=2, branches=(3, 2), seed=seed, hyperparameters=chosen, max_steps=1000
    )
    return behavior


def network(behavior: Behavior) -> dict[str, torch.Tensor]:
    weights = checkpoint_of(behavior).algorithm["network"]
    return {name: tensor.clone() for name, tensor in weights.items()}


def same(some: dict[str, torch.Tensor], others: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(tensor, others[name]) for name, tensor in some.items())


def statistics(behavior: Behavior) -> dict[str, float]:
    return {tag: series.value for tag, series in behavior.summarize(0.0).series.items()}


def update_metrics(behavior: Behavior, live) -> dict[str, float]:
    live(behavior, Drift(behavior), 1)
    return statistics(behavior)


def test_a_seed_decides_everything(make_behavior, live) -> None:
    results = []
    for seed in (4, 4, 5):
        behavior = hybrid(make_behavior, seed=seed)
        torch.rand(seed)  # whatever others draw
        live(behavior, Drift(behavior), updates=3)
        results.append(network(behavior))
    assert same(results[0], results[1])
    assert not same(results[0], results[2])


def test_recorded_log_probabilities_are_those_of_the_policy(make_behavior, live) -> None:
    # With hardly any learning the policy that learns is the one that acted: ratio 1, whatever the sensors,
    # masks and kinds of actions. A row, a mask or a density out of step would show.
    metrics = update_metrics(hybrid(make_behavior, learning_rate=1e-12), live)
    assert metrics["Policy/KL Divergence"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["Policy/Clip Fraction"] == 0.0


@pytest.mark.parametrize(
    ("schedule", "step", "expected"),
    [("linear", 500, (0.005, 0.2, 0.010005)), ("constant", 1000, (0.01, 0.3, 0.02))],
)
def test_schedules_run_over_max_steps(
    make_behavior, schedule: str, step: int, expected: tuple[float, float, float]
) -> None:
    rates = {"learning_rate": 0.01, "epsilon": 0.3, "beta": 0.02, "learning_rate_schedule": schedule}
    behavior = hybrid(make_behavior, **rates)
    world = Drift(behavior)
    observe(behavior, BehaviorTick(0, 0, world.begin()))
    while not behavior.ready_to_update():
        (actions,) = behavior.collector.act()
        observe(behavior, BehaviorTick(0, 0, world.step(actions)))
    behavior.step = step
    behavior.update()
    scalars = statistics(behavior)
    found = tuple(scalars[f"Policy/{name}"] for name in ("Learning Rate", "Epsilon", "Beta"))
    assert found == pytest.approx(expected)


def test_a_behavior_in_inference_records_and_changes_nothing(make_behavior) -> None:
    behavior = make_behavior(sizes=(SENSOR,), continuous=1, learns=False, max_steps=10)
    world, before = Drift(behavior), network(behavior)
    batch = world.begin()
    for _ in range(50):
        observe(behavior, BehaviorTick(0, 0, batch))
        assert not behavior.ready_to_update()
        batch = world.step(behavior.collector.act()[0])
    assert same(network(behavior), before)
    assert checkpoint_of(behavior).algorithm["collected"] is None


def test_a_policy_with_nan_is_named_and_marked(make_behavior, live) -> None:
    behavior = hybrid(make_behavior, learning_rate=1e30, max_grad_norm=None)
    with pytest.raises(
        UserError, match=r"behavior 'Probe' diverged at step \d+: .*The last checkpoint is good"
    ):
        live(behavior, Drift(behavior), updates=20)
    assert behavior.diverged


@pytest.mark.parametrize("pay", [-3.0, 0.5])
def test_the_critic_learns_a_return_that_never_varies(pay: float, make_behavior, live) -> None:
    behavior = make_behavior(
        hyperparameters={
            "batch_size": 32,
            "buffer_size": 128,
            "num_epoch": 8,
            "learning_rate": 3e-3,
            "learning_rate_schedule": "constant",
        },
        max_steps=100_000,
    )
    live(behavior, Bandit(1, lambda seen, actions: pay), 8)
    behavior.summarize(0.0)
    live(behavior, Bandit(1, lambda seen, actions: pay), 1)
    assert statistics(behavior)["Policy/Extrinsic Value Estimate"] == pytest.approx(pay, abs=0.2)
