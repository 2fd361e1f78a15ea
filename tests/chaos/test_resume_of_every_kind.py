"""Runs of every kind that are killed and go on: they end as if they had never been killed, to the last bit.

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
from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationWriter
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec

EPISODES = 24
SAVED_EVERY = 3
"""Episodes between two checkpoints. A rollout has four, so most checkpoints lie within one."""


@dataclass(frozen=True)
class World:
    """A simulator: one of tests/programs and its arguments, and what a configuration must say about it."""

    program: tuple[str, ...]
    behavior: str
    episode: int
    """Agent steps of one episode of all agents that learn."""
    sections: Mapping[str, Any] = field(default_factory=dict)


def lesson(name: str, value: Any, beyond: float | None = None) -> dict[str, Any]:
    """A lesson that ends with a reset when the mean return is beyond so much; the last one if None."""
    criteria = {"behavior": "Pupil", "threshold": beyond, "min_lesson_length": 20, "require_reset": True}
    return {"name": name, "value": value, **({} if beyond is None else {"completion_criteria": criteria})}


def sampler(low: float, high: float) -> dict[str, Any]:
    parameters = {"min_value": low, "max_value": high}
    return {"sampler_type": "uniform", "sampler_parameters": parameters}


# Samplers draw in the simulator, which begins anew with its seed: the one that agents see has no room for chance.
LESSONS = {
    "height": {
        "curriculum": [
            lesson("low", sampler(1.0, 1.0), 2.5),
            lesson("middle", sampler(2.0, 2.0), 5.5),
            lesson("high", 3.0),
        ]
    },
    "gravity": sampler(9.0, 10.0),
}

SINGLE_RANK = World(("treadmill",), "Treadmill", 18)
CHOOSING = World(("treadmill", "--actions", "discrete"), "Treadmill", 18)
STEERING = World(("treadmill", "--actions", "continuous"), "Treadmill", 18)
GROUP = World(("treadmill", "--group"), "Treadmill", 18)
CHOOSING_GROUP = World((*CHOOSING.program, "--group"), "Treadmill", 18)
STEERING_GROUP = World((*STEERING.program, "--group"), "Treadmill", 18)
TEAM = World(("pursuit",), "Pursuit", 36, {"teams": {"Pursuit": {"Leader": 1, "Runner": 2}}})
CHOOSING_TEAM = World(("pursuit", "--discrete"), "Pursuit", 36, TEAM.sections)
SCHOOL = World(("schoolroom", "--silent"), "Pupil", 12, {"environment_parameters": LESSONS})
RIVALS = World(("rivals", "--ids", "Rival?team=0", "Rival?team=1"), "Rival", 8)


@dataclass(frozen=True)
class Kind:
    """A kind of run: where it learns, how, and what its configuration says besides."""

    world: World
    trainer_type: str
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    sections: Mapping[str, Any] = field(default_factory=dict)

    def configure(self, folder: Path) -> Path:
        """Writes its configuration."""
        episode = self.world.episode
        usual = (
            {"batch_size": episode, "buffer_size": 4 * episode}
            if self.trainer_type in ON_POLICY
            else REPLAY | ({} if self.trainer_type == "sac" else {"exploration_steps": 200})
        )
        behavior = {
            "trainer_type": self.trainer_type,
            "hyperparameters": {"learning_rate": 0.01, **usual, **self.hyperparameters},
            "network_settings": NETWORK,
            "max_steps": EPISODES * episode,
            "time_horizon": 20,
            "summary_freq": episode,
            "checkpoint_interval": SAVED_EVERY * episode,
            "keep_checkpoints": 3,
            **self.settings,
        }
        return write_configuration(
            folder, {self.world.behavior: behavior}, **self.world.sections, **self.sections
        )

    def program(self, folder: Path) -> Path:
        """Writes its simulator."""
        name, *arguments = self.world.program
        return write_program(folder, name, *arguments)


ON_POLICY = {"ppo", "mappo", "happo", "poca", "coma"}
REPLAY = {
    "batch_size": 16,
    "buffer_size": 120,  # fewer than the steps of a run, so that the oldest are replaced
    "buffer_init_steps": 36,
    "steps_per_update": 6,
    "save_replay_buffer": True,
}
PRIORITIZED = {"replay": {"type": "prioritized", "beta_updates": 40}}
OU = {"noise": "ou", "exploration_noise": 0.3}

NETWORK = {"normalize": True, "hidden_units": 8, "num_layers": 1}
LSTM = {"network_settings": {**NETWORK, "memory": {"memory_size": 4, "sequence_length": 4}}}
GRU = {"network_settings": {**NETWORK, "memory": {"type": "gru", "memory_size": 4, "sequence_length": 4}}}
LAYER_NORM = {"network_settings": {**NETWORK, "layer_norm": True}}


def rewards(**signals: Mapping[str, Any]) -> dict[str, Any]:
    small = {"network_settings": {"hidden_units": 4, "num_layers": 1}}
    added = {name: {**small, **settings} for name, settings in signals.items() if name != "extrinsic"}
    return {"reward_signals": {"extrinsic": signals.get("extrinsic", {}), **added}}


EXPERT = {"demo_path": "expert.demo"}
RND = rewards(rnd={"strength": 0.1})
SCALED_RND = rewards(extrinsic={"normalize_rewards": True}, rnd={"normalize_rewards": True})
CURIOSITY = rewards(curiosity={"strength": 0.1})
GAIL = rewards(gail={**EXPERT, "use_actions": True})
VAIL = rewards(gail={**EXPERT, "use_actions": True, "use_vail": True})
CLONING = {"behavioral_cloning": {**EXPERT, "samples_per_update": 12, "batch_size": 6, "steps": 300}}

SELF_PLAY = {"save_steps": 24, "team_change": 64, "swap_steps": 16, "window": 2}
POOL = {"self": 1, "random": 1, "self-play": 2}  # the last is the run of that kind
LEAGUE = {"self_play": {**SELF_PLAY, "opponents": POOL, "pfsp_weighting": "hard"}}

KINDS = {
    # A few of all sorts, which are tried with every change.
    "ppo, curiosity, lstm": Kind(SINGLE_RANK, "ppo", settings={**CURIOSITY, **LSTM}),
    "sac, rnd, prioritized": Kind(SINGLE_RANK, "sac", PRIORITIZED, RND),
    "mappo of unlike agents, popart, gru, rnd": Kind(
        TEAM, "mappo", {"value_normalization": "popart"}, {**GRU, **RND}
    ),
    "ppo": Kind(SINGLE_RANK, "ppo"),
    "ppo, rnd, normalize_rewards": Kind(SINGLE_RANK, "ppo", settings=SCALED_RND),
    "ppo, normalize_rewards": Kind(
        SINGLE_RANK, "ppo", settings=rewards(extrinsic={"normalize_rewards": True})
    ),
    "ppo, vail, cloning": Kind(SINGLE_RANK, "ppo", settings={**VAIL, **CLONING}),
    "ppo, curriculum of samplers": Kind(SCHOOL, "ppo"),
    "ppo, evaluations": Kind(SINGLE_RANK, "ppo", sections={"evaluation": {"every_steps": 36, "episodes": 3}}),
    "sac": Kind(SINGLE_RANK, "sac"),
    "sac, gru": Kind(SINGLE_RANK, "sac", settings=GRU),
    "sac, gail": Kind(SINGLE_RANK, "sac", settings=GAIL),
    "sac, prioritized, demonstrations": Kind(
        SINGLE_RANK, "sac", {"replay": {"type": "prioritized", **EXPERT}}, RND
    ),
    "sac, curriculum of samplers": Kind(SCHOOL, "sac"),
    "sac without save_replay_buffer": Kind(SINGLE_RANK, "sac", {"save_replay_buffer": False}),
    "dqn, n-step, prioritized, dueling": Kind(CHOOSING, "dqn", {**PRIORITIZED, "n_step": 3, "dueling": True}),
    "dqn, exploration by episodes, curiosity": Kind(
        CHOOSING, "dqn", {"exploration_unit": "episodes", "exploration_steps": 40}, CURIOSITY
    ),
    "ddpg, ou noise": Kind(STEERING, "ddpg", OU),
    "td3, n-step": Kind(STEERING, "td3", {"n_step": 3}),
    "idqn": Kind(CHOOSING_GROUP, "idqn"),
    "vdn, gru, n-step": Kind(CHOOSING_GROUP, "vdn", {"n_step": 2}, GRU),
    "qmix, gru, n-step": Kind(CHOOSING_GROUP, "qmix", {"n_step": 2}, GRU),
    "qmix, prioritized, layer_norm": Kind(CHOOSING_GROUP, "qmix", PRIORITIZED, LAYER_NORM),
    "dqn_share": Kind(CHOOSING_GROUP, "dqn_share"),
    "dqn_consensus": Kind(CHOOSING_GROUP, "dqn_consensus", {"consensus_every": 7}),
    "sic": Kind(CHOOSING_GROUP, "sic"),
    "maddpg": Kind(GROUP, "maddpg"),
    "maddpg, ou noise, prioritized": Kind(STEERING_GROUP, "maddpg", {**OU, **PRIORITIZED}),
    "maddpg of unlike agents": Kind(TEAM, "maddpg"),
    "maddpg of unlike agents, gru": Kind(TEAM, "maddpg", settings=GRU),
    "qmix of unlike agents, gru": Kind(CHOOSING_TEAM, "qmix", settings=GRU),
    "mappo": Kind(GROUP, "mappo"),
    "happo": Kind(GROUP, "happo"),
    "happo of unlike agents, gru": Kind(TEAM, "happo", settings=GRU),
    "happo, gail": Kind(GROUP, "happo", settings=GAIL),
    "poca, lstm": Kind(GROUP, "poca", settings=LSTM),
    "coma": Kind(CHOOSING_GROUP, "coma", {"exploration_steps": 200, "target_update": 5}),
    "self-play": Kind(RIVALS, "ppo", settings={"self_play": SELF_PLAY}),
    "league, gru": Kind(RIVALS, "ppo", settings={**LEAGUE, **GRU}),
    "league, sac": Kind(RIVALS, "sac", settings=LEAGUE),
}
FORGETFUL = "sac without save_replay_buffer"
"""The one kind that may differ, for a part of its state is not saved. It must say so when it goes on."""


@pytest.mark.thorough
@fault_counts(3, len(KINDS), minutes=60)
def test_a_killed_run_of_any_kind_ends_as_if_it_had_not_been_killed(scene, note, count: int) -> None:
    dice = random.Random(count)
    record_expert(scene.folder)
    differing: dict[str, list[str]] = {}
    lost = []
    for kind in list(KINDS)[:count]:
        straight = kind.replace(",", "").replace(" ", "-")
        killed = f"{straight}-killed"
        finish(scene, KINDS[kind], straight)
        lost.append(kill(scene, KINDS[kind], killed, pause_between_saves(scene.folder, straight), dice))
        said = finish(scene, KINDS[kind], killed, "--resume")
        if kind == FORGETFUL:
            assert "starts with an empty replay buffer (save_replay_buffer is false)" in said
        differing[kind] = differences(*(scene.folder / "results" / run for run in (straight, killed)))
        if differing[kind]:
            differing[kind] += [
                line for line in said.splitlines() if "continues" in line or "WARNING" in line
            ]
    equal = sum(not keys for keys in differing.values())
    note(
        "trainer killed between two checkpoints and in unfinished episodes, `--resume`, a run of every kind",
        f"{len(differing)} kinds, 1 × kill −9 each; {median(lost):g} agent steps of whole episodes were lost (median), "
        f"{max(lost)} at most",
        f"{equal} ended equal to the last bit to a run that was not killed (checkpoints, replay buffers, metrics), "
        f"{len(differing) - equal} otherwise",
    )
    assert {kind: keys for kind, keys in differing.items() if keys and kind != FORGETFUL} == {}


def record_expert(folder: Path) -> None:
    """Writes a demonstration of two episodes on the treadmill, of somebody who does anything."""
    rng = np.random.default_rng(3)
    spec = BehaviorSpec((vector_sensor("body", 4),), ActionSpec(1, (3,)))
    with DemonstrationWriter(folder / "expert.demo", "Treadmill", spec, name="expert") as writer:
        for _ in range(2):
            writer.write(
                DemonstratedSegment(
                    observations=(rng.normal(size=(6, 4)).astype(np.float32),),
                    continuous_actions=rng.uniform(-1, 1, (6, 1)).astype(np.float32),
                    discrete_actions=rng.integers(0, 3, (6, 1)),
                    rewards=np.zeros(6, np.float32),
                    group_rewards=np.zeros(6, np.float32),
                    final_observations=(rng.normal(size=(1, 4)).astype(np.float32),),
                    terminated=True,
                    truncated=False,
                    starts_episode=True,
                )
            )


def start(scene: Any, kind: Kind, run_id: str, *flags: str) -> Process:
    """Starts a run on a simulator of its own."""
    kind.configure(scene.folder)
    program = kind.program(scene.folder)
    run: Process = scene.learn(f"--env={program}", f"--run-id={run_id}", "--seed=5", *flags)
    return run


def finish(scene: Any, kind: Kind, run_id: str, *flags: str) -> str:
    """Lets a run go on to its end. Returns what it said."""
    run = start(scene, kind, run_id, *flags)
    assert run.end() == 0, f"{kind}: {run.output[-3000:]}"
    return run.output


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
