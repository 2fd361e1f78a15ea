"""Properties of every bundled scene: specs, seeds, resets, experts, pictures."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from unity_bridge.simulators.group_scenes.registry import GROUP_SCENES
from unity_bridge.simulators.registry import SCENES, open_scene
from unity_bridge.simulators.scene import Demonstrator, Scene, Steps
from unity_bridge.simulators.scenes import basic, gridworld, hallway, hybrid, pyramids
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in (*SCENES, *GROUP_SCENES)),
    ("spread", {"agents_per_copy": 5, "steps": 7, "continuous": True}),
    ("switch3", {"clock": True, "steps": 40}),
    ("pushblock", {"agents_per_copy": 7, "respawn": 3, "steps": 25}),
    ("duel", {"agents_per_copy": 3, "continuous": True, "steps": 25}),
]
every_variant = pytest.mark.parametrize(("name", "options"), VARIANTS)
every_group_scene = pytest.mark.parametrize(("name", "options"), VARIANTS[len(SCENES) :])

MEAN_RETURNS = {
    "3dball": (100.0, 1e-3),
    "basic": (basic.BEST_RETURN, 1e-5),
    "hybrid": (hybrid.BEST_RETURN, 1e-4),
    "gridworld": (gridworld.BEST_MEAN_RETURN, 0.003),
    "hallway": (hallway.BEST_RETURN, 1e-5),
    "pyramids": (pyramids.BEST_MEAN_RETURN, 0.001),
    # Four touches, one place to the first tile and 4/3 to each other one, in the mean.
    "sorter": (3.91, 0.005),
    "walljump": (0.927, 0.003),  # the best is 0.938: its expert brings the block all the way to the wall
}
"""And how far the mean of the episodes played here may be off."""


PLAYED = [
    (156.9, 0.0, 21, 10092.23),
    (63.2, 0.0, 83, 1883.0),
    (24.6, 0.0, 22, 2100.72),
    (71.0, 0.0, 155, 1510393215.0),
    (21.3, 0.0, 58, 10131.9),
    (14.2, 0.0, 12, 19745.0),
    (141.0, 0.0, 171, 16921.1),
    (19.0, 0.0, 31, 5650.09),
    (-3509.905, 0.0, 216, 45435.59),
    (0.0, 0.0, 98, 18813.82),
    (0.0, 279.0, 354, 12318.8),
    (0.0, 0.11, 60, 43576.17),
    (-335.2, 0.0, 72, 3317.46),
    (-487.0, 0.0, 108, 4803.48),
    (-712.2, 0.0, 144, 7683.97),
    (-10487.238, 0.0, 1260, 142881.36),
    (-489.6, 0.0, 126, 7484.54),
    (0.0, 36.99, 422, 127041.33),
    (0.0, 0.0, 486, 105497.09),
]
"""Sums of the rewards, the group rewards, the ends and the observations' absolute values, of each variant."""


def open_(name: str, options: Mapping[str, Any], copies: int = 6) -> Demonstrator:
    if name in SCENES:
        scene = open_scene(f"sim:{name}", agents=copies)
    else:
        scene = open_scene(f"sim:{name}", options={"copies": copies, **options})
    assert isinstance(scene, Demonstrator)
    return scene


def random_actions(scene: Scene, steps: Steps, rng: np.random.Generator) -> dict[str, ActionBatch]:
    """An allowed choice at random for every row that waits."""
    return {
        behavior: draw(
            scene.behaviors[behavior].action_spec, batch.allowed_actions[batch.num_terminal :], rng
        )
        for behavior, batch in steps.items()
    }


def draw(spec: ActionSpec, allowed: NDArray[np.bool_], rng: np.random.Generator) -> ActionBatch:
    numbers = rng.uniform(-1, 1, (len(allowed), spec.continuous_size)).astype(np.float32)
    choices, offset = np.zeros((len(allowed), spec.discrete_size), np.int32), 0
    for branch, size in enumerate(spec.discrete_branches):
        odds = rng.random((len(allowed), size)) * allowed[:, offset : offset + size]
        choices[:, branch] = odds.argmax(axis=1)
        offset += size
    return ActionBatch(numbers, choices)


def digest(steps: Steps) -> list[Any]:
    """What can be compared; -0.0 is 0.0."""
    return [
        (
            behavior,
            *((column + 0).tobytes() for column in (batch.agent_ids, batch.rewards, *batch.observations)),
        )
        for behavior, batch in sorted(steps.items())
    ]


@every_variant
def test_a_scene_describes_what_its_rows_hold(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    steps = scene.reset(0)
    assert set(steps) == set(scene.behaviors)
    for behavior, spec in scene.behaviors.items():
        batch, sensors = steps[behavior], spec.observation_specs
        assert [seen.shape[1:] for seen in batch.observations] == [each.shape for each in sensors]
        assert {seen.dtype for seen in batch.observations} <= {np.dtype(np.float32), np.dtype(np.uint8)}
        assert sorted(sensors, key=lambda sensor: sensor.name) == list(sensors)
        assert batch.allowed_actions.shape[1] == spec.action_spec.mask_size
        assert batch.rewards.dtype == batch.group_rewards.dtype == np.float32


@every_variant
def test_a_seed_makes_everything_reproducible(name: str, options: dict[str, Any]) -> None:
    def story(seed: int) -> list[Any]:
        scene = open_(name, options)
        received = [digest(scene.reset(seed))]
        received += [digest(scene.step(scene.expert())) for _ in range(60)]
        return [*received, digest(scene.reset())]

    first = story(4)
    assert first == story(4)
    # There is no chance in Basic and Switch.
    assert (story(5) == first) == name.startswith(("basic", "switch"))


@every_variant
def test_a_reset_in_mid_episode_begins_anew_and_ends_nothing(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    scene.reset(0)
    for _ in range(2):
        scene.step(scene.expert())
    again = scene.reset(3)
    assert digest(again) == digest(open_(name, options).reset(3))
    assert not any(batch.num_terminal for batch in again.values())


@every_variant
def test_experts_take_allowed_actions_and_asking_changes_nothing(name: str, options: dict[str, Any]) -> None:
    scene, twin = open_(name, options), open_(name, options)
    steps, same = scene.reset(1), twin.reset(1)
    for _ in range(60):
        shown = [scene.expert() for _ in range(3)][-1]
        assert set(shown) >= {each for each, batch in steps.items() if len(batch) > batch.num_terminal}
        for behavior, batch in shown.items():
            require_legal(scene.behaviors[behavior], steps[behavior], batch)
        steps, same = scene.step(shown), twin.step(twin.expert())
        assert digest(steps) == digest(same)


def require_legal(spec: BehaviorSpec, steps: StepBatch, batch: ActionBatch) -> None:
    assert len(batch) == len(steps) - steps.num_terminal
    assert (batch.continuous.dtype, batch.discrete.dtype) == (np.float32, np.int32)
    assert batch.continuous.shape[1] == spec.action_spec.continuous_size
    assert np.all(np.abs(batch.continuous) <= 1)
    offset = 0
    for branch, size in enumerate(spec.action_spec.discrete_branches):
        allowed = steps.allowed_actions[steps.num_terminal :, offset : offset + size]
        assert allowed[np.arange(len(batch)), batch.discrete[:, branch]].all()
        offset += size


@every_variant
def test_pictures_have_one_size_and_change(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options, copies=9)
    rng, pictures = np.random.default_rng(0), []
    steps = scene.reset(0)
    for _ in range(6):
        pictures.append(scene.render())
        steps = scene.step(random_actions(scene, steps, rng))
    assert {picture.dtype for picture in pictures} == {np.dtype(np.uint8)}
    assert len({picture.shape for picture in pictures}) == 1
    assert not np.array_equal(pictures[0], pictures[-1])


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [(*variant, sums) for variant, sums in zip(VARIANTS, PLAYED, strict=True)],
)
def test_a_game_has_the_numbers_that_it_always_had(
    name: str, options: dict[str, Any], expected: tuple[float, float, int, float]
) -> None:
    """Every third step is the expert's. A scene that is changed makes recorded scores and policies worthless."""
    scene, rng, sums = open_(name, options), np.random.default_rng(0), np.zeros(4)
    steps = scene.reset(0)
    for number in range(300):
        steps = scene.step(random_actions(scene, steps, rng) if number % 3 else scene.expert())
        for batch in steps.values():
            seen = sum(float(np.abs(each.astype(np.float64)).sum()) for each in batch.observations)
            sums += (
                batch.rewards.sum(dtype=float),
                batch.group_rewards.sum(dtype=float),
                batch.num_terminal,
                seen,
            )
    np.testing.assert_allclose(sums, expected, rtol=1e-3, atol=5e-3)


def returns_of(scene: Demonstrator, steps: int) -> list[float]:
    """The returns of all complete episodes that the expert plays."""
    scene.reset(0)
    sums: dict[int, float] = {}
    ended: list[float] = []
    for _ in range(steps):
        for batch in scene.step(scene.expert()).values():
            for row, agent in enumerate(batch.agent_ids.tolist()):
                sums[agent] = sums.get(agent, 0.0) + float(batch.rewards[row])
                if row < batch.num_terminal:
                    ended.append(sums.pop(agent))
    return ended


@pytest.mark.parametrize("name", SCENES)
def test_experts_earn_the_best_return(name: str) -> None:
    returns = returns_of(open_(name, {}, copies=48), {"3dball": 1000}.get(name, 400))
    best, tolerance = MEAN_RETURNS[name]
    assert len(returns) >= 48
    assert np.mean(returns) == pytest.approx(best, abs=tolerance)


def games(scene: Scene, steps: int, seed: int = 0) -> Iterator[Steps]:
    rng = np.random.default_rng(seed)
    batches = scene.reset(seed)
    yield batches
    for _ in range(steps):
        batches = scene.step(random_actions(scene, batches, rng))
        yield batches


def members(batch: StepBatch, rows: slice) -> dict[int, list[int]]:
    """The agents of each group in some rows."""
    found: dict[int, list[int]] = defaultdict(list)
    for group, agent in zip(batch.group_ids[rows].tolist(), batch.agent_ids[rows].tolist(), strict=True):
        found[group].append(agent)
    return found


@every_group_scene
def test_ids_of_agents_and_groups_never_change(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    groups: dict[int, int] = {}
    for steps in games(scene, 500):
        for batch in steps.values():
            for agent, group in zip(batch.agent_ids.tolist(), batch.group_ids.tolist(), strict=True):
                assert groups.setdefault(agent, group) == group
                assert group >= 1
    per_copy = len(set(groups)) // 6
    assert sorted(groups) == list(range(6 * per_copy))
    sides = 2 if name == "duel" else 1
    assert len(set(groups.values())) == 6 * sides


@every_group_scene
def test_acting_agents_end_or_wait_and_groups_end_whole(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    before: dict[str, dict[int, list[int]]] = {}
    ends = early = 0
    for steps in games(scene, 500, seed=1):
        for behavior, batch in steps.items():
            ended = members(batch, slice(batch.num_terminal))
            waiting = members(batch, slice(batch.num_terminal, None))
            assert set(waiting) == set(members(batch, slice(None)))  # no group is ever without agents
            for group, acted in before.get(behavior, {}).items():
                assert set(ended[group]) <= set(acted)
                assert len(set(ended[group])) == len(ended[group])
                assert set(acted) <= set(ended[group]) | set(waiting[group])
                whole = sorted(ended[group]) == sorted(acted)
                ends += whole
                early += bool(ended[group]) and not whole
                # An agent that ended while its group lives on has no row until it begins anew.
                gone = [] if whole else ended[group]
                assert not set(gone) & set(waiting[group])
            before[behavior] = waiting
    assert ends >= 6
    assert bool(early) == (name.startswith("switch") or name == "pushblock")


@every_group_scene
def test_new_episodes_begin_with_zero_rewards(name: str, options: dict[str, Any]) -> None:
    scene = open_(name, options)
    known: dict[str, set[int]] = {}
    for steps in games(scene, 80, seed=2):
        for behavior, batch in steps.items():
            ended = set(batch.agent_ids[: batch.num_terminal].tolist())
            goes_on = known.get(behavior, set()) - ended
            waiting = batch.agent_ids[batch.num_terminal :].tolist()
            new = batch.num_terminal + np.array([agent not in goes_on for agent in waiting]).nonzero()[0]
            assert not batch.rewards[new].any()
            assert not batch.group_rewards[new].any()
            known[behavior] = set(waiting)
