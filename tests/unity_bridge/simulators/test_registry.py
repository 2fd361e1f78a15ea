from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import gymnasium
import pytest

from unity_bridge.programs.program_environment import program_environment
from unity_bridge.side_channels import (
    FloatParameter,
    UniformSampler,
    pack_records,
    parameter_records,
    parse_notice,
    unpack_records,
)
from unity_bridge.simulators import command, registry, schemes
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.registry import SCENE_NAMES, SCENES, copies_of, open_scene
from unity_bridge.simulators.scene import Scene, SceneError
from unity_bridge.simulators.scenes.basic import Basic


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


@pytest.mark.parametrize("name", SCENE_NAMES)
def test_a_scene_takes_the_flag_of_its_copies(name: str) -> None:
    flag, _ = copies_of(f"sim:{name}")
    arguments = command.parse([f"sim:{name}", flag, "2"])
    command.open_for(arguments, Academy()).close()


@pytest.fixture
def scene_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A scene in a Python file of the current folder: ``./scene.py:room``."""
    monkeypatch.chdir(tmp_path)
    lines = ("from unity_bridge.simulators.scenes.basic import Basic", "def room():", "    return Basic(1)")
    Path("scene.py").write_text("\n".join(lines))


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("sim:sorter", "expected one of num_tiles"),
        ("sim:walljump", "expected one of big_wall_height, small_wall_height"),
        ("sim:pyramids", "it has none"),
        ("sim:spread", "it has none"),
        ("gym:CartPole-v1", "it has none"),
        ("pettingzoo:mpe2.simple_spread_v3", "it has none"),
        ("gymma:foreign_probes:Listed", "it has none"),
        ("./scene.py:room", "it has none"),
        ("python:CartPole-v1", "it has none"),
    ],
)
def test_a_parameter_that_a_scene_does_not_read_is_told(env: str, expected: str, scene_file: None) -> None:
    academy, unread = Academy(), [FloatParameter("wind", 1.0), UniformSampler("sun", 0, 0.0, 1.0)]
    if env.startswith("python"):
        program_environment(gymnasium.make("CartPole-v1")).open(env, academy=academy)
    else:
        open_scene(env, academy=academy)
    read = [
        FloatParameter(name, 2.0) for name in SCENES.get(env.removeprefix("sim:"), SCENES["basic"]).parameters
    ]
    academy.receive(pack_records(parameter_records([*unread, *read])))
    notices = [parse_notice(record.body) for record in unpack_records(academy.outgoing())]
    assert [notice.topic for notice in notices] == ["parameter wind", "parameter sun"]
    assert notices[0].text.startswith(f"{env}: no environment parameter 'wind'; {expected}")


@pytest.mark.parametrize(("declared", "told"), [(None, []), (["wind"], ["parameter sun"])])
def test_a_plugins_scene_may_declare_what_it_reads(
    declared: list[str] | None, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def room(name: str, *, academy: Academy, **arguments: object) -> Scene:
        if declared is not None:
            academy.parameters.declare(f"theirs:{name}", declared)
        return Basic(1)

    plugin = SimpleNamespace(load=lambda: room)
    for module in (registry, schemes):
        monkeypatch.setattr(module, "SIMULATOR_PLUGINS", SimpleNamespace(offered=lambda: {"theirs": plugin}))
    academy = Academy()
    open_scene("theirs:room", academy=academy)
    academy.receive(
        pack_records(parameter_records([FloatParameter("wind", 1.0), FloatParameter("sun", 1.0)]))
    )
    notices = [parse_notice(record.body) for record in unpack_records(academy.outgoing())]
    assert [notice.topic for notice in notices] == told


def test_a_fixed_parameter_of_a_scene_in_python_is_refused(scene_file: None) -> None:
    with pytest.raises(SceneError, match=r"\./scene\.py:room: no environment parameter 'wind'; it has none"):
        open_scene("./scene.py:room", academy=Academy({"wind": 1.0}))
