"""Whole runs from the command line, with real simulators as separate processes."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from trainer_service.cli import main
from trainer_service.running.runs.checkpoint import read_content

LINE = re.compile(
    r"\[INFO\] Basic\. Step: (\d+)\. Time Elapsed: \d+\.\d{3} s\. "
    r"Mean Reward: -?\d+\.\d{3}\. Std of Reward: \d+\.\d{3}\. Training\."
)


@pytest.fixture(scope="module")
def finished(processes: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder of a finished run, only to be looked at, and what the run said."""
    folder = tmp_path_factory.mktemp("finished")
    settings = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 32, "buffer_size": 128},
        "network_settings": {"hidden_units": 8, "num_layers": 1},
        "max_steps": 800,
        "time_horizon": 8,
        "summary_freq": 400,
        "checkpoint_interval": 200,
        "keep_checkpoints": 2,
    }
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"behaviors": {"Basic": settings}}))
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        flags = f"--env=sim:basic --run-id=run --results-dir={folder}/results --seed=3 --num-envs=2"
        code = main(["learn", str(config), *flags.split(), "--env-args", "--agents", "5"])
    assert code == 0
    return folder / "results" / "run", said.getvalue()


def test_a_run_leaves_ml_agents_layout(finished: tuple[Path, str]) -> None:
    run, _ = finished
    files = {path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file()}
    # A checkpoint is written at the first step past its interval: two simulators of five agents may pass by 5.
    files = {re.sub(r"(?<=Basic-)\d+", lambda step: f"{int(step[0]) // 10}0", file) for file in files}
    (events,) = [file for file in files if "tfevents" in file]
    assert events.startswith("Basic/events.out.tfevents.")
    assert files - {events} == {
        "configuration.yaml",
        "metrics.jsonl",
        "run_logs/training_status.json",
        "run_logs/timers.json",
        "run_logs/trainer.log",
        "run_logs/Player-0.log",
        "run_logs/Player-1.log",
        "Basic/checkpoint.safetensors",
        "Basic/Basic-600.safetensors",
        "Basic/Basic-600.onnx",
        "Basic/Basic-800.safetensors",
        "Basic/Basic-800.onnx",
        "Basic.onnx",
    }


def test_json_lines_are_all_that_standard_output_gets(mlagents_style, configure) -> None:
    configure("Basic", max_steps=200, summary_freq=100)
    learn = ("learn", "config.yaml", "--env=sim:basic", "--log-format=json")
    spoken = mlagents_style(*learn)
    assert spoken.code == 0
    lines = [json.loads(line) for line in spoken.out.splitlines()]
    assert all({"time", "level", "message"} <= set(line) for line in lines)
    assert [line["metrics"]["step"] for line in lines if "metrics" in line] == [100, 200]
    assert lines[-1]["message"].startswith("Finished. Everything is in results")
    refused = mlagents_style(*learn)
    assert refused.code == 2
    assert json.loads(refused.out.splitlines()[-1])["level"] == "ERROR"
    assert "is taken" in refused.err


def test_tensorboard_finds_ml_agents_tags(finished: tuple[Path, str]) -> None:
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

    run, _ = finished
    (path,) = (run / "Basic").glob("events.out.tfevents.*")
    events = list(EventFileLoader(str(path)).Load())
    tags = {value.tag for event in events for value in event.summary.value}
    assert {
        "Environment/Cumulative Reward",
        "Environment/Cumulative Reward_hist",
        "Environment/Episode Length",
        "Losses/Policy Loss",
        "Losses/Value Loss",
        "Policy/Entropy",
        "Policy/Learning Rate",
        "Policy/Epsilon",
        "Policy/Beta",
        "Policy/Extrinsic Value Estimate",
        "Policy/Extrinsic Reward",
        "Hyperparameters/text_summary",
    } <= tags
    assert {event.step for event in events if event.summary.value} == {0, 400, 800}


def test_the_console_speaks_ml_agents_form(finished: tuple[Path, str]) -> None:
    _, said = finished
    steps = [int(match[1]) for match in map(LINE.fullmatch, said.splitlines()) if match]
    assert steps == [400, 800]
    assert "Connected new brain: Basic?team=0" in said
    # On a busy machine the run may be over before its second simulator has started.
    assert said.count("Connected to environment 'sim:basic'") in {1, 2}
    for way_on in (
        "policy of Basic: ",
        "model for Unity: ",
        "tensorboard --logdir ",
        "mlagents-style evaluate run",
    ):
        assert said.count(way_on) == 1


def test_settings_and_other_details_are_in_the_log_of_the_run_alone(finished: tuple[Path, str]) -> None:
    run, said = finished
    log = (run / "run_logs" / "trainer.log").read_text()
    for detail in (
        "Hyperparameters for behavior name Basic:\n    trainer_type: ppo\n    hyperparameters:\n",
        "'Basic' computes the gradient of its updates by hand, in ",
        "Saving to ",
    ):
        assert log.count(detail) == 1
        assert detail not in said
    assert "Version information" not in said
    assert said[: said.index(" Step: 400.")].count("\n") <= 8


def test_a_taken_run_id_is_refused_with_three_ways_out(mlagents_style, configure, hosted) -> None:
    configure("Treadmill", max_steps=18)
    line = ("learn", "config.yaml", "--run-id=t", "--seed=1", *hosted("treadmill"))
    assert mlagents_style(*line).code == 0
    before = Path("results/t/Treadmill/checkpoint.safetensors").read_bytes()
    refused = mlagents_style(*line)
    assert refused.code == 2
    for way_out in ("run id 't' is taken", "--run-id", "--resume", "--force"):
        assert way_out in refused.err
    assert Path("results/t/Treadmill/checkpoint.safetensors").read_bytes() == before

    configure("Treadmill", max_steps=36, file="longer.yaml")
    forced = ("learn", "longer.yaml", *line[2:], "--force")
    assert mlagents_style(*forced).code == 0
    assert read_content(Path("results/t/Treadmill/checkpoint.safetensors"))["step"] == 36
    assert not Path("results/t/Treadmill/Treadmill-18.safetensors").exists()


def test_a_run_starts_from_the_weights_of_another(mlagents_style, configure, hosted) -> None:
    configure("Treadmill", max_steps=18)
    line = ("learn", "config.yaml", *hosted("treadmill"))
    assert mlagents_style(*line, "--run-id=first").code == 0
    said = mlagents_style(*line, "--run-id=second", "--initialize-from=first", "--seed=9")
    assert said.code == 0, said.err
    assert "Starting 'Treadmill' from step 0 with the weights of 'first'." in said.out
    # 18 steps are less than a rollout, so nothing was learned and the weights are those of the first run.
    first, second = (
        read_content(Path(f"results/{run}/Treadmill/checkpoint.safetensors")) for run in ("first", "second")
    )
    assert second["step"] == 18
    for name, weights in first["algorithm"]["network"].items():
        assert torch.equal(weights, second["algorithm"]["network"][name])


def test_a_restless_crowd_of_several_behaviors_never_mixes(mlagents_style, configure, program) -> None:
    configure("Walker", "Flyer", max_steps=400)
    crowd = program("crowd")
    said = mlagents_style("learn", "config.yaml", f"--env={crowd}", "--num-envs=2", "--run-id=c", "--seed=7")
    assert said.code == 0, said.err
    returns: dict[str, set[tuple[float, float, float]]] = {}
    for line in map(json.loads, Path("results/c/metrics.jsonl").read_text().splitlines()):
        score = (line["mean_return"], line["std_return"], line["mean_length"])
        returns.setdefault(line["behavior"], set()).add(score)
    assert returns == {"Walker": {(3.0, 0.0, 6.0)}, "Flyer": {(-2.0, 0.0, 4.0)}}


def test_flags_of_the_past_are_answered_and_change_nothing(mlagents_style, configure, hosted) -> None:
    configure("Treadmill", max_steps=18)
    line = ("learn", "config.yaml", "--seed=1", *hosted("treadmill"))
    said = mlagents_style(*line, "--load", "--train", "--torch", "--tensorflow")
    assert said.code == 0, said.err
    for flag in ("--torch", "--tensorflow"):
        assert f"[WARNING] The command line argument {flag} was removed." in said.err
    assert "the --load option is deprecated and has no effect: use --resume instead" in said.out
    assert "the --train option is deprecated and has no effect" in said.out
    assert mlagents_style(*line, "--load").code == 2, "--load resumes nothing: the run id is taken"


@pytest.mark.process
@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({}, "1000"),
        ({"GOMP_SPINCOUNT": "7"}, "7"),
        ({"OMP_WAIT_POLICY": "ACTIVE"}, "None"),
    ],
)
def test_threads_spin_for_a_moment_unless_told_otherwise(
    given: dict[str, str], used: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import sys, os; from trainer_service.cli import main; main(['schema']); "
        "assert 'torch' not in sys.modules; print(os.environ.get('GOMP_SPINCOUNT'))"
    )
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == used


@pytest.mark.process
@pytest.mark.skipif(os.name != "posix", reason="Windows ends a process without asking it")
def test_pygame_does_not_keep_sigterm_from_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame")
    for driver in ("SDL_VIDEODRIVER", "SDL_AUDIODRIVER"):
        monkeypatch.setenv(driver, "dummy")
    program = (
        "import os, signal; from trainer_service.cli import main; main(['schema']); "
        "import pygame; pygame.init(); pygame.display.set_mode((8, 8)); os.kill(os.getpid(), signal.SIGTERM)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGTERM, done.stderr
