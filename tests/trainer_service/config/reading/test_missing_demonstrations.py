from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainer_service.config import LoadedOptions, check_files, missing_demonstrations

Load = Callable[..., LoadedOptions]
REPLAYED = "{{trainer_type: sac, hyperparameters: {{replay: {{demo_path: {path}}}}}}}"
BOTH = "{{reward_signals: {{gail: {{demo_path: {path}}}}}, behavioral_cloning: {{demo_path: {path}}}}}"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "full").mkdir()
    for name in ("full/a.demo", "b.demo", "c.txt"):
        (tmp_path / name).write_bytes(b"")
    return tmp_path


def test_paths_that_lead_to_nothing_are_named_by_their_keys(load: Load, folder: Path) -> None:
    options = load(f"behaviors: {{A: {BOTH.format(path='gone.demo')}}}").options
    assert missing_demonstrations(options) == [
        f"behaviors.A.{key}.demo_path: expected a .demo file or a folder of them, "
        f"'gone.demo' does not exist in '{folder}'"
        for key in ("reward_signals.gail", "behavioral_cloning")
    ]


def test_replayed_recordings_are_named_by_their_key_too(load: Load, folder: Path) -> None:
    options = load(f"behaviors: {{A: {REPLAYED.format(path='gone.demo')}}}").options
    assert missing_demonstrations(options) == [
        "behaviors.A.hyperparameters.replay.demo_path: expected a .demo file or a folder of them, "
        f"'gone.demo' does not exist in '{folder}'"
    ]
    assert missing_demonstrations(load(f"behaviors: {{A: {REPLAYED.format(path='b.demo')}}}").options) == []


@pytest.mark.parametrize(
    ("path", "fault"), [("empty", "the folder 'empty' holds none"), ("c.txt", "got 'c.txt'")]
)
def test_paths_without_a_recording_are_named(load: Load, folder: Path, path: str, fault: str) -> None:
    text = f"default_settings: {{behavioral_cloning: {{demo_path: {path}}}}}"
    assert missing_demonstrations(load(text).options) == [
        f"default_settings.behavioral_cloning.demo_path: expected a .demo file or a folder of them, {fault}"
    ]


@pytest.mark.parametrize(
    ("steps", "reached", "needed"), [(100, 99, True), (100, 100, False), (0, 10**9, True)]
)
def test_cloning_that_is_over_needs_no_recording(
    load: Load, folder: Path, steps: int, reached: int, needed: bool
) -> None:
    options = load(
        f"behaviors: {{A: {{behavioral_cloning: {{demo_path: gone.demo, steps: {steps}}}}}}}"
    ).options
    assert bool(missing_demonstrations(options, {"A": reached})) == needed
    assert missing_demonstrations(options, {"B": reached}) == missing_demonstrations(options) != []


def test_a_check_warns_of_them_and_passes_the_file(folder: Path) -> None:
    path = folder / "run.yaml"
    path.write_text("behaviors: {A: {behavioral_cloning: {demo_path: gone.demo}}}", encoding="utf-8")
    (check,) = check_files([path])
    assert check.ok
    assert str(check) == f"{path}: ok (1 warning)"
    assert check.details == (
        f"{path}: behaviors.A.behavioral_cloning.demo_path: expected a .demo file or a folder of them, "
        f"'gone.demo' does not exist in '{folder}'",
    )
