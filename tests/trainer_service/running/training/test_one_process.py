"""One process, two owners: what a hosted environment does to its process does not reach the run, nor the reverse."""

from __future__ import annotations

import gc
import io
import json
import logging
import os
import random
import signal
import sys
import warnings
import weakref
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from every_trainer import SMALL, settings_of

import trainer_service
from trainer_service import Callback, RunView

pytestmark = pytest.mark.process

SETTINGS = settings_of(
    "ppo", max_steps=300, summary_freq=100, checkpoint_interval=100, network_settings=SMALL
)

WRITTEN = {
    "configuration.yaml", "metrics.jsonl", "evaluations.jsonl", "trainer.log", "training_status.json", "timers.json",
    "checkpoint.safetensors", "best.safetensors", "best.onnx",
}  # fmt: skip


def read_settings() -> dict[str, Any]:
    """All that hosted code may set in its process."""
    mask = os.umask(0)
    os.umask(mask)
    return {
        "folder": os.getcwd(),
        "mask": mask,
        "numpy": np.geterr(),
        "warnings": list(warnings.filters),
        "logging": logging.root.manager.disable,
        "recursion": sys.getrecursionlimit(),
        "streams": (sys.stdout, sys.stderr),
        "exit": os._exit,
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "handlers": [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)],
        "thresholds": gc.get_threshold(),
    }


def kept(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that hosted code finds again."""
    return {name: value for name, value in settings.items() if name not in ("handlers", "mask", "warnings")}


class Owner:
    """What changes its process, once at a moment, and expects to find that at all of its later calls."""

    moment, folder, dtype = "", "/", torch.float64
    changed: Mapping[str, Any] | None = None

    def at(self, moment: str) -> None:
        if self.changed is not None:
            assert kept(read_settings()) == self.changed
        elif moment == self.moment:
            self.change()
            self.changed = kept(read_settings())

    def change(self) -> None:
        os.chdir(self.folder)
        os.umask(0o777)
        np.seterr(all="raise")
        warnings.simplefilter("error")
        logging.disable(logging.CRITICAL)
        sys.setrecursionlimit(2345)
        sys.stdout = io.StringIO()
        torch.set_default_dtype(self.dtype)
        torch.set_default_device("meta")
        torch.set_grad_enabled(False)
        torch.set_num_threads(2)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)


class Environment(gymnasium.Env[Any, Any], Owner):
    observation_space = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.at("constructor")

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.at("reset")
        self.time = 0
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.at("step")
        self.time += 1
        seen = self.np_random.uniform(-1, 1, 2).astype(np.float32)
        return seen, float(np.mean(action)), self.time % 7 == 0, False, {}

    def close(self) -> None:
        self.at("close")


@pytest.fixture(autouse=True)
def process_of_before() -> Iterator[None]:
    """Undoes what a run that fails lets pass."""
    before, mask = read_settings(), os.umask(0o022)
    with warnings.catch_warnings(), np.errstate():
        yield
    os.umask(mask)
    logging.disable(logging.NOTSET)
    sys.setrecursionlimit(before["recursion"])
    sys.stdout, sys.stderr = before["streams"]
    torch.set_default_device(None)
    torch.set_default_dtype(before["dtype"])
    torch.set_grad_enabled(True)
    torch.set_num_threads(before["threads"])
    for number, handler in zip(
        (signal.SIGINT, signal.SIGTERM, signal.SIGHUP), before["handlers"], strict=True
    ):
        signal.signal(number, handler)


def changing(moment: str, workplace: Path) -> type[Environment]:
    """An environment that changes its process at a moment, and goes elsewhere."""
    return type("Environment", (Environment,), {"moment": moment, "folder": str(workplace / "elsewhere")})


def saved_in(folder: Path) -> dict[str, bytes]:
    """The last checkpoint of each behavior, random streams included."""
    return {path.parent.name: path.read_bytes() for path in folder.glob("*/checkpoint.safetensors")}


@pytest.mark.parametrize("moment", ["constructor", "step"])
def test_changes_of_the_process_reach_neither_the_run_nor_what_follows(workplace: Path, moment: str) -> None:
    (workplace / "elsewhere").mkdir()
    configuration = {"default_settings": SETTINGS, "evaluation": {"every_steps": 150, "episodes": 2}}
    gc.set_threshold(700, 10, 10)  # a command that ran in this process before has set others
    before, found = read_settings(), []
    for run_id, name in (("plain", ""), ("changed", moment)):
        made = changing(name, workplace)
        outcome = trainer_service.train(configuration, made, run_id=run_id, seed=5, verbose=0)
        assert read_settings() == before
        found.append(saved_in(Path("results", run_id)))
        files = {path.name for path in Path("results", run_id).rglob("*") if path.is_file()}
        assert files >= WRITTEN
        assert outcome.folder == Path("results", run_id)
    assert found[0]
    assert found[0] == found[1]
    assert not list((workplace / "elsewhere").iterdir())
    for path in Path("results/changed").rglob("*"):
        assert path.stat().st_mode & 0o700, path
    more = {"default_settings": {**SETTINGS, "max_steps": 400}}
    trainer_service.train(more, made, run_id="changed", resume=True, verbose=0)
    assert trainer_service.evaluate("changed", made, episodes=2)
    assert read_settings() == before


def test_relative_paths_are_those_of_the_working_folder_the_run_began_in(workplace: Path) -> None:
    (workplace / "elsewhere").mkdir()
    away = changing("constructor", workplace)
    trainer_service.train(SETTINGS, Environment, run_id="first", verbose=0)
    settings = {**SETTINGS, "init_path": "results/first/Environment/checkpoint.safetensors"}
    outcome = trainer_service.train(settings, away, run_id="second", results_dir="deep/results", verbose=0)
    status = json.loads((outcome.folder / "run_logs/training_status.json").read_text())
    final = status["Environment"]["final_checkpoint"]["file_path"]
    assert final == "deep/results/second/Environment.onnx"
    assert not list((workplace / "elsewhere").iterdir())


def test_one_filter_for_all_warnings_ends_no_save(workplace: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Checkpoints and models are written by a thread, also while the environment has its own settings in force."""

    class Slow(Environment):
        moment = "constructor"

        def change(self) -> None:
            warnings.simplefilter("error")
            torch.set_default_dtype(torch.float64)

    settings = {**SETTINGS, "checkpoint_interval": 20, "keep_checkpoints": 100}
    outcome = trainer_service.train(settings, Slow, run_id="saved", verbose=0)
    assert len(list(outcome.folder.glob("*/*-*.onnx"))) > 10
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


class Remembering(Callback):
    """Weak references to what a run has learned with."""

    def on_run_end(self, run: RunView) -> None:
        self.learner = weakref.ref(run.behaviors["Environment"])


def test_a_run_leaves_nothing_in_cycles(workplace: Path) -> None:
    settings = settings_of("dqn", max_steps=200, summary_freq=100, network_settings=SMALL)
    gc.disable()
    try:
        for number in range(3):
            remembering = Remembering()
            trainer_service.train(
                settings, Environment, run_id=f"r{number}", callbacks=[remembering], verbose=0
            )
            assert remembering.learner() is None
    finally:
        gc.enable()
    assert gc.get_freeze_count() == 0


def random_states() -> tuple[Any, ...]:
    kind, keys, *rest = np.random.get_state()  # type: ignore[misc]
    return random.getstate(), kind, keys.tobytes(), *rest, torch.get_rng_state().numpy().tobytes()


def test_global_random_generators_are_neither_read_nor_moved(workplace: Path) -> None:
    actions = gymnasium.spaces.Box(-1, 1, (2,), np.float32)
    kind = type("Environment", (Environment,), {"action_space": actions})
    settings = settings_of("sac", max_steps=300, summary_freq=100, network_settings=SMALL)
    found = []
    for seed in (1, 2):
        for seed_generator in (random.seed, np.random.seed, torch.manual_seed):
            seed_generator(seed)
        before = random_states()
        trainer_service.train(settings, kind, run_id=f"s{seed}", seed=5, verbose=0)
        assert random_states() == before
        found.append(saved_in(Path("results", f"s{seed}")))
    assert found[0]
    assert found[0] == found[1]
