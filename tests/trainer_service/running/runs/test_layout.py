"""Which folder is meant by the name of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainer_service.commands.common.trained_run import folder_of
from trainer_service.errors import UserError
from trainer_service.running.policy import load_policy
from trainer_service.running.runs.layout import RunLayout, run_path


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("results/ball", "results/both", "both", "walk"):
        Path(folder).mkdir(parents=True)


@pytest.mark.parametrize(
    ("run", "folder"),
    [
        ("ball", "results/ball"),
        ("both", "results/both"),
        ("walk", "walk"),
        ("results/ball", "results/ball"),
        (Path("ball"), "results/ball"),
        ("elsewhere/ball", "elsewhere/ball"),
        ("nothing", "results/nothing"),
        ("x" * 300, f"results/{'x' * 300}"),
    ],
)
def test_a_run_is_named_by_its_id_or_by_its_folder(run: str | Path, folder: str) -> None:
    assert run_path(run) == Path(folder)


def test_another_folder_of_runs_does_not_hide_a_folder() -> None:
    Path("others/sweep/trial-0001").mkdir(parents=True)
    assert run_path("ball", "others") == Path("others/ball")
    assert run_path("results/ball", "others") == Path("results/ball")
    assert run_path("walk", "others") == Path("walk")
    assert run_path("sweep/trial-0001", "others") == Path("others/sweep/trial-0001")


def test_an_unknown_id_is_looked_for_in_results() -> None:
    with pytest.raises(UserError, match=r"no run 'bal' in 'results'.*'ball'"):
        folder_of("bal")
    with pytest.raises(UserError, match=r"no run 'bal' in 'results' .*'ball'"):
        load_policy("bal")


def test_a_checkpoint_of_a_step_is_the_newest_until_then() -> None:
    run = RunLayout(Path("walk"))
    for name, steps in {"A": (100, 200, 300), "B": (150, 250)}.items():
        run.behavior(name).mkdir()
        for step in steps:
            run.numbered(name, step).touch()
    assert run.checkpoints_of_step(["A", "B"], 200) == {
        "A": run.numbered("A", 200),
        "B": run.numbered("B", 150),
    }
    for step in (100, 120):  # B has none before it; neither has one of it
        with pytest.raises(
            UserError, match=f"no checkpoint of step {step}; it has A: 100, 200, 300; B: 150, 250"
        ):
            run.checkpoints_of_step(["A", "B"], step)
