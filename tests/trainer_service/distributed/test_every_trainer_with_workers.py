"""Every trainer type learns from what rollout workers collect, which decide as it would itself.

A new type is covered by being registered.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from every_trainer import scene_of, settings_of
from in_process_workers import Finished, learn_in_process, options_of, shipped

from trainer_service.distributed.records import as_arrays, as_tensors, writable
from trainer_service.learning.algorithms import ALGORITHMS, Compute, Learner
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.registry import open_scene

STEPS = {"max_steps": 240}
NETWORK = {"hidden_units": 8, "num_layers": 1, "normalize": True}


def run_of(
    trainer_type: str, tmp_path: Path, replay: Mapping[str, Any] | None = None, **sections: Any
) -> Finished:
    scene, name = scene_of(trainer_type)
    in_group = scene in ("switch2", "spread")
    settings = {**settings_of(trainer_type, network_settings=NETWORK, **STEPS)}
    if replay is not None:
        settings["hyperparameters"] = {**settings["hyperparameters"], "replay": replay}

    def scenes(number: int, academy: Academy) -> Any:
        copies: Mapping[str, Any] = {"copies": 2} if in_group else {}
        return open_scene(f"sim:{scene}", agents=None if in_group else 4, academy=academy, options=copies)

    return learn_in_process(options_of({name: settings}, **sections), scenes, tmp_path)


@pytest.mark.parametrize("trainer_type", ALGORITHMS)
def test_it_learns_and_copies_of_it_decide_alike(trainer_type: str, tmp_path: Path) -> None:
    run = run_of(trainer_type, tmp_path)
    (behavior,) = run.behaviors.values()
    learner: Learner = behavior.learner
    assert 240 <= behavior.step < 240 + 2 * 8  # whole ticks of both workers
    assert (behavior.updates > 0) == behavior.settings.hyperparameters.learns
    seen = run.trajectories()[0]
    state = as_tensors(shipped(as_arrays(behavior.learner.actor.state_dict())))
    copy = ALGORITHMS[trainer_type](
        behavior.collector.selector.spec, behavior.settings, Compute(torch.device("cpu"), 77)
    )
    for algorithm in (learner, copy):
        algorithm.actor.load_state_dict(state, seed=5)
    for deterministic in (False, True):
        ours = theirs = None
        for _ in range(2):  # the second time with what they remember of the first
            ours = decided(learner, writable(seen), ours, deterministic)
            theirs = decided(copy, writable(seen), theirs, deterministic)
            np.testing.assert_array_equal(ours.discrete_actions, theirs.discrete_actions)
            np.testing.assert_array_equal(ours.continuous_actions, theirs.continuous_actions)
            np.testing.assert_array_equal(ours.log_probs, theirs.log_probs)
            np.testing.assert_array_equal(ours.memories, theirs.memories)


def test_steps_of_workers_stand_beside_demonstrated_ones(tmp_path: Path, write_demo, shown) -> None:
    (spec,) = open_scene("sim:basic").behaviors.values()
    walk = write_demo(spec, shown([np.eye(20, dtype=np.float32)[10:18]], discrete=np.full((7, 1), 2)))
    run = run_of("dqn", tmp_path, replay={"demo_path": str(walk)})
    (behavior,) = run.behaviors.values()
    assert behavior.updates > 0
    rows = behavior.learner.replay.undivided.rows
    assert (rows >= behavior.settings.hyperparameters.buffer_size).mean() == 0.5


def decided(
    algorithm: Learner, seen: Trajectories, before: Decisions | None, deterministic: bool
) -> Decisions:
    memories = seen.memories if before is None else before.memories
    return algorithm.actor.act(ActRequest(seen.observations, seen.allowed_actions, memories, deterministic))


@pytest.mark.parametrize("trainer_type", ["ppo", "mappo", "sac", "qmix"])
def test_it_learns_without_rounds(trainer_type: str, tmp_path: Path) -> None:
    run = run_of(trainer_type, tmp_path, distributed={"collection": "async"})
    (behavior,) = run.behaviors.values()
    assert 240 <= behavior.step < 240 + 4 * 8
    assert (behavior.updates > 0) == behavior.settings.hyperparameters.learns
