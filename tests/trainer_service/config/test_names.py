from __future__ import annotations

import pytest

from trainer_service.config import validate_behavior_name, validate_run_id
from trainer_service.config.names import behavior_name_problem, run_id_problem
from trainer_service.errors import ConfigError


@pytest.mark.parametrize("run_id", ["ppo", "walker_01", "a.b", "2024-01-31", "Läufer 3", "x" * 200, "..."])
def test_ordinary_run_ids_are_fine(run_id: str) -> None:
    validate_run_id(run_id)


@pytest.mark.parametrize(
    ("run_id", "reason"),
    [
        ("", "must not be empty"),
        (" ", "must not be empty"),
        (".", "must not be a folder's own name"),
        ("..", "must not be a folder's own name"),
        ("../other", "--results-dir says where"),
        ("/tmp/run", "--results-dir says where"),
        ("C:\\run", "--results-dir says where"),
        ("-resume", "must not start with '-'"),
        ("run\n", "must not start or end with a space"),
        ("ru\nn", "must not contain control characters"),
        ("ru\x00n", "must not contain control characters"),
        ("ru\udcffn", "must not contain control characters"),
        ("x" * 300, "must be at most 200 bytes long, got 300"),
        ("ü" * 101, "must be at most 200 bytes long, got 202"),
        ("NUL", "must not be a device name of Windows"),
        ("com1.backup", "must not be a device name of Windows"),
    ],
)
def test_a_run_id_cannot_leave_the_results_folder(run_id: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_run_id(run_id)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("run id ")


@pytest.mark.parametrize("name", ["3DBall", "My Behavior", "CartPole-v1", "-x", "行為"])
def test_ordinary_behavior_names_are_fine(name: str) -> None:
    validate_behavior_name(name)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("", "must not be empty"),
        ("..", "must not be a folder's own name"),
        ("a/b", "must not contain slashes"),
        ("..\\b", "must not contain slashes"),
        ("Ball?team=0", "one entry serves every team, so write 'Ball'"),
        ("run_logs", "must not be the name of a file that every run has"),
        ("a\x00b", "must not contain control characters"),
        ("x" * 201, "must be at most 200 bytes long"),
    ],
)
def test_a_behavior_name_cannot_leave_the_run_folder(name: str, reason: str) -> None:
    with pytest.raises(ConfigError) as caught:
        validate_behavior_name(name)
    assert reason in str(caught.value)


@pytest.mark.parametrize("name", ["a:b", "a*", "run."])
def test_names_forbidden_on_windows_are_refused_only_there(name: str) -> None:
    for problem in (run_id_problem, behavior_name_problem):
        assert problem(name, windows=False) is None
        assert problem(name, windows=True) is not None
