"""Networks on another device than the CPU, for every trainer type: updates mix nothing, and checkpoints move."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import begin_world, observe, run_ticks, state
from every_trainer import actions_of, make_behavior, settings_for
from replay_files import save_replay_file
from seeds import quick_where
from short_episodes import DECISIONS, ShortEpisodes
from simulated_device import DEVICE, SimulatedDevice, on_cpu

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms.common.learner import Metrics
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, load_replay, restore
from trainer_service.running.collection.records import BehaviorTick
from trainer_service.running.runs.checkpoint import load_checkpoint, save_checkpoint
from unity_bridge.specs import ActionSpec

QUICK = ("ppo", "coma", "sac", "idqn")
STRETCH = 12 * DECISIONS
"""Ticks after which nothing is unfinished: whole episodes, and whole rollouts."""


def lived(settings: TrainerSettings, actions: ActionSpec, device: str) -> Behavior:
    """A behavior that has learned for some ticks with its networks on a device."""
    behavior = make_behavior(settings, actions, seed=1, device=device)
    run_ticks(behavior, *begin_world(behavior, ShortEpisodes(actions)), STRETCH)
    return behavior


def assert_close(found: dict[str, Any], expected: dict[str, Any]) -> None:
    """Asserts that states are equal, but for rounding, the device and how gradients are computed there."""
    expected.pop("/gradients", None)
    found.pop("/gradients", None)
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        if isinstance(value, torch.Tensor):
            torch.testing.assert_close(
                on_cpu(found[name]),
                value,
                rtol=1e-4,
                atol=1e-5,
                msg=lambda said, name=name: f"{name}: {said}",
            )
        else:
            assert found[name] == (pytest.approx(value, rel=1e-4) if isinstance(value, float) else value), (
                name
            )


@pytest.mark.probe
@pytest.mark.parametrize(
    ("trainer_type", "remembers"),
    [
        quick_where(name in QUICK and not remembers, name, remembers)
        for name, hyper in HYPERPARAMETERS.items()
        for remembers in (False, *([True] if hyper.supports_memory else []))
    ],
)
def test_updates_on_another_device_give_the_numbers_of_the_cpu(trainer_type: str, remembers: bool) -> None:
    settings = settings_for(trainer_type, "lstm" if remembers else None, remembers)
    actions = actions_of(settings)
    expected = state(lived(settings, actions, "cpu"))
    with SimulatedDevice():  # refuses what mixes devices
        behavior = lived(settings, actions, str(DEVICE))
        found = state(behavior)
    assert (behavior.updates > 0) == settings.hyperparameters.learns
    assert_close(found, expected)


def waits_of_an_update(settings: TrainerSettings) -> int:
    """How often the last update waits for a number of the device."""
    actions, waits = actions_of(settings), [0]
    with SimulatedDevice() as simulated:
        behavior = make_behavior(settings, actions, seed=1, device=str(DEVICE))
        update = behavior.learner.update

        def counted(step: int) -> Metrics:
            before = simulated.waits.total()
            metrics = update(step)
            waits.append(simulated.waits.total() - before)
            return metrics

        behavior.learner.update = counted  # type: ignore[method-assign]
        run_ticks(behavior, *begin_world(behavior, ShortEpisodes(actions)), STRETCH)
    return waits[-1]


@pytest.mark.probe
@pytest.mark.parametrize(
    ("trainer_type", "key", "few", "many", "memory"),
    [
        ("ppo", "batch_size", 24, 12, None),
        ("dqn", "steps_per_update", 8, 4, "lstm"),
        quick_where(False, "ppo", "batch_size", 24, 12, "lstm"),
        quick_where(False, "sac", "steps_per_update", 8, 4, "lstm"),
    ],
)
def test_more_gradient_steps_do_not_wait_for_the_device_more_often(
    trainer_type: str, key: str, few: float, many: float, memory: str | None
) -> None:
    settings = settings_for(trainer_type, memory, curious=False)
    waits = [
        waits_of_an_update(
            settings.model_copy(
                update={"hyperparameters": settings.hyperparameters.model_copy(update={key: value})}
            )
        )
        for value in (few, many)
    ]
    assert waits[0] == waits[1]


@pytest.mark.probe
@pytest.mark.filterwarnings(
    "ignore:.*copying from a non-meta parameter"
)  # torch knows no meta that holds numbers
@pytest.mark.parametrize("trainer_type", [quick_where(name in QUICK, name) for name in HYPERPARAMETERS])
def test_a_checkpoint_moves_to_another_device_and_back(trainer_type: str, tmp_path: Path) -> None:
    settings = settings_for(trainer_type, None, curious=False)
    actions = actions_of(settings)
    straight = make_behavior(settings, actions, seed=1)
    world = ShortEpisodes(actions)
    batch = run_ticks(straight, *begin_world(straight, world), STRETCH)
    for _ in range(2):
        batch = run_ticks(straight, world, batch, STRETCH)

    world, path = ShortEpisodes(actions), tmp_path / "checkpoint.safetensors"
    moved = make_behavior(settings, actions, seed=1)
    run_ticks(moved, *begin_world(moved, world), STRETCH)
    with SimulatedDevice():
        for device in (str(DEVICE), "cpu"):
            save_checkpoint(checkpoint_of(moved), path)
            experience = moved.learner.replay_state()
            moved = make_behavior(settings, actions, seed=99, device=device)
            restore(moved, load_checkpoint(path))
            if experience is not None:
                save_replay_file(experience, tmp_path / "replay.npz")
                load_replay(moved, tmp_path / "replay.npz")
            batch = world.rows(np.zeros(world.agents))
            observe(moved, BehaviorTick(0, 0, batch))
            run_ticks(moved, world, batch, STRETCH)
    assert moved.step == straight.step
    assert_close(state(moved), state(straight))
