"""The command ``sweep``: what it prints, and its refusals."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

RATE = "behaviors.Walker.hyperparameters.learning_rate"


@pytest.fixture
def space(workplace: Path) -> Callable[[str], Path]:
    """Writes space.yaml."""

    def write(text: str) -> Path:
        (workplace / "space.yaml").write_text(text)
        return workplace / "space.yaml"

    return write


@pytest.fixture
def refused(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], workplace: Path
) -> Callable[..., str]:
    """Runs a sweep that must fail before it writes anything; returns its one message."""
    configure("Walker")

    def run(*flags: str) -> str:
        said = mlagents_style("sweep", "config.yaml", "--space=space.yaml", *flags)
        assert said.code == 2, said
        assert "Traceback" not in said.out + said.err
        assert not (workplace / "results").exists()
        return str(said.err.partition("mlagents-style: error: ")[2]).strip()

    return run


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "space.yaml: the file is empty; expected a mapping with parameters by path"),
        (f"{RATE}: {{lwo: 1}}", f"space.yaml:1: {RATE}.lwo: unknown key (did you mean 'low'?)"),
        (f"{RATE}: {{low: -1, high: 2}}", f"space.yaml: {RATE}: expected more than 0, got -1"),
    ],
)
def test_mistake_in_the_space(
    refused: Callable[..., str], space: Callable[[str], Path], text: str, message: str
) -> None:
    pytest.importorskip("optuna")
    space(text)
    assert refused("--env=sim:basic") == message


def test_dry_run_prints_values_and_writes_nothing(
    mlagents_style: Callable[..., Any],
    configure: Callable[..., Path],
    space: Callable[[str], Path],
    workplace: Path,
) -> None:
    pytest.importorskip("optuna")
    configure("Walker")
    space(f"{RATE}: {{choices: [0.25]}}\nbehaviors.Walker.max_steps: {{fixed: 300}}")
    line = ("sweep", "config.yaml", "--space=space.yaml", "--env=sim:basic", "--dry-run")
    said = mlagents_style(*line, "--trials=2")
    assert said.code == 0, said.err
    assert (
        said.out == "trial 0: learning_rate 0.25, max_steps 300\ntrial 1: learning_rate 0.25, max_steps 300\n"
    )
    assert not (workplace / "results").exists()


def test_result_names_the_best_trial_and_its_file(
    mlagents_style: Callable[..., Any], space: Callable[[str], Path], workplace: Path
) -> None:
    pytest.importorskip("optuna")
    space("behaviors.Basic.hyperparameters.learning_rate: {choices: [0.001]}")
    line = "sweep basic --space=space.yaml --env=sim:basic --run-id=tune --trials=1 --seed=1"
    short = [f"--set=behaviors.Basic.{key}" for key in ("max_steps=600", "summary_freq=200")]
    said = mlagents_style(*line.split(), *short)
    assert said.code == 0, said.err
    assert "Trials: 1 complete, 0 pruned, 0 failed" in said.out
    assert "trial    0  return " in said.out
    assert "mlagents-style learn results/tune/best.yaml --run-id=tune-best" in said.out
    assert "Trial 0 complete, return " in said.err
    metrics = (workplace / "results/tune/trial-0000/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == [200, 400, 600]
