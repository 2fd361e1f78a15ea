"""Tiny worlds for teams of unlike agents, each with a known right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from seeds import quick_where
from unlike_agents import UnlikeWorld, make_team

from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import ActionSpec, MemberSpec
from unity_bridge.steps import ActionBatch

pytestmark = pytest.mark.probe

ROLLOUTS = {"batch_size": 128, "buffer_size": 256, "learning_rate_schedule": "constant", "num_epoch": 4}
COUNTERFACTUAL = {**ROLLOUTS, "num_epoch": 1, "exploration_steps": 20000, "target_update": 10}
REPLAY = {"batch_size": 32, "buffer_size": 2000, "steps_per_update": 16, "tau": 0.05}
VALUES = {**REPLAY, "exploration_steps": 2000}
TEAM = {"reward_mode": "team_sum"}
LEARNERS: dict[str, tuple[int, dict[str, Any]]] = {
    "mappo": (25, {**ROLLOUTS, **TEAM}),
    "happo": (25, {**ROLLOUTS, **TEAM}),
    "coma": (80, COUNTERFACTUAL),
    "qmix": (100, VALUES),
    "maddpg": (150, {**REPLAY, **TEAM}),
}
"""Learners of teams, with their updates and hyperparameters."""


def score(live: Any, trainer_type: str, updates: int, hyper: dict[str, Any]) -> float:
    """The share of favors that are done at last."""
    world = Favors(1)
    behavior = make_team(
        world.members,
        trainer_type=trainer_type,
        hyperparameters={"learning_rate": 0.01, **hyper},
        network_settings={"hidden_units": 16, "num_layers": 1},
        reward_signals={"extrinsic": {"gamma": 0.9, "strength": 1.0}},
        time_horizon=16,
        max_steps=10**6,
    )
    live(behavior, world, updates)
    return world.score()


class Favors(UnlikeWorld):
    """Each is paid where the other chooses what that one sees: who learns for itself has no reason to."""

    members = (
        MemberSpec("Three", (vector_sensor("cue", 3),), ActionSpec(0, (3,)), 1),
        MemberSpec("Four", (vector_sensor("cue", 4),), ActionSpec(0, (4,)), 1),
    )

    def see(self) -> list[list[np.ndarray]]:
        self.cues = [self.rng.integers(size, size=self.copies) for size in (3, 4)]
        return [[np.eye(size)[cue]] for size, cue in zip((3, 4), self.cues, strict=True)]

    def pay(self, actions: Sequence[ActionBatch]) -> tuple[Sequence[np.ndarray], float]:
        right = [batch.discrete[:, 0] == cue for batch, cue in zip(actions, self.cues, strict=True)]
        self.scores.append(float(np.mean(right)))
        return [right[1], right[0]], 0.0


@pytest.mark.parametrize("trainer_type", [quick_where(name in ("mappo", "qmix"), name) for name in LEARNERS])
def test_agents_that_learn_with_others_do_them_favors(live, trainer_type: str) -> None:
    assert score(live, trainer_type, *LEARNERS[trainer_type]) > 0.9


def test_agents_that_learn_for_themselves_do_no_favors(live) -> None:
    assert score(live, "idqn", 100, VALUES) < 0.5
