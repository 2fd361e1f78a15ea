"""The comparison with XuanCe: everything but XuanCe itself."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
import versus_xuance
import yaml
from measuring import contest
from measuring.contest import (
    ALGORITHMS,
    Outcome,
    last_json,
    of_xuance,
    our_row,
    settings,
    table,
    variables,
)
from measuring.environments import InstallationFailed
from measuring.peer import PeerError
from measuring.scenes import CHECKOUT
from measuring.timed import RunFailed, Spent, run_timed
from measuring.xuance_peer import describe, prepare

from trainer_service.config import load_run_options

OURS = Outcome("vdn", 1, "ours", 180.0, 170.0, 600_000, -11.0, 2.0, 1000)
THEIRS = Outcome("vdn", 1, "xuance", 180.4, 175.0, 300_000, -20.0, 3.0, 1000)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_has_a_row_scored_on_mpe2(algorithm: str) -> None:
    row = our_row(algorithm, 7, "sim")
    assert row.trained_on == "sim:spread"
    assert row.scored_on == "pettingzoo:mpe2.simple_spread_v3"
    assert "--episodes=21" in row.evaluate("run")


@pytest.mark.parametrize(("trained_on", "name"), [("sim", "Spread"), ("pettingzoo", "simple_spread_v3")])
def test_ours_learns_on_mpe2_under_its_name_there(trained_on: str, name: str, tmp_path: Path) -> None:
    config = CHECKOUT / our_row("mappo", 1, "pettingzoo").config
    own = tmp_path / "config.yaml"
    own.write_text(yaml.safe_dump(settings(config, trained_on)))
    behaviors = load_run_options(own).options.behaviors
    assert list(behaviors) == [name]
    assert behaviors[name] == load_run_options(config).options.behaviors["Spread"]


def test_a_side_that_did_not_run_leaves_its_cells_empty() -> None:
    head, both, alone = table(
        [OURS, THEIRS, Outcome("iql", 2, "xuance", 60.0, 59.0, 9, -30.5, 1.0, 5)]
    ).splitlines()
    assert head.split()[:3] == ["algorithm", "seed", "ours:"]
    assert both.split() == [
        "vdn", "1", "180", "170", "600,000", "-11.00", "180", "175", "300,000", "-20.00", "discrete",
    ]  # fmt: skip
    assert alone.split() == ["iql", "2", "-", "-", "-", "-", "60", "59", "9", "-30.50", "discrete"]


def test_what_the_driver_writes_becomes_an_outcome() -> None:
    said = {
        "agent_steps": 48, "environment_steps": 16, "seconds": 2.5, "cpu_seconds": 2.0, "episodes": 4,
        "mean_return": -30.0, "std_return": 3.0, "actions": "continuous",
    }  # fmt: skip
    assert of_xuance("coma", 1, said) == Outcome(
        "coma", 1, "xuance", 2.5, 2.0, 48, -30.0, 3.0, 4, "continuous"
    )


def test_the_result_is_found_behind_what_else_was_said() -> None:
    assert last_json('[INFO] {not this}\n{"step": 2}\n') == {"step": 2}
    assert last_json('words\n{\n  "a": {\n    "b": 1\n  }\n}') == {"a": {"b": 1}}
    with pytest.raises(ValueError, match="no JSON"):
        last_json("nothing to see")


def test_threads_are_set_or_left_to_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.setenv("PYTHONPATH", "somewhere")
    assert variables(2)["OMP_NUM_THREADS"] == "2"
    assert "OMP_NUM_THREADS" not in variables(0)
    assert "PYTHONPATH" not in variables(1)


def test_ours_is_trained_for_the_time_and_then_scored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commands: list[tuple[list[str], float | None]] = []

    def run_timed(command: list[str], folder: Path, *_: object, **given: float | None) -> Spent:
        commands.append((command[3:], given.get("interrupt_after_s")))
        said = {"step": 99, "behaviors": {"Spread": {"mean_return": -20.0, "std_return": 4.0}}}
        (folder / "log.txt").write_text(json.dumps(said))
        return Spent(60.5, 41.0)

    monkeypatch.setattr(contest, "run_timed", run_timed)
    outcome = contest.run_ours("mappo", 3, 60.0, 4, "pettingzoo", 1, tmp_path)
    assert outcome == Outcome("mappo", 3, "ours", 60.5, 41.0, 99, -20.0, 4.0, 4)
    (learn, time_s), (evaluate, no_time) = commands
    assert learn[:2] == ["learn", str(tmp_path / "config.yaml")]
    assert "--env=pettingzoo:mpe2.simple_spread_v3" in learn
    assert "--seed=3" in learn
    assert time_s == 60.0
    assert no_time is None
    # What stands behind --env-args would be the simulator's.
    assert evaluate[:3] == ["evaluate", f"--results-dir={tmp_path}", "run"]
    assert evaluate[-3:] == ["--env-args", "--copies", "50"]


@pytest.mark.process
def test_a_command_is_interrupted_when_its_time_is_over(tmp_path: Path) -> None:
    program = "trap 'touch interrupted; exit 0' INT; while true; do :; done"
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        spent = run_timed(["/bin/sh", "-c", program], tmp_path, os.environ, interrupt_after_s=1.0)
    finally:
        signal.signal(signal.SIGINT, before)
    assert spent.seconds >= 1.0
    assert spent.cpu_seconds > 0.0
    assert (tmp_path / "interrupted").exists()


@pytest.mark.process
def test_a_command_that_fails_or_hangs_says_so(tmp_path: Path) -> None:
    with pytest.raises(RunFailed, match=r"ended with 3:\s+broken"):
        run_timed([sys.executable, "-c", "print('broken'); exit(3)"], tmp_path, os.environ)
    with pytest.raises(RunFailed, match="did not end in time"):
        run_timed([sys.executable, "-c", "import time; time.sleep(60)"], tmp_path, os.environ, limit_s=0.5)


@pytest.mark.process
def test_an_environment_without_xuance_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PeerError, match=r"no bin/python"):
        describe(tmp_path)
    python = tmp_path / "bin" / "python"
    python.parent.mkdir()
    python.write_text("#!/bin/sh\necho 'No package metadata was found for xuance' >&2\nexit 1\n")
    python.chmod(0o755)
    with pytest.raises(PeerError, match="for xuance"):
        describe(tmp_path)


def test_an_installation_that_fails_is_not_taken_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise InstallationFailed("no disk")

    monkeypatch.setattr("measuring.xuance_peer.interpreters", lambda version: iter([Path(sys.executable)]))
    monkeypatch.setattr("measuring.xuance_peer.make", fails)
    with pytest.raises(PeerError, match="no disk"):
        prepare(tmp_path, say=lambda text: None)
    assert not (tmp_path / "installed").exists()


@pytest.mark.parametrize(
    "wrong", [["--minutes", "0"], ["--episodes", "0"], ["--only", "sarsa"], ["--threads", "-1"]]
)
def test_wrong_arguments_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        versus_xuance.parse(wrong)


@pytest.mark.process
def test_without_xuance_ours_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(versus_xuance, "run_ours", lambda *_: OURS)
    written = tmp_path / "figures.json"
    assert versus_xuance.main(["--only", "vdn", "--xuance", str(tmp_path), "--json", str(written)]) == 0
    printed = capsys.readouterr().out
    assert "XuanCe is skipped" in printed
    assert "-11.00" in printed
    assert '"agent_steps": 600000' in written.read_text()
