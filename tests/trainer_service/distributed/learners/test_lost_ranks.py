"""A rank that is lost in the middle of an update, which is undone; and what crosses between ranks."""

from __future__ import annotations

import copy
import os
import signal
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from made_trajectories import trajectories_of

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners import group
from trainer_service.distributed.learners.ranks import start_ranks
from trainer_service.errors import LearnerRankLost
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

pytestmark = pytest.mark.process

CPU = torch.device("cpu")
SPEC = BehaviorSpec((ObservationSpec("seen", (3,)),), ActionSpec(0, (2,)))
STEPS = 64


def steps_of_chance(seed: int) -> Trajectories:
    rng = np.random.default_rng(seed)
    return trajectories_of(
        [rng.normal(size=(STEPS, 3)).astype(np.float32)],
        [STEPS // 4] * 4,
        choices=2,
        discrete_actions=rng.integers(0, 2, (STEPS, 1)),
        log_probs=np.full(STEPS, -0.7, np.float32),
        rewards=rng.normal(size=STEPS).astype(np.float32),
    )


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGKILL, r"learner rank 1 ended \(signal 9\)"),
        # It costs the time in which a rank may think, and that in which processes may end by themselves.
        pytest.param(signal.SIGSTOP, "does not answer any more", marks=pytest.mark.thorough),
    ],
    ids=["killed", "hung"],
)
def test_an_update_without_a_rank_is_undone(
    monkeypatch: pytest.MonkeyPatch, number: signal.Signals, says: str
) -> None:
    monkeypatch.setattr(group, "COLLECTIVE_TIMEOUT", timedelta(seconds=4))
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 16, "buffer_size": STEPS},
            "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
            "reward_signals": {"extrinsic": {}, "rnd": {"strength": 0.1}},
        }
    )
    with start_ranks(2, CPU) as ranks:
        learner = ranks.make("Probe", SPEC, settings, Compute(CPU, 1))
        learner.record(steps_of_chance(1))
        learner.update(0)
        learner.record(steps_of_chance(2))
        before = flat(copy.deepcopy(learner.state_dict()))
        (process,) = ranks.processes
        send = ranks.group.send

        def last_words(message: Mapping[str, Any]) -> None:
            """It is gone before it hears of the update."""
            if message["what"] == "update":
                os.kill(process.pid, number)
            send(message)

        monkeypatch.setattr(ranks.group, "send", last_words)
        with pytest.raises(LearnerRankLost, match=says):
            learner.update(0)
        assert_equal_states(flat(learner.state_dict()), before)
    assert process.poll() == -signal.SIGKILL
