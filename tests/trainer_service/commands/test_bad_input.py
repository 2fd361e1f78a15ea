"""Mistakes are reported in one message that names it, with exit code 2 (1 where a simulator failed on the way)."""

from __future__ import annotations

import errno
import json
import os
import pickle
import socket
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.runs.checkpoint import read_content, save_checkpoint

ONCE = ("--max-lifetime-restarts=0", "--run-id=w", "--seed=1")
SILENCE_S = 4
"""Enough for a program to start on a busy machine, where the test is about what it does not say then."""

posix_only = pytest.mark.skipif(os.name != "posix", reason="the simulators are scripts")


@pytest.fixture
def refused(mlagents_style) -> Callable[..., str]:
    """Runs a command that must fail; returns its one message."""

    def run(*line: object, code: int = 2) -> str:
        said = mlagents_style(*line)
        assert said.code == code, said
        assert "Traceback" not in said.out + said.err
        assert said.err.count("mlagents-style: error: ") == 1
        return said.err.partition("mlagents-style: error: ")[2]

    return run


@pytest.fixture
def play(refused, configure, actor) -> Callable[..., str]:
    """A run on a simulator that does these acts; returns why it failed."""
    configure("Walker")

    def run(*acts: str, code: int) -> str:
        patience = (f"--timeout-wait={SILENCE_S}",) if "silence" in acts else ()
        message = refused("learn", "config.yaml", f"--env={actor(*acts)}", *ONCE, *patience, code=code)
        assert message.startswith("simulator 0 ("), message
        return message

    return run


def weights(run_id: str = "w") -> list[torch.Tensor]:
    state = read_content(Path(f"results/{run_id}/Walker/checkpoint.safetensors"))["algorithm"]
    return [*state["network"].values(), *state["normalizer"].values()]


def test_a_configuration_that_cannot_be_used(refused, workplace: Path) -> None:
    Path("config.yaml").write_text("behaviors:\n  B:\n    max_stepz: 3")
    message = refused("learn", "config.yaml", "--env=sim:basic")
    assert "config.yaml:3: behaviors.B.max_stepz: unknown key (did you mean 'max_steps'?)" in message
    assert not Path("results").exists()


@pytest.mark.parametrize("run_id", ["..", "/var/run", "", "x" * 300, "a/b", ".", "run\n", "\udce8\udcb5"])
@pytest.mark.parametrize("command", ["learn", "evaluate"])
def test_a_run_id_that_cannot_be_a_folder_of_results(
    refused, configure, workplace: Path, run_id: str, command: str
) -> None:
    configure("Basic")
    before = sorted(workplace.parent.rglob("*"))
    line = ["config.yaml", "--env=sim:basic", f"--run-id={run_id}"] if command == "learn" else [run_id]
    message = refused(command, *line)
    assert any(words in message for words in ("run id", "run_id", "no run", "configuration.yaml"))
    assert sorted(workplace.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "line",
    ["evaluate {}/x", "status {}", "export {}/x", "compare {}/x", "clone --demo {}", "import-checkpoint {} --run-id x",
     "learn config.yaml --env=sim:basic --results-dir={}", "learn config.yaml --env={}",
     "learn config.yaml --env=sim:basic --initialize-from={}/x", "play sim:basic --policy {}/x"],
)  # fmt: skip
def test_a_name_that_is_too_long_is_told_in_a_line(refused, configure, workplace: Path, line: str) -> None:
    configure("Basic")
    message = refused(*line.format("n" * 5000).split())
    assert message.startswith("File name too long: '")
    assert len(message) < 500


@pytest.mark.parametrize(
    "error",
    [PermissionError(errno.EACCES, "Permission denied", "results/x"), OSError(errno.ENOSPC, "No space left")],
)
def test_what_the_system_refuses_is_told_in_a_line(
    refused, workplace: Path, monkeypatch: pytest.MonkeyPatch, error: OSError
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("trainer_service.commands.status.command.find_run", fail)
    expected = f"{error.strerror}: 'results/x'" if error.filename else error.strerror
    assert refused("status", "x").strip() == expected


@pytest.mark.parametrize("flags", [("--port={}",), ("--env=sim:basic", "--metrics-port={}")])
def test_a_port_that_is_in_use(refused, configure, workplace: Path, flags: tuple[str, ...]) -> None:
    configure("Basic")
    with socket.create_server(("127.0.0.1", 0)) as owner:
        port = owner.getsockname()[1]
        message = refused("learn", "config.yaml", *(flag.format(port) for flag in flags))
    assert f"127.0.0.1:{port} is in use by process {os.getpid()} (" in message
    assert "--env=sim:basic" not in flags or not (workplace / "results").exists(), "before there is a folder"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.0.2.1"])
def test_a_host_that_other_machines_reach_without_a_certificate(
    refused, configure, workplace: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    monkeypatch.setenv("TRAINER_SERVICE_CONFIG", str(workplace / "user"))
    configure("Basic")
    message = refused("learn", "config.yaml", f"--host={host}")
    assert message.startswith("to make a certificate the package cryptography is needed")
    assert 'pip install -e ".[remote]"' in message
    assert "--insecure-listen" in message
    assert not (workplace / "results").exists()


def test_listening_for_other_machines_is_warned_of(mlagents_style, configure, free_port: int) -> None:
    configure("Basic")
    line = ["--host=0.0.0.0", "--insecure-listen", f"--port={free_port}", "--timeout-wait=1"]
    said = mlagents_style("learn", "config.yaml", *line)
    assert f"no simulator attached to 0.0.0.0:{free_port} within 1 s" in said.err
    assert "[WARNING] Other machines reach this port (--insecure-listen)" in said.out


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ("builds/Walker", "no such program"),
        (".", "is a folder"),
        ("config.yaml", "is not executable; run: chmod 755 "),
        ("sim:basik", "did you mean 'sim:basic'?"),
        ("gym:", "expected a name after 'gym:'"),
        ("gym:NoSuchEnvironment-v0", "NoSuchEnvironment"),
    ],
)
def test_an_environment_that_cannot_be_started(refused, configure, env: str, expected: str) -> None:
    configure("Basic")
    message = refused("learn", "config.yaml", f"--env={env}", "--run-id=w")
    assert env in message
    assert expected in message


@pytest.mark.parametrize(
    ("device", "expected"),
    [
        ("abacus", "torch device 'abacus': expected cpu, cuda, cuda:N, mps or auto\n"),
        ("GPU:1", "torch device 'GPU:1': expected cpu, cuda, cuda:N, mps or auto; did you mean cuda:1?\n"),
        ("cuda:77", "torch device 'cuda:77' cannot be used here: "),
        ("meta", "torch device 'meta' cannot be used here: "),
    ],
)
def test_a_device_that_is_not_there(
    mlagents_style, configure, workplace: Path, device: str, expected: str
) -> None:
    configure("Basic")
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", f"--torch-device={device}")
    assert (said.code, said.out) == (2, ""), "refused before any simulator starts"
    assert said.err.startswith(f"mlagents-style: error: {expected}")
    assert not (workplace / "results").exists()


@posix_only
def test_a_program_that_exits_at_once_is_quoted(play) -> None:
    message = play("print=the_ball_is_lost", "exit=3", code=2)
    assert "exited with code 3, before its first step" in message
    assert message.rstrip().endswith("the ball is lost")


MISTAKES = {
    "garbage": "expected a UnityMessageProto, got 15 bytes",
    "duplicate-ids": "behavior 'Walker?team=0', agent 7: two rows of one message ask for a decision",
}


@posix_only
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_in_between_ends_a_run_without_harm(play, mistake: str) -> None:
    good = ["step"] * 42  # 160 agent steps and more: one update of 128
    message = play("introduce", "confirm", *good, mistake, code=1)
    assert MISTAKES[mistake] in message
    assert "it was already started again 0 of at most 0 times" in message
    assert read_content(Path("results/w/Walker/checkpoint.safetensors"))["step"] > 128
    assert all(torch.isfinite(values).all() for values in weights())


@posix_only
def test_values_that_cannot_be_used_cost_themselves_only(mlagents_style, configure, actor) -> None:
    """They are 0 to every learner; the log says where they were, the summary how many."""
    mistakes = {
        "nan-observation": "agent 0, sensor 0 'eyes', float 1: expected a finite number, got nan",
        "infinite-observation": "agent 0, sensor 0 'eyes', float 1: expected a finite number, got inf",
        "nan-reward": "behavior 'Walker?team=0', agent 0, reward: expected a finite number, got nan",
        "infinite-reward": "behavior 'Walker?team=0', agent 0, reward: expected a finite number, got -inf",
    }
    configure("Walker", max_steps=200)
    acts = [act for mistake in mistakes for act in (*["step"] * 8, mistake)]
    env = actor("introduce", "confirm", *acts, "forever")
    said = mlagents_style("learn", "config.yaml", f"--env={env}", *ONCE)
    assert said.code == 0
    for text in mistakes.values():
        assert f"{text}: it was replaced by 0" in said.out + said.err
    assert all(torch.isfinite(values).all() for values in weights())
    summaries = [json.loads(line) for line in Path("results/w/metrics.jsonl").read_text().splitlines()]
    assert sum(each.get("replaced_values", 0) for each in summaries) == len(mistakes)


@posix_only
@pytest.mark.parametrize(
    ("ending", "expected"),
    [
        ("exit=5", "exited with code 5"),
        ("silence", f"silent for {SILENCE_S} s (timeout_wait); it owes its next step"),
        ("goodbye", "stopped by itself (status 400), then exited with code 0"),
    ],
)
def test_a_lost_simulator_ends_the_run(play, ending: str, expected: str) -> None:
    assert expected in play("introduce", "confirm", "step", "step", ending, code=1)


@posix_only
def test_a_behavior_without_settings(refused, configure, actor) -> None:
    configure("Walkers")
    message = refused("learn", "config.yaml", f"--env={actor('introduce', 'confirm', 'forever')}", *ONCE)
    assert "The behavior name 'Walker' has not been specified" in message
    assert "is 'Walkers' meant?" in message


def test_behaviors_of_lessons_and_targets_that_never_show_up_are_named(
    mlagents_style, workplace: Path
) -> None:
    Path("config.yaml").write_text(
        """
default_settings: {max_steps: 20000, summary_freq: 500, network_settings: {hidden_units: 8, num_layers: 1}}
environment_parameters:
  height:
    curriculum:
      - {name: Low, value: 1, completion_criteria: {behavior: Pupil, threshold: 1}}
      - {name: High, value: 2}
stop: {target_return: {Basic: -1000, Ghost: 1}}
"""
    )
    said = mlagents_style("learn", "config.yaml", "--env=sim:basic", *ONCE, "--env-args", "--agents", "32")
    assert said.code == 0
    assert said.out.count("No simulator has declared 'Pupil', 'Ghost'") == 1
    assert "The run ends by its rules (stop): target_return is reached, 'Basic' has" in said.out


@posix_only
def test_a_disk_that_stays_full_leaves_the_last_checkpoint(
    refused, configure, hosted, monkeypatch: pytest.MonkeyPatch
) -> None:
    configure("Treadmill", max_steps=72, checkpoint_interval=36)
    newest, replace = Path("results/w/Treadmill/checkpoint.safetensors"), os.replace

    def refuse(source: Any, target: Any) -> None:
        if Path(target) == newest.absolute() and newest.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        replace(source, target)

    monkeypatch.setattr(os, "replace", refuse)
    message = refused("learn", "config.yaml", *ONCE, *hosted("treadmill"))
    assert f"cannot write '{newest}': No space left on device" in message
    assert read_content(newest)["step"] == 36
    assert not list(newest.parent.glob(".*"))


class Bomb:
    """An object as a stranger's checkpoint might hold it: code that runs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.mkdir, ("exploded",)


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-200])


def emptied(path: Path) -> None:
    path.write_bytes(b"")


def pickled_code(path: Path) -> None:
    path.write_bytes(pickle.dumps(Bomb()))


def incomplete(path: Path) -> None:
    content = read_content(path)
    del content["spec"]
    torch.save(content, path)


DAMAGES = [truncated, emptied, pickled_code, incomplete]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("command", ["resume", "initialize", "evaluate"])
def test_a_damaged_checkpoint_is_named_before_anything_starts(
    refused, configure, make_behavior, damage: Callable[[Path], None], command: str
) -> None:
    checkpoint = Path("results/w/Walker/checkpoint.safetensors")
    save_checkpoint(checkpoint_of(make_behavior(name="Walker")), checkpoint)
    Path("results/w/configuration.yaml").write_text(configure("Walker").read_text())
    damage(checkpoint)
    line: tuple[str, ...] = {
        "resume": ("learn", "config.yaml", "--run-id=w", "--resume", "--env=sim:basic"),
        "initialize": ("learn", "config.yaml", "--run-id=v", "--initialize-from=w", "--env=sim:basic"),
        "evaluate": ("evaluate", "w", "--env=sim:basic"),
    }[command]
    assert f"'{checkpoint}'" in refused(*line)
    assert not Path("exploded").exists()
