from __future__ import annotations

import json
from pathlib import Path

import pytest
import versus_mlagents
from measuring.counting import Served
from measuring.runs import Run
from measuring.scenes import CHECKOUT, Case, sleeping_builds
from measuring.trainers import Ours, Peer, Trainer, write_simulator
from measuring.training_log import Summary
from versus_mlagents import main, parse


def test_without_arguments_the_defaults_are_run() -> None:
    arguments = parse([])
    assert arguments.scene == ["3dball", "basic"]
    assert arguments.agents is None
    assert arguments.steps is None
    assert arguments.seeds == [1]
    assert arguments.peer is None
    assert arguments.builds is None


def test_lists_and_paths_are_understood() -> None:
    numbers = ["--agents", "12", "96", "--steps", "500", "--seeds", "3", "4"]
    arguments = parse(["--scene", "hybrid", *numbers, "--peer", "p", "--json", "j"])
    assert arguments.scene == ["hybrid"]
    assert arguments.agents == [12, 96]
    assert arguments.steps == 500
    assert arguments.seeds == [3, 4]
    assert (arguments.peer, arguments.json) == (Path("p"), Path("j"))


@pytest.mark.parametrize(
    "wrong",
    [["--scene", "walker"], ["--agents", "0"], ["--steps", "many"], ["--builds", "1", "--scene", "basic"]],
)
def test_impossible_arguments_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        parse(wrong)


@pytest.mark.process
def test_without_the_real_trainer_ours_is_still_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []

    def run(trainer: Trainer, case: Case, seed: int, watch: object) -> Run:
        ran.append(f"{trainer.name} {case.scene.name} {case.agents} {seed}")
        return Run(trainer.name, seed, (Summary(case.steps, 2.0, 4.0, 1.0),))

    monkeypatch.setattr(versus_mlagents, "run", run)
    monkeypatch.setattr(versus_mlagents, "_EXCHANGES", 3)
    assert main(["--scene", "basic", "--seeds", "1", "2", "--peer", str(tmp_path)]) == 0
    assert ran == ["ours basic 1 1", "ours basic 1 2"]
    assert "mlagents-learn is skipped" in capsys.readouterr().out


@pytest.mark.process
def test_builds_are_counted_instead_of_scenes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(trainer: Trainer, case: Case, seed: int, watch: object) -> Run:
        # 500 exchanges in 2 s and 0.4 s of a core: 800 us each.
        logged = [Summary(n, n, 2.0 * n, None, Served(500 * n, 0.4 * n)) for n in (1, 2)]
        return Run(trainer.name, seed, tuple(logged))

    monkeypatch.setattr(versus_mlagents, "run", run)
    assert main(["--builds", "1", "2", "--peer", str(tmp_path), "--json", str(tmp_path / "figures")]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines() if " ours" in line]
    assert rows == [["1", "ours", "250.0", "800", "12.5"], ["2", "ours", "125.0", "800", "12.5"]]
    assert [each["simulators"] for each in json.loads((tmp_path / "figures").read_text())] == [1, 2]


@pytest.mark.process
def test_both_begin_in_turn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ran: list[str] = []

    def run(trainer: Trainer, case: Case, seed: int, watch: object) -> Run:
        ran.append(f"{trainer.name} {seed}")
        return Run(trainer.name, seed, (), failure="for lack of a trainer")

    learn = tmp_path / "bin" / "mlagents-learn"
    learn.parent.mkdir()
    learn.touch(0o755)
    monkeypatch.setattr(versus_mlagents, "run", run)
    monkeypatch.setattr(versus_mlagents, "_EXCHANGES", 3)
    assert main(["--scene", "basic", "--seeds", "1", "2", "--peer", str(tmp_path)]) == 1
    assert ran == ["ours 1", "mlagents-learn 1", "mlagents-learn 2", "ours 2"]


def test_both_trainers_get_the_same_run(tmp_path: Path) -> None:
    case = Case(versus_mlagents.SCENES["3dball"], agents=5, steps=100)
    program = write_simulator(tmp_path, case, tmp_path / "counts")
    ours = Ours().command(case, program, tmp_path, 3)
    theirs = Peer(Path("/peer/mlagents-learn")).command(case, program, tmp_path, 3)
    assert ours[4:] == theirs[1:-1]
    assert theirs[-1].startswith("--base-port=")
    assert f"--env={program}" in ours
    assert "sim:3dball --agents 5" in program.read_text()


def test_both_trainers_get_as_many_builds(tmp_path: Path) -> None:
    (case,) = sleeping_builds([4], agents=None, steps=None)
    program = write_simulator(tmp_path, case, tmp_path / "counts")
    for trainer in (Ours(), Peer(Path("/peer/mlagents-learn"))):
        command = trainer.command(case, program, tmp_path, 3)
        assert "--num-envs=4" in command
        assert str(CHECKOUT / "benchmarks/configs/sleeper.yaml") in command
    assert "workers.sleeper --step-ms 10 --agents 12" in program.read_text()


def test_many_builds_play_longer() -> None:
    assert [case.steps for case in sleeping_builds([1, 32], agents=None, steps=None)] == [72_000, 96_000]
    assert [case.steps for case in sleeping_builds([1, 32], agents=[4], steps=500)] == [500, 500]
