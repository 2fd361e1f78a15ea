from __future__ import annotations

import sys

import pytest

from unity_bridge.simulators.registry import SCENES, open_scene
from unity_bridge.simulators.scene import Scene, SceneError


@pytest.mark.parametrize("name", SCENES)
def test_scenes_have_their_own_default_number_of_agents(name: str) -> None:
    def waiting(scene: Scene) -> int:
        return sum(map(len, scene.reset(0).values()))

    assert waiting(open_scene(f"sim:{name}")) == SCENES[name].agents
    assert waiting(open_scene(f"sim:{name}", agents=5)) == 5


@pytest.mark.parametrize("name", SCENES)
def test_a_scene_describes_what_its_rows_hold(name: str) -> None:
    scene = open_scene(f"sim:{name}")
    steps = scene.reset(0)
    assert set(steps) == set(scene.behaviors)
    for behavior, spec in scene.behaviors.items():
        sensors = spec.observation_specs
        assert [seen.shape[1:] for seen in steps[behavior].observations] == [each.shape for each in sensors]
        assert sorted(sensors, key=lambda sensor: sensor.name) == list(sensors)
        assert steps[behavior].allowed_actions.shape[1] == spec.action_spec.mask_size
        assert behavior.endswith("?team=0")


def test_gym_environments_get_their_arguments() -> None:
    scene = open_scene("gym:CartPole-v1", agents=2, env_kwargs={"sutton_barto_reward": True})
    assert len(scene.reset(0)["CartPole-v1?team=0"]) == 2


@pytest.mark.parametrize(
    ("env", "complaint"),
    [
        (
            "sim:3dbal",
            r"sim:3dbal: no such scene; expected one of sim:3dball, .* \(did you mean 'sim:3dball'\?\)",
        ),
        ("sim:chess", "sim:chess: no such scene; expected one of [^?]*$"),
        (
            "basic",
            r"basic: expected sim:NAME, gym:ID, gymma:ID, pettingzoo:MODULE or FILE.py:NAME "
            r"\(did you mean 'sim:basic'\?\)",
        ),
        ("gym:", "gym:: expected sim:NAME, gym:ID, gymma:ID, pettingzoo:MODULE or FILE.py:NAME$"),
        ("gymma:", "gymma:: expected sim:NAME, gym:ID, gymma:ID, pettingzoo:MODULE or FILE.py:NAME$"),
        (
            "pettingzoo:",
            "pettingzoo:: expected sim:NAME, gym:ID, gymma:ID, pettingzoo:MODULE or FILE.py:NAME$",
        ),
    ],
)
def test_an_unknown_environment_is_named_with_the_nearest_one(env: str, complaint: str) -> None:
    with pytest.raises(SceneError, match=complaint):
        open_scene(env)


def test_env_kwargs_for_a_bundled_scene_are_refused() -> None:
    with pytest.raises(
        SceneError, match="--env-kwargs is for gym:, gymma: and pettingzoo: environments only"
    ):
        open_scene("sim:basic", env_kwargs={"cells": 30})


def test_missing_gymnasium_is_reported_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in [name for name in sys.modules if name.startswith("unity_bridge.simulators.foreign.")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setattr(sys, "meta_path", [Without("gymnasium"), *sys.meta_path])
    for module in [name for name in sys.modules if name.partition(".")[0] == "gymnasium"]:
        monkeypatch.delitem(sys.modules, module)
    with pytest.raises(SceneError, match=r'gym:CartPole-v1: .*pip install -e "\.\[gym\]"'):
        open_scene("gym:CartPole-v1")


class Without:
    """An importer that knows one package to be absent."""

    def __init__(self, package: str) -> None:
        self._package = package

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == self._package:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
