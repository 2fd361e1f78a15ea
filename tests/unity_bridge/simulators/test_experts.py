"""Every bundled scene shows how it is done, and its expert earns what the scene says there is to earn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from unity_bridge.simulators.registry import SCENES, open_scene
from unity_bridge.simulators.scene import Demonstrator, choices
from unity_bridge.simulators.scenes import basic, gridworld, hallway, hybrid, pyramids
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

MEAN_RETURNS = {
    "3dball": (100.0, 1e-3),
    "basic": (basic.BEST_RETURN, 1e-5),
    "hybrid": (hybrid.BEST_RETURN, 1e-4),
    "gridworld": (gridworld.BEST_MEAN_RETURN, 0.003),
    "hallway": (hallway.BEST_RETURN, 1e-5),
    "pyramids": (pyramids.BEST_MEAN_RETURN, 0.001),
    "sorter": (
        3.91,
        0.005,
    ),  # four touches, one place to the first tile and 4/3 to each other one, in the mean
    "walljump": (0.927, 0.003),  # the best is 0.938: its expert brings the block all the way to the wall
}
"""And how far the mean of the episodes played here may be off."""


def returns_of(scene: Demonstrator, steps: int, seed: int) -> list[float]:
    """The returns of all complete episodes that the expert plays."""
    batches = scene.reset(seed)
    sums: dict[int, float] = {}
    ended: list[float] = []
    for _ in range(steps):
        batches = scene.step(scene.expert())
        for batch in batches.values():
            for row, agent in enumerate(batch.agent_ids.tolist()):
                sums[agent] = sums.get(agent, 0.0) + float(batch.rewards[row])
                if row < batch.num_terminal:
                    ended.append(sums.pop(agent))
    return ended


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", SCENES)
def test_experts_earn_the_best_return(name: str, seed: int) -> None:
    scene = open_scene(f"sim:{name}", agents=48)
    assert isinstance(scene, Demonstrator)
    returns = returns_of(scene, {"3dball": 1000}.get(name, 400), seed)
    best, tolerance = MEAN_RETURNS[name]
    assert len(returns) >= 48
    assert np.mean(returns) == pytest.approx(best, abs=tolerance)


@pytest.mark.parametrize("name", SCENES)
def test_experts_take_allowed_actions_for_waiting_rows(name: str) -> None:
    scene = open_scene(f"sim:{name}", agents=7)
    assert isinstance(scene, Demonstrator)
    batches = scene.reset(3)
    for _ in range(60):
        shown = scene.expert()
        assert set(shown) >= {
            behavior for behavior, steps in batches.items() if len(steps) > steps.num_terminal
        }
        for behavior, batch in shown.items():
            require_legal(scene.behaviors[behavior], batches[behavior], batch)
        batches = scene.step(shown)


def require_legal(spec: BehaviorSpec, steps: StepBatch, batch: ActionBatch) -> None:
    assert len(batch) == len(steps) - steps.num_terminal
    assert batch.continuous.dtype == np.float32
    assert batch.discrete.dtype == np.int32
    assert batch.continuous.shape[1] == spec.action_spec.continuous_size
    assert np.all(np.abs(batch.continuous) <= 1)
    offset = 0
    for branch, size in enumerate(spec.action_spec.discrete_branches):
        allowed = steps.allowed_actions[steps.num_terminal :, offset : offset + size]
        assert allowed[np.arange(len(batch)), batch.discrete[:, branch]].all()
        offset += size


@pytest.mark.parametrize("name", SCENES)
def test_a_seed_decides_everything_that_happens(name: str) -> None:
    def played(seed: int, steps: int = 80) -> list[list[Any]]:
        scene = open_scene(f"sim:{name}", agents=5)
        assert isinstance(scene, Demonstrator)
        batches = [scene.reset(seed), *(scene.step(scene.expert()) for _ in range(steps)), scene.reset()]
        return [
            [behavior, batch.rewards.tolist(), *(seen.tolist() for seen in batch.observations)]
            for each in batches
            for behavior, batch in sorted(each.items())
        ]

    first = played(4)
    assert first == played(4)
    # There is no chance in Basic.
    assert (first == played(5)) == (name == "basic")


@pytest.mark.parametrize("name", SCENES)
def test_asking_an_expert_changes_nothing(name: str) -> None:
    def played(*, asked: int) -> Mapping[str, StepBatch]:
        scene = open_scene(f"sim:{name}", agents=5)
        assert isinstance(scene, Demonstrator)
        scene.reset(4)
        for _ in range(30):
            for _ in range(asked):
                shown = scene.expert()
            batches = scene.step(shown)
        return batches

    once, often = played(asked=1), played(asked=3)
    assert set(once) == set(often)
    for behavior, steps in once.items():
        assert steps.rewards.tolist() == often[behavior].rewards.tolist()
        for seen, same in zip(steps.observations, often[behavior].observations, strict=True):
            np.testing.assert_array_equal(seen, same)


def test_choices_are_columns_of_branches() -> None:
    one, two = choices(np.array([2, 0])), choices(np.array([[1, 2], [0, 1]]))
    assert one.discrete.tolist() == [[2], [0]]
    assert two.discrete.tolist() == [[1, 2], [0, 1]]
    assert one.continuous.shape == two.continuous.shape == (2, 0)
