"""What ends a run is told, and stands in its folder for who comes back later; what was learned until then is saved."""

from __future__ import annotations

import errno
import json
import os
import signal
from pathlib import Path

import pytest
import torch
from run_files import checkpoint

from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.status.run_status import Ending, run_status
from trainer_service.errors import OutOfMemory
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import Collector
from trainer_service.running.runs.files import with_short_paths
from trainer_service.running.training.compute import out_of_memory

RUN = Path("results/ppo")


@pytest.fixture
def learn(mlagents_style, configure, hosted):
    """Trains on the treadmill, with room for several updates."""

    def run(*flags: str, stop: str = ""):
        path = configure("Treadmill", max_steps=720)
        path.write_text(path.read_text() + stop)
        return mlagents_style("learn", path, "--seed=1", *flags, *hosted("treadmill"))

    return run


@pytest.fixture
def fails_at_the_second(monkeypatch: pytest.MonkeyPatch):
    """Lets the second call of one of a behavior's methods raise an error."""

    def arrange(method: str, error: Exception) -> None:
        owner = Collector if method == "act" else Behavior
        genuine, calls = getattr(owner, method), []

        def failing(self: object, *arguments: object) -> object:
            calls.append(arguments)
            if len(calls) == 2:
                raise error
            return genuine(self, *arguments)

        monkeypatch.setattr(owner, method, failing)

    return arrange


def saved_step() -> int:
    step: int = checkpoint("ppo", "Treadmill")["step"]
    return step


@pytest.mark.parametrize(
    ("method", "error"),
    [
        ("update", torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore.")),
        ("act", MemoryError()),
    ],
    ids=["device", "host"],
)
def test_an_out_of_memory_error_names_the_configured_sizes(
    learn, fails_at_the_second, method: str, error: Exception
) -> None:
    fails_at_the_second(method, error)
    said = learn()
    assert said.code == 3
    assert "Traceback" not in said.out + said.err
    assert "out of memory on 'cpu': " in said.err
    assert "'Treadmill' has batch_size 32, buffer_size 128, hidden_units 8, num_layers 1" in said.err
    assert saved_step() >= (128 if method == "update" else 0)


def test_networks_that_find_no_memory_end_the_run_at_once(learn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Behavior, "__init__", lambda *_, **__: torch.empty(2**40, 2**40))
    said = learn()
    assert said.code == 3
    assert "out of memory for the networks of 'Treadmill': " in said.err
    assert "hidden_units 8, num_layers 1" in said.err
    assert "starting it again" not in said.out + said.err


def test_torchs_errors_of_too_little_memory_are_recognized(make_behavior) -> None:
    memory = {"memory_size": 8, "sequence_length": 5}
    behavior = make_behavior(network_settings={"hidden_units": 8, "num_layers": 1, "memory": memory})
    with pytest.raises(RuntimeError) as caught:
        torch.empty(2**55)
    told = out_of_memory(caught.value, [behavior])
    assert isinstance(told, OutOfMemory)
    assert "sequence_length 5" in str(told)
    assert out_of_memory(RuntimeError("shapes differ"), [behavior]) is None


def test_an_error_is_not_hidden_by_a_full_disk(
    learn, fails_at_the_second, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def update(self: Behavior) -> None:
        monkeypatch.setattr(os, "fsync", full)
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(Behavior, "update", update)
    with pytest.raises(ZeroDivisionError, match="unexpected"):
        learn()
    assert "cannot write 'results/ppo/Treadmill/checkpoint.safetensors'" in capfd.readouterr().out


def ended_by() -> str:
    told: str = json.loads((RUN / "run_logs" / "timers.json").read_text())["metadata"]["ended_by"]
    assert run_status(read_run(RUN)).ended_by == told
    return told


def test_a_stop_rule_is_kept_with_its_figures(learn) -> None:
    assert learn(stop="stop: {steps: 100}\n").code == 0
    assert ended_by().startswith("stop: steps, 100, are reached at step 1")


def test_a_signal_is_kept_by_its_name(learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: Behavior) -> dict[str, float]:
        signal.raise_signal(signal.SIGTERM)
        return {}

    monkeypatch.setattr(Behavior, "update", update)
    learn()
    assert ended_by() == "SIGTERM"
    assert run_status(read_run(RUN)).ending is Ending.STOPPED


def test_an_error_is_kept_in_its_words(learn, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: Behavior) -> None:
        raise ZeroDivisionError("unexpected")

    monkeypatch.setattr(Behavior, "update", update)
    with pytest.raises(ZeroDivisionError):
        learn()
    assert ended_by() == "ZeroDivisionError: unexpected"
    assert run_status(read_run(RUN)).ending is Ending.FAILED


def test_a_simulator_that_is_gone_for_good_is_kept(mlagents_style, configure, actor) -> None:
    configure("Walker", max_steps=10_000)
    env = actor("introduce", "confirm", "step", "step", "exit=7")
    said = mlagents_style("learn", "config.yaml", f"--env={env}", "--max-lifetime-restarts=0")
    assert said.code != 0
    assert "exited with code 7" in ended_by()
    assert with_short_paths(ended_by()) in said.err


def test_a_run_that_was_resumed_and_killed_was_not_ended_by_what_ended_it_before(learn) -> None:
    learn()
    timers = RUN / "run_logs" / "timers.json"
    metrics = RUN / "metrics.jsonl"
    later_ns = timers.stat().st_mtime_ns + 10**9
    with metrics.open("a") as file:
        file.write('{"behavior": "Treadmill", "step": 400, "wall_s": 9.0}\n')
    os.utime(metrics, ns=(later_ns, later_ns))
    assert run_status(read_run(RUN)).ended_by == ""
