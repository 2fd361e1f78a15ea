"""The commands ``compare`` and ``report`` on folders of runs."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import trainer_service
from trainer_service.cli import main
from trainer_service.errors import UserError

MakeRun = Callable[..., Path]


def summaries(ends: float) -> list[tuple[int, float, float]]:
    """Of a run whose return is 0 at first, and this at the end."""
    return [(100, 10.0, 0.0), (200, 20.0, ends)]


@pytest.fixture
def runs(workplace: Path, make_run: MakeRun) -> Sequence[str]:
    """Ids of three seeds of one method and two of another, in ./results."""
    low = [make_run(f"low-{i}", summaries(i), seed=i, settings={"beta": 0.1}) for i in (1, 2, 3)]
    high = [make_run(f"high-{i}", summaries(10.0 * i), seed=i, settings={"beta": 0.5}) for i in (1, 2)]
    return [path.name for path in (*low, *high)]


def test_groups_scores_and_differences_are_shown(
    runs: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, "--threshold", "2"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for line in (
        "low 3 200 2.000 [1.000, 3.000] 1.000 [0.500, 1.500] 2 of 3 200 20.0",
        "low-2 seed 2 200 2.000 1.000 200 20.0",
        "low-1 seed 1 200 1.000 0.500 never never",
        "behaviors.Ball.beta 0.1 0.5",
    ):
        assert line.split() in lines
    assert any(line[:1] == ["high"] and line[-3:] == ["all", "6", "pairs"] for line in lines)


def test_json_is_one_object_without_nan(runs: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *runs, "results/low-1", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert [[run["run_id"] for run in group["runs"]] for group in found["groups"]] == [
        [*runs[:3]],
        [*runs[3:]],
    ]
    assert found["settings"] == {"behaviors.Ball.beta": ["0.1", "0.5"]}
    low, high = found["behaviors"]["Ball"]["groups"]
    assert low["final"] == {"iqm": 2.0, "low": 1.0, "high": 3.0}
    assert low["over_steps"]["iqm"] == [0.0, 2.0]
    assert high["probability_of_improvement"]["iqm"] == 1.0
    assert main(["compare", runs[0], "--json"]) == 0
    (alone,) = json.loads(capsys.readouterr().out)["behaviors"]["Ball"]["groups"]
    assert alone["final"] == {"iqm": 1.0, "low": None, "high": None}


def test_from_python_what_makes_no_sense_is_named(runs: Sequence[str]) -> None:
    with pytest.raises(UserError, match="expected at least one run, got none"):
        trainer_service.compare()
    with pytest.raises(UserError, match="group_by: expected one of config, name, run, got 'seed'"):
        trainer_service.compare("low-1", group_by="seed")  # type: ignore[arg-type]
    with pytest.raises(UserError, match=r"no run 'low-9' in 'results'"):
        trainer_service.report("low-9")


def test_patterns_stand_for_runs(runs: Sequence[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "low-*", "--json"]) == 0
    (group,) = json.loads(capsys.readouterr().out)["groups"]
    assert [run["seed"] for run in group["runs"]] == [1, 2, 3]


@pytest.mark.parametrize(("suffix", "begins"), [(".png", b"\x89PNG"), (".svg", b"<?xml"), (".pdf", b"%PDF")])
def test_runs_become_a_picture(runs: Sequence[str], tmp_path: Path, suffix: str, begins: bytes) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / f"curves{suffix}"
    assert main(["compare", *runs, "--plot", str(picture), "--title", "$100"]) == 0
    assert picture.read_bytes().startswith(begins)


def test_pictures_that_cannot_be_drawn_are_refused_first(
    runs: Sequence[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["compare", *runs, "--plot", "curves.gif"]) == 2
    assert "expected a file that ends with .png, .svg, .pdf, got 'curves.gif'" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert main(["compare", *runs, "--plot", "curves.png"]) == 2
    shown = capsys.readouterr()
    assert 'pip install -e ".[plot]"' in shown.err
    assert not shown.out


def test_runs_are_compared_over_environment_steps(
    runs: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, "--x", "env_steps"]) == 2
    assert "has no environment steps" in capsys.readouterr().err
    for number, run in enumerate(runs):
        metrics = Path("results", run, "metrics.jsonl")
        rows = [json.loads(line) for line in metrics.read_text().splitlines()]
        told = ({**row, "env_steps": row["step"] // (2 + number)} for row in rows)
        metrics.write_text("".join(json.dumps(row) + "\n" for row in told))
    assert main(["compare", *runs, "--x", "env_steps", "--group-by", "run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:5] == ["Group", "Runs", "Env", "steps", "Final"] for line in lines)
    shown = {line.split()[0]: line.split()[2] for line in lines if line.split()[1:2] == ["1"]}
    assert main(["compare", *runs, "--x", "env_steps", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["x"] == "env_steps"
    assert shown == dict(zip(runs, ("100", "66", "50", "40", "33"), strict=True))


def test_reports_go_into_the_folder_or_where_they_are_wanted(
    runs: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", "low-1"]) == 0
    folder = Path("results", "low-1")
    assert f"Report on '{folder}' in {folder / 'report.html'}" in capsys.readouterr().out
    assert main(["report", "results/low-1", "--to", "new/page.html"]) == 0
    pages = [
        Path(path).read_text(encoding="utf-8") for path in ("results/low-1/report.html", "new/page.html")
    ]
    assert all("<h1>low-1</h1>" in page for page in pages)


def test_methods_are_compared_over_tasks(
    workplace: Path, make_run: MakeRun, capsys: pytest.CaptureFixture[str]
) -> None:
    for (method, ends), task, seed in product((("old", 0.0), ("new", 40.0)), ("Ball", "Walk"), (1, 2)):
        make_run(f"{method}-{task}-{seed}", summaries(ends + 10 * seed), seed=seed, behavior=task)
    flags = ["--tasks", "--method", "old=old-*", "--method", "new=new-*", "--bounds", "Ball=0,100"]
    assert main(["compare", "old-*", "new-*", *flags, "--bounds=Walk=0,100", "--to", "methods.md"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["old", "4", "0.150", "[0.100,", "0.200]", "0%", "0%", "0%"] in lines
    assert [
        "new",
        "4",
        "0.550",
        "[0.500,",
        "0.600]",
        "1.000",
        "[1.000,",
        "1.000]",
        "100%",
        "50%",
        "0%",
    ] in lines
    assert Path("methods.md").read_text().startswith("| method | runs | iqm |")
    found = trainer_service.compare_tasks("old-*", "new-*", methods={"old": "old-*", "new": "new-*"})
    assert [each["method"] for each in found["methods"]] == ["old", "new"]
    assert found["tasks"] == {"Ball": {"low": 10.0, "high": 60.0}, "Walk": {"low": 10.0, "high": 60.0}}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--to", "groups.npz"], ".json and .npz need --tasks"),
        (["--bounds", "Ball=0,1"], "--bounds: expected --tasks beside it"),
        (["--tasks", "--bounds", "Ball=0"], "--bounds: expected two numbers LOW,HIGH, got '0'"),
        (["--tasks", "--method", "low"], "--method: expected NAME=PATTERN, got 'low'"),
        (["--tasks", "--threshold", "3"], "--threshold: not allowed with --tasks"),
    ],
)
def test_flags_of_comparisons_that_make_no_sense_are_refused(
    flags: Sequence[str], message: str, runs: Sequence[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *runs, *flags]) == 2
    assert message in capsys.readouterr().err
