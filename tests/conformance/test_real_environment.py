"""The real UnityEnvironment 1.1.0 drives every bundled scene, and hears what ours hears."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.environment.low_level_steps import low_level_spec
from unity_bridge.simulators.group_scenes.registry import GROUP_SCENES
from unity_bridge.simulators.registry import SCENES, open_scene

ODD = Path(__file__).parents[1] / "programs" / "odd.py"
SIZE = 3
"""Agents, or copies of a team."""
PICTURES = [(name, form) for name, scene in SCENES.items() if scene.has_camera for form in ("png", "float")]
ENVIRONMENTS = [
    *((f"sim:{name}", ()) for name, scene in SCENES.items() if not scene.has_camera),
    *((f"sim:{name}", ("--pictures", form)) for name, form in PICTURES),
    *((f"sim:{name}", ()) for name in GROUP_SCENES),
    ("sim:pushblock", ("--respawn", "2")),
    ("gym:CartPole-v1", ()),
]
"""Every scene, in each form of its pictures, and one of Gymnasium's."""

every_environment = pytest.mark.parametrize(
    ("env", "options"), ENVIRONMENTS, ids=[" ".join((env, *options)) for env, options in ENVIRONMENTS]
)


def parameters_of(env: str) -> dict[str, float]:
    """A value other than the default for each parameter that a scene reads."""
    scene = SCENES.get(env.removeprefix("sim:"))
    return {name: value + 1 for name, value in scene.parameters.items()} if scene else {}


def size_of(env: str) -> tuple[str, int]:
    return "--copies" if env.removeprefix("sim:") in GROUP_SCENES else "--agents", SIZE


def declared(env: str) -> Any:
    """The scene's own specs of its behaviors."""
    return {name: low_level_spec(spec) for name, spec in open_scene(env).behaviors.items()}


def require_equal(real: dict[str, Any], ours: dict[str, Any]) -> None:
    assert real.keys() == ours.keys()
    for path, values in real.items():
        assert values.dtype == ours[path].dtype or "group_id" in path, path
        np.testing.assert_array_equal(ours[path], values, err_msg=path)


@every_environment
def test_real_environment_gets_the_steps_that_ours_gets(
    env: str,
    options: tuple[str, ...],
    low_level: Any,
    bundled: Any,
    our_record: Any,
    real_record: Any,
    free_port: Any,
) -> None:
    program = bundled(env, *size_of(env), *options)
    setting = {"file_name": str(program), "seed": 19, "timeout_wait": 60}
    plan = {
        "steps": 150,
        "reset_at": 21,
        "actions_seed": 4,
        "parameters": parameters_of(env),
        "environment": setting,
    }
    ours = our_record(plan)
    real = real_record({**plan, "environment": {**setting, "base_port": free_port()}})
    require_equal(real, ours)
    assert json.loads(str(real["specs"])) == low_level.describe(declared(env))
    assert sum(len(values) for path, values in real.items() if path.endswith("/terminal/reward")) > 0
    assert real["raw"].tobytes() == bytes(range(256)) + b"reset"
    assert real["properties/gravity"] == np.float32(-9.81)


@every_environment
def test_scenes_attach_to_the_real_environment_like_the_editor(
    env: str,
    options: tuple[str, ...],
    bundled: Any,
    our_record: Any,
    real_record: Any,
    free_port: Any,
    start_simulator: Any,
) -> None:
    port = free_port()
    setting = {"file_name": None, "base_port": port, "seed": 2, "timeout_wait": 60}
    plan = {"steps": 12, "reset_at": 5, "actions_seed": 1, "environment": setting}
    words = [bundled(env, *size_of(env), *options), "--mlagents-port", port, "--connect-timeout", 60]
    attached = []
    real = real_record(plan, meanwhile=lambda: attached.append(start_simulator(words)))
    assert attached[0].wait(60) == 0  # the real class says goodbye, and the simulator leaves in peace
    start_simulator(words)
    require_equal(real, our_record(plan))


def test_real_environment_understands_an_odd_simulator_alike(
    build: Any, our_record: Any, real_record: Any, free_port: Any
) -> None:
    """The two behaviors that the real class cannot serve are left out.

    It takes no messages over 4 MiB, and no description without agents.
    """
    program = build(sys.executable, ODD, "--only", "Plain", "Chor", "Seer")
    setting = {"file_name": str(program), "seed": 0, "timeout_wait": 60}
    plan = {"steps": 60, "reset_at": None, "actions_seed": 8, "environment": setting}
    ours = our_record(plan)
    real = real_record({**plan, "environment": {**setting, "base_port": free_port()}})
    theirs, here = (json.loads(str(record.pop("specs"))) for record in (real, ours))
    camera = theirs["Seer?team=0"]["sensors"][0]
    assert camera == [[3, 20, 21], [0, 0, 0], "DEFAULT", ""]
    camera[1] = [1, 2, 2]  # ours says outright that what has three dimensions and no properties is a picture
    assert theirs == here
    assert set(theirs) == {"Plain", "Chor?team=0", "Chor?team=1", "Seer?team=0"}
    require_equal(real, ours)
