"""Runs of unlike kinds that are killed and continue: they end as if they had never been killed, to the last bit.

Simulators are processes without chance that stand at every episode's start as they stand at their own, and
checkpoints lie between two episodes: what a simulator is in the middle of is not the trainer's to restore.
"""

from __future__ import annotations

import json
import random
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import flat
from fault_counts import fault_counts
from processes import Process, steps, wait_until, write_configuration, write_program

from trainer_service.running.runs.checkpoint import read_content
from trainer_service.running.runs.replay_file import ReplayFile

EPISODES = 24
SAVED_EVERY = 3
"""Episodes between two checkpoints. A rollout has four, so most checkpoints lie within one."""


NETWORK = {"normalize": True, "hidden_units": 8, "num_layers": 1}
SMALL = {"network_settings": {"hidden_units": 4, "num_layers": 1}, "strength": 0.1}


def memory(kind: str) -> dict[str, Any]:
    return {"network_settings": {**NETWORK, "memory": {"type": kind, "memory_size": 4, "sequence_length": 4}}}


def rewards(name: str) -> dict[str, Any]:
    return {"reward_signals": {"extrinsic": {}, name: SMALL}}


@dataclass(frozen=True)
class Kind:
    """A kind of run: its simulator, one of tests/programs, and what its configuration says."""

    program: str
    behavior: str
    episode: int
    """Agent steps of one episode of all agents that learn."""
    trainer_type: str
    hyperparameters: Mapping[str, Any]
    settings: Mapping[str, Any]
    sections: Mapping[str, Any] = field(default_factory=dict)

    def configure(self, folder: Path) -> Path:
        """Writes its configuration."""
        behavior = {
            "trainer_type": self.trainer_type,
            "hyperparameters": {"learning_rate": 0.01, **self.hyperparameters},
            "network_settings": NETWORK,
            "max_steps": EPISODES * self.episode,
            "time_horizon": 20,
            "summary_freq": self.episode,
            "checkpoint_interval": SAVED_EVERY * self.episode,
            "keep_checkpoints": 3,
            **self.settings,
        }
        return write_configuration(folder, {self.behavior: behavior}, **self.sections)


def rollout(episode: int) -> dict[str, int]:
    return {"batch_size": episode, "buffer_size": 4 * episode}


REPLAY = {
    "batch_size": 16,
    "buffer_size": 120,  # fewer than the steps of a run, so that the oldest are replaced
    "buffer_init_steps": 36,
    "steps_per_update": 6,
    "save_replay_buffer": True,
    "replay": {"type": "prioritized", "beta_updates": 40},
}
KINDS = {
    "ppo, curiosity, lstm": Kind(
        "treadmill", "Treadmill", 18, "ppo", rollout(18), {**rewards("curiosity"), **memory("lstm")}
    ),
    "sac, rnd, prioritized": Kind("treadmill", "Treadmill", 18, "sac", REPLAY, rewards("rnd")),
    "mappo of unlike agents, popart, gru, rnd": Kind(
        "pursuit",
        "Pursuit",
        36,
        "mappo",
        {**rollout(36), "value_normalization": "popart"},
        {**rewards("rnd"), **memory("gru")},
        {"teams": {"Pursuit": {"Leader": 1, "Runner": 2}}},
    ),
}
"""Unlike in what they save. What every trainer saves is held by the tests of ``running/training``, without a kill."""


@pytest.mark.thorough
@fault_counts(1, len(KINDS), minutes=60)
def test_a_killed_run_of_any_kind_ends_as_if_it_had_not_been_killed(scene, note, count: int) -> None:
    dice = random.Random(count)
    differing: dict[str, list[str]] = {}
    lost = []
    for kind in list(KINDS)[:count]:
        straight = kind.replace(",", "").replace(" ", "-")
        killed = f"{straight}-killed"
        finish(scene, KINDS[kind], straight)
        lost.append(kill(scene, KINDS[kind], killed, pause_between_saves(scene.folder, straight), dice))
        finish(scene, KINDS[kind], killed, "--resume")
        differing[kind] = differences(*(scene.folder / "results" / run for run in (straight, killed)))
    equal = sum(not keys for keys in differing.values())
    note(
        "trainer killed between two checkpoints and in unfinished episodes, `--resume`",
        f"{len(differing)} kinds, 1 × kill −9 each; {median(lost):g} agent steps of whole episodes were lost (median), "
        f"{max(lost)} at most",
        f"{equal} ended equal to the last bit to a run that was not killed (checkpoints, replay buffers, metrics), "
        f"{len(differing) - equal} otherwise",
    )
    assert {kind: keys for kind, keys in differing.items() if keys} == {}


def start(scene: Any, kind: Kind, run_id: str, *flags: str) -> Process:
    """Starts a run on a simulator of its own."""
    kind.configure(scene.folder)
    program = write_program(scene.folder, kind.program)
    run: Process = scene.learn(f"--env={program}", f"--run-id={run_id}", "--seed=5", *flags)
    return run


def finish(scene: Any, kind: Kind, run_id: str, *flags: str) -> None:
    """Lets a run go on to its end."""
    run = start(scene, kind, run_id, *flags)
    assert run.end() == 0, f"{kind}: {run.output[-3000:]}"


def kill(scene: Any, kind: Kind, run_id: str, pause_s: float, dice: random.Random) -> int:
    """Kills a run at a random moment after one of its checkpoints. Returns how many steps told by summaries it loses.

    One that had come to its end by then begins anew.
    """
    for _ in range(20):
        run = start(scene, kind, run_id, "--force")
        run.wait_for_output("Saved ", times=dice.randint(1, EPISODES // SAVED_EVERY - 2))
        moment = time.monotonic() + dice.uniform(0.0, pause_s)
        wait_until(lambda: time.monotonic() >= moment, "a moment")  # noqa: B023
        run.signal(signal.SIGKILL)
        folder = scene.folder / "results" / run_id
        if run.end() == -signal.SIGKILL:
            saved = newest_step(folder)
            return max(saved, *steps(run.output)) - saved
    raise AssertionError(f"{kind} was never killed before its end")


def newest_step(run: Path) -> int:
    (path,) = run.glob("*/checkpoint.safetensors")
    step: int = read_content(path)["step"]
    return step


def pause_between_saves(folder: Path, run_id: str) -> float:
    """The seconds between two checkpoints of a run that has ended, the median of them."""
    saves = sorted(path.stat().st_mtime for path in (folder / "results" / run_id).glob("*/*-*.safetensors"))
    return float(median(later - earlier for earlier, later in pairwise(saves)))


def rows(path: Path) -> list[dict[str, Any]]:
    """Rows of a file without the clock; none where there is no such file."""
    if not path.exists():
        return []
    clock = {"wall_s", "steps_per_s"}
    lines = map(json.loads, path.read_text().splitlines())
    return [{key: value for key, value in row.items() if key not in clock} for row in lines]


def differences(one: Path, other: Path) -> list[str]:
    """Returns what differs between two runs: files, keys of checkpoints and arrays, and rows."""
    first, second = state(one), state(other)
    return sorted(
        key
        for key in first.keys() | second.keys()
        if key not in first or key not in second or not same(first[key], second[key])
    )


def state(run: Path) -> dict[str, Any]:
    """All that a run leaves, but models: leaves of checkpoints, arrays of replay buffers, rows without the clock."""
    found: dict[str, Any] = {}
    for path in run.glob("*/checkpoint.safetensors"):
        found |= flat(read_content(path), path.parent.name)
    for path in run.glob("*/replay.npz"):
        found |= {f"{path.parent.name}/replay/{name}": array for name, array in replay(path).items()}
    for name in ("metrics.jsonl", "evaluations.jsonl"):
        found |= {f"{name}:{number}": row for number, row in enumerate(rows(run / name), 1)}
    return found


def replay(path: Path) -> dict[str, Any]:
    """The arrays of a replay buffer, without what is said of the save itself."""
    found: dict[str, Any] = {}
    ReplayFile(path).load(found.update)
    return {name: array for name, array in found.items() if not name.startswith("saved.")}


def same(one: Any, other: Any) -> bool:
    """Whether two leaves are equal to the last bit."""
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return one.dtype == other.dtype and np.array_equal(one, other)
    return bool(one == other)
