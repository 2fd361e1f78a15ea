"""The command ``sweep``: what it prints, and its refusals."""

from __future__ import annotations

import importlib.util
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


def test_missing_optuna_names_its_extra(
    refused: Callable[..., str], space: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    space(f"{RATE}: {{low: 1e-4, high: 1e-2}}")
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "optuna" else find_spec(name)
    )
    message = 'Optuna is not installed, which sweeps need: pip install -e ".[sweep]" (in a checkout of Trainer Service)'
    assert refused("--env=sim:basic") == message
    assert refused("--env=sim:basic", "--dry-run") == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "space.yaml: the file is empty; expected a mapping with parameters by path"),
        (f"{RATE}: {{lwo: 1}}", f"space.yaml:1: {RATE}.lwo: unknown key (did you mean 'low'?)"),
        (
            "behaviors.Walker.hyperparameters.learning_rte: {low: 1, high: 2}",
            "space.yaml: behaviors.Walker.hyperparameters.learning_rte: unknown key (did you mean 'learning_rate'?)",
        ),
        (f"{RATE}: {{low: -1, high: 2}}", f"space.yaml: {RATE}: expected more than 0, got -1"),
    ],
)
def test_mistake_in_the_space(
    refused: Callable[..., str], space: Callable[[str], Path], text: str, message: str
) -> None:
    pytest.importorskip("optuna")
    space(text)
    assert refused("--env=sim:basic") == message


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--env=sim:basic", "--trials=0"], "trials: expected at least 1, got 0"),
        (["--env=sim:basic", "--wall-clock=soon"], "wall_clock: expected a duration such as 2h"),
        ([], "env_settings.env_path: each trial needs simulators of its own"),
        (
            ["--env=sim:basic", "--set=behaviors.Walker.max_stepz=1"],
            "behaviors.Walker.max_stepz: unknown key",
        ),
        (["--env=sim:basic", "--set=behaviors.Walker.summary_freq=500"], "summary_freq: expected at most"),
        (["--env=sim:basic", "--behavior=Runner"], "behavior 'Runner': the configuration has Walker"),
        (["--env=sim:basic", "--run-id=a/b"], "must be one name without slashes"),
    ],
)
def test_setting_that_cannot_be_used(
    refused: Callable[..., str], space: Callable[[str], Path], flags: list[str], message: str
) -> None:
    pytest.importorskip("optuna")
    space(f"{RATE}: {{low: 1e-4, high: 1e-2}}")
    assert message in refused(*flags)


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
    flags = (
        "--env=sim:basic",
        "--run-id=tune",
        "--trials=1",
        "--seed=1",
        "--set=behaviors.Basic.max_steps=600",
    )
    said = mlagents_style(
        "sweep", "basic", "--space=space.yaml", *flags, "--set=behaviors.Basic.summary_freq=200"
    )
    assert said.code == 0, said.err
    assert "Trials: 1 complete, 0 pruned, 0 failed" in said.out
    assert "trial    0  return " in said.out
    assert "mlagents-style learn results/tune/best.yaml --run-id=tune-best" in said.out
    assert "Trial 0 complete, return " in said.err
    metrics = (workplace / "results/tune/trial-0000/metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in metrics] == [200, 400, 600]
