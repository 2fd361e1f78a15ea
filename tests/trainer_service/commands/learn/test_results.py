from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from trainer_service.commands.learn.results import print_results
from trainer_service.config import RunOptions, parse_run_options


def options_of(run_id: str, results_dir: str, env: str | None = "sim:basic") -> RunOptions:
    saved = {"run_id": run_id, "results_dir": results_dir}
    settings = {"default_settings": {}, "checkpoint_settings": saved, "env_settings": {"env_path": env}}
    return parse_run_options(settings).options


@pytest.mark.parametrize(
    ("run_id", "results_dir"),
    [
        ("$(touch pwn)", "results"),
        ("läuf 1", "my results; rm *"),
        ("it's `id` & more", "~"),
        ("plain", "results"),
    ],
)
def test_suggested_commands_reach_a_shell_as_they_are_meant(
    capsys: pytest.CaptureFixture[str], run_id: str, results_dir: str
) -> None:
    print_results(options_of(run_id, results_dir), Path(results_dir, run_id), ["Ball"], interrupted=False)
    said = capsys.readouterr().out
    location = "" if results_dir == "results" else f" --results-dir {shlex.quote(results_dir)}"
    assert f"  curves: tensorboard --logdir {shlex.quote(results_dir)}\n" in said
    assert f"  score:  mlagents-style evaluate {shlex.quote(run_id)}{location}\n" in said


def test_the_newest_mean_reward_is_told(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rows = [
        {"behavior": "Ball", "step": step, "mean_return": mean}
        for step, mean in ((9, 1.0), (1200, 2.5), (1300, None))
    ]
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    print_results(options_of("run", str(tmp_path)), tmp_path / "run", ["Ball"], interrupted=False)
    assert "  Ball: mean reward 2.500 at step 1,200\n" in capsys.readouterr().out


def test_the_score_of_a_run_of_attached_simulators_needs_an_environment(
    capsys: pytest.CaptureFixture[str],
) -> None:
    print_results(options_of("x", "results", None), Path("results/x"), ["Ball"], interrupted=False)
    assert "  score:  mlagents-style evaluate x --env ENV\n" in capsys.readouterr().out
