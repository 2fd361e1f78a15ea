"""A resumed run keeps the environment that it was trained on, where nothing names another and it is no program."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from installed_plugins import install_example

import trainer_service
from trainer_service.commands.common.configuration import Configuration, read_run
from trainer_service.config import LoadedOptions, parse_run_options
from trainer_service.config.reading.loader import dump_run_options
from unity_bridge.errors import LaunchError

RESUME = {"checkpoint_settings": {"resume": True, "run_id": "first"}}
FILE = {"behaviors": {"Basic": {"max_steps": 9}}, "env_settings": {"num_envs": 2}}
TRAINED = {"env_path": "sim:basic", "env_args": ["--agents", "4"], "num_envs": 3}


def trained(**environment: Any) -> None:
    run = Path("results", "first")
    run.mkdir(parents=True, exist_ok=True)
    options = parse_run_options({"behaviors": {"Basic": {}}, "env_settings": environment}).options
    (run / "configuration.yaml").write_text(dump_run_options(options))


def resumed(configuration: Configuration = FILE, **environment: Any) -> LoadedOptions:
    return read_run(configuration, {**RESUME, "env_settings": environment} if environment else RESUME)


def environment_of(loaded: LoadedOptions) -> tuple[str | None, Sequence[str] | None, int]:
    settings = loaded.options.env_settings
    return settings.env_path, settings.env_args, settings.num_envs


@pytest.mark.parametrize("env", ["sim:basic", "gym:CartPole-v1", "pettingzoo:mpe2.simple_v3", "own.py:Scene"])
def test_a_hosted_environment_is_kept_with_its_arguments_and_count(env: str, workplace: Path) -> None:
    trained(**{**TRAINED, "env_path": env})
    loaded = resumed()
    assert environment_of(loaded) == (env, ("--agents", "4"), 3)
    assert loaded.notes == (f"Run 'first' keeps its environment, {env}; --env names another.",)


def test_a_scheme_of_a_plugin_is_kept(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_example(workplace / "site")
    monkeypatch.syspath_prepend(workplace / "site")
    trained(env_path="hotcold:9")
    assert environment_of(resumed())[0] == "hotcold:9"


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"num_envs": 1}, ("sim:basic", ("--agents", "4"), 1)),
        ({"env_args": ["--agents", "8"]}, ("sim:basic", ("--agents", "8"), 3)),
        ({"env_path": "sim:3dball"}, ("sim:3dball", None, 2)),
        ({"env_path": None}, (None, None, 2)),
    ],
)
def test_flags_win_over_the_kept_environment(given: Any, expected: Any, workplace: Path) -> None:
    trained(**TRAINED)
    assert environment_of(resumed(**given)) == expected


def test_an_environment_of_the_configuration_wins(workplace: Path) -> None:
    trained(**TRAINED)
    assert environment_of(resumed({"env_settings": {"env_path": "sim:3dball"}})) == ("sim:3dball", None, 1)


def test_a_build_is_not_started_unasked(workplace: Path) -> None:
    trained(env_path="builds/Walker", num_envs=4)
    loaded = resumed({"behaviors": {"Basic": {}}})
    assert environment_of(loaded) == (None, None, 1)
    (note,) = loaded.notes
    for way in ("--env=builds/Walker", "press Play", "attach"):
        assert way in note
    assert environment_of(resumed(env_path="builds/Walker"))[0] == "builds/Walker"


def test_an_object_of_another_program_is_asked_for(workplace: Path) -> None:
    trained(env_path="python:Walk")
    with pytest.raises(LaunchError, match="it was an object of a Python program"):
        trainer_service.train({"trainer_type": "ppo"}, run_id="first", resume=True)


@pytest.mark.process
@pytest.mark.parametrize("configuration", ["config.yaml", None])
def test_a_resumed_run_trains_where_it_was_trained(
    configuration: str | None, mlagents_style, configure
) -> None:
    configure("Basic", max_steps=100)
    env = ("--num-envs=2", "--no-isolate", "--env=sim:basic", "--env-args", "--agents", "2")
    assert mlagents_style("learn", "config.yaml", "--run-id=first", *env).code == 0
    config = [] if configuration is None else [configuration]
    more = ("--set=behaviors.Basic.max_steps=200", "--env-args", "--agents", "4")
    said = mlagents_style("learn", *config, "--run-id=first", "--resume", *more)
    assert said.code == 0, said.err
    saved = read_run(Path("results", "first", "configuration.yaml"), {})
    assert environment_of(saved) == ("sim:basic", ("--agents", "4"), 2)
    assert trainer_service.train("config.yaml", run_id="first", resume=True).steps["Basic"] >= 200
