from __future__ import annotations

import pytest
from measuring.scenes import SCENES, Case, cases

from trainer_service.config import load_run_options
from unity_bridge.simulators.group_scenes.registry import GROUP_SCENES
from unity_bridge.simulators.registry import SCENES as BUNDLED


def test_every_scene_is_bundled() -> None:
    for name, scene in SCENES.items():
        assert name in (BUNDLED if scene.team is None else GROUP_SCENES), name


def test_agents_of_teams_come_in_whole_copies() -> None:
    (spread,), (ball,) = cases(["spread"], [23], None), cases(["3dball"], [23], None)
    assert (spread.copies, spread.options) == (8, ("--copies", "8"))
    assert (ball.copies, ball.options) == (None, ("--agents", "23"))


@pytest.mark.parametrize("name", SCENES)
def test_settings_of_every_scene_are_valid_and_outlast_runs(name: str) -> None:
    options = load_run_options(SCENES[name].config).options
    (behavior,) = options.behaviors.values()
    assert behavior.max_steps > SCENES[name].steps


def test_without_numbers_a_scene_brings_its_own() -> None:
    ball = SCENES["3dball"]
    assert cases(["3dball"], None, None) == [Case(ball, 12, 204_000), Case(ball, 96, 288_000)]


def test_given_numbers_hold_for_every_scene() -> None:
    assert cases(["all"], [3], 500) == [
        Case(scene, 3, 500, variant) for scene in SCENES.values() for variant in scene.variants
    ]


def test_pictures_are_measured_compressed_and_as_floats() -> None:
    assert [case.title for case in cases(["gridworld"], None, None)] == [
        "gridworld (PNG)",
        "gridworld (floats)",
    ]
