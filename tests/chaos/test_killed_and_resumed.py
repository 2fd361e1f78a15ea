"""Runs that are killed and go on: they end as if they had never been killed, to the last bit.

Simulators are processes without chance that stand at every episode's start as they stand at their own, and
checkpoints lie between two episodes: what a simulator is in the middle of is not the trainer's to restore.
"""

from __future__ import annotations

import json
import random
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from processes import Process, pause, steps, write_configuration, write_program
from run_files import CLOCK

from trainer_service.running.runs.checkpoint import read_content
from trainer_service.running.runs.replay_file import ReplayFile

EPISODES = 24
SAVED_EVERY = 3
"""Episodes between two checkpoints. A rollout has four, so most checkpoints lie within one."""


def lesson(name: str, value: float, beyond: float | None = None) -> dict[str, Any]:
    """A lesson that ends with a reset when the mean return is beyond so much; the last one if None."""
    criteria = {"behavior": "Pupil", "threshold": beyond, "min_lesson_length": 20, "require_reset": True}
    sampled = {"sampler_type": "uniform", "sampler_parameters": {"min_value": value, "max_value": value}}
    return {"name": name, "value": sampled, **({} if beyond is None else {"completion_criteria": criteria})}


LESSONS = {
    "height": {"curriculum": [lesson("low", 1.0, 2.5), lesson("middle", 2.0, 5.5), lesson("high", 3.0)]}
}
TEAM = {"teams": {"Pursuit": {"Leader": 1, "Runner": 2}}}
ON_POLICY = {"batch_size": 12, "buffer_size": 72}
REPLAY = {
    "batch_size": 16,
    "buffer_size": 120,  # fewer than the steps of a run, so that the oldest are replaced
    "buffer_init_steps": 36,
    "steps_per_update": 6,
    "save_replay_buffer": True,
}
NETWORK = {"normalize": True, "hidden_units": 8, "num_layers": 1}
SMALL = {"network_settings": {"hidden_units": 4, "num_layers": 1}}
LEAGUE = {
    "save_steps": 24, "team_change": 64, "swap_steps": 16, "window": 2, "pfsp_weighting": "hard",
    "opponents": {"self": 1, "random": 1},
}  # fmt: skip


def memory(kind: str) -> dict[str, Any]:
    return {**NETWORK, "memory": {"type": kind, "memory_size": 4, "sequence_length": 4}}


@dataclass(frozen=True)
class Kind:
    """A kind of run: its simulator, one of tests/programs, and what its configuration says."""

    program: str
    behavior: str
    episode: int
    """Agent steps of one episode of all agents that learn."""
    trainer_type: str
    hyperparameters: Mapping[str, Any]
    settings: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)

    def start(self, scene: Any, run_id: str, *flags: str) -> Process:
        """Starts a run on a simulator of its own."""
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
        write_configuration(scene.folder, {self.behavior: behavior}, **self.sections)
        name, *arguments = self.program.split()
        program = write_program(scene.folder, name, *arguments)
        run: Process = scene.learn(f"--env={program}", f"--run-id={run_id}", "--seed=5", *flags)
        return run


CURIOUS = {"reward_signals": {"extrinsic": {}, "curiosity": {**SMALL, "strength": 0.1}}}
SURPRISED = {"reward_signals": {"extrinsic": {}, "rnd": {**SMALL, "strength": 0.1}}}
KINDS = {
    "ppo, curiosity, lstm": Kind(
        "treadmill", "Treadmill", 18, "ppo", ON_POLICY, {**CURIOUS, "network_settings": memory("lstm")}
    ),
    "sac, rnd, prioritized": Kind(
        "treadmill", "Treadmill", 18, "sac",
        {**REPLAY, "replay": {"type": "prioritized", "beta_updates": 40}}, SURPRISED,
    ),
    "mappo of unlike agents, popart, gru": Kind(
        "pursuit", "Pursuit", 36, "mappo", {**ON_POLICY, "buffer_size": 144, "value_normalization": "popart"},
        {"network_settings": memory("gru")}, TEAM,
    ),
    "sac, curriculum of samplers": Kind(
        "schoolroom --silent", "Pupil", 12, "sac", REPLAY, sections={"environment_parameters": LESSONS}
    ),
    "league, evaluations": Kind(
        "rivals --ids Rival?team=0 Rival?team=1", "Rival", 8, "ppo", {"batch_size": 8, "buffer_size": 32},
        {"self_play": LEAGUE}, {"evaluation": {"every_steps": 36, "episodes": 3}},
    ),
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_run_ends_as_if_it_had_not_been_killed(scene, note, kind: str) -> None:
    dice, of = random.Random(kind), KINDS[kind]
    finish(of.start(scene, "straight"))
    lost = kill(scene, of, dice)
    finish(of.start(scene, "killed", "--resume"))
    note(
        f"trainer killed between two checkpoints, `--resume`: {kind}",
        f"1 × kill −9; {lost} agent steps of whole episodes were lost",
        "ended equal to the last bit to a run that was not killed (checkpoint, replay buffer, metrics)",
    )
    assert_equal_states(*(state(scene.folder / "results" / run) for run in ("killed", "straight")))


def finish(run: Process) -> None:
    assert run.end() == 0, run.output[-3000:]


def kill(scene: Any, kind: Kind, dice: random.Random) -> int:
    """Kills a run soon after one of its checkpoints. Returns how many steps told by summaries it loses.

    One that had come to its end by then begins anew.
    """
    for _ in range(20):
        run = kind.start(scene, "killed", "--force")
        run.wait_for_output("Saved ", times=dice.randint(1, EPISODES // SAVED_EVERY - 2))
        pause(dice.uniform(0.0, 0.1))
        run.signal(signal.SIGKILL)
        if run.end() == -signal.SIGKILL:
            (path,) = (scene.folder / "results" / "killed").glob("*/checkpoint.safetensors")
            saved: int = read_content(path)["step"]
            return max(saved, *steps(run.output)) - saved
    raise AssertionError(f"{kind} was never killed before its end")


def state(run: Path) -> dict[str, Any]:
    """All that a run leaves, but models: leaves of checkpoints, arrays of replay buffers, rows without the clock."""
    found: dict[str, Any] = {}
    for path in run.glob("*/checkpoint.safetensors"):
        found |= flat(read_content(path))
    for path in run.glob("*/replay.npz"):
        arrays: dict[str, Any] = {}
        ReplayFile(path).load(arrays.update)
        experience = {name: array for name, array in arrays.items() if not name.startswith("saved.")}
        found |= {f"replay/{name}": torch.from_numpy(array) for name, array in experience.items()}
    for file in run.glob("*.jsonl"):
        for number, row in enumerate(map(json.loads, file.read_text().splitlines()), 1):
            found[f"{file.name}:{number}"] = {key: value for key, value in row.items() if key not in CLOCK}
    return found
