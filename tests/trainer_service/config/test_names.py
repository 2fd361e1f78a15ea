from __future__ import annotations

import pytest

from trainer_service.config import validate_behavior_name, validate_run_id
from trainer_service.config.names import run_id_problem
from trainer_service.errors import ConfigError


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


def test_a_behavior_name_cannot_leave_the_run_folder() -> None:
    validate_behavior_name("3DBall")
    with pytest.raises(ConfigError, match=r"^behavior name '\.\./b' must not contain slashes"):
        validate_behavior_name("../b")


@pytest.mark.parametrize("run_id", ["a:b", "a*", "run."])
def test_names_forbidden_on_windows_are_refused_only_there(run_id: str) -> None:
    assert run_id_problem(run_id, windows=False) is None
    assert run_id_problem(run_id, windows=True) is not None
