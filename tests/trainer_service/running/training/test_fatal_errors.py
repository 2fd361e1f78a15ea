"""Runs that an error ends: what was learned until then is saved, and the error is told."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from trainer_service.errors import OutOfMemory
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import Collector
from trainer_service.running.runs.checkpoint import read_content
from trainer_service.running.training.compute import out_of_memory

CHECKPOINT = Path("results/ppo/Treadmill/checkpoint.safetensors")


@pytest.fixture
def learn(mlagents_style, configure, hosted):
    """Trains on the treadmill, with room in each rollout for two updates before the end."""
    configure("Treadmill", max_steps=720)

    def run(*flags: str):
        return mlagents_style("learn", "config.yaml", "--seed=1", *flags, *hosted("treadmill"))

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
    step: int = read_content(CHECKPOINT)["step"]
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
