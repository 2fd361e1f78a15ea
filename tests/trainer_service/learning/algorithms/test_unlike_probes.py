"""Tiny worlds for teams of unlike agents, each with a known right answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from seeds import seeds
from unlike_agents import UnlikeWorld, make_team

from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import ActionSpec, MemberSpec
from unity_bridge.steps import ActionBatch, StepBatch

pytestmark = pytest.mark.probe

each_seed = seeds(1, 2)
ON_POLICY = ("mappo", "happo", "poca", "coma")


def make(
    world: type[UnlikeWorld], trainer_type: str, seed: int, *, memory: bool = False, **changes: Any
) -> Behavior:
    if trainer_type in ON_POLICY:
        tuned = {
            "batch_size": 128,
            "buffer_size": 256,
            "learning_rate": 0.01,
            "learning_rate_schedule": "constant",
        }
        if trainer_type == "coma":
            tuned |= {"exploration_steps": 20000, "target_update": 10}
        else:
            tuned |= {"num_epoch": 4}
    else:
        tuned = {
            "batch_size": 32,
            "buffer_size": 2000,
            "learning_rate": 0.01,
            "steps_per_update": 16,
            "tau": 0.05,
        }
        tuned |= {} if trainer_type == "maddpg" else {"exploration_steps": 2000}
    network: dict[str, Any] = {"hidden_units": 16, "num_layers": 1}
    if memory:
        network["memory"] = {"memory_size": 8, "sequence_length": 4}
    return make_team(
        world.members,
        seed,
        trainer_type=trainer_type,
        hyperparameters={**tuned, **changes},
        network_settings=network,
        reward_signals={"extrinsic": {"gamma": 0.9, "strength": 1.0}},
        time_horizon=16,
        max_steps=10**6,
    )


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


TOGETHER = {
    "mappo": (25, {"reward_mode": "team_sum"}),
    "happo": (25, {"reward_mode": "team_sum"}),
    "poca": (40, {}),
    "coma": (80, {}),
    "vdn": (100, {}),
    "qmix": (100, {}),
    "maddpg": (150, {"reward_mode": "team_sum"}),
    "dqn_share": (150, {}),
    "sic": (150, {}),
}
"""Learners of teams, with their updates and settings."""


ALIKE = {"poca", "dqn_share", "sic"}
"""Those whose learning differs from others' less than their networks, which are tested elsewhere."""


@each_seed
@pytest.mark.parametrize(
    "trainer_type",
    [pytest.param(name, marks=pytest.mark.thorough if name in ALIKE else ()) for name in TOGETHER],
)
def test_who_learns_with_others_does_them_favors(live, trainer_type: str, seed: int) -> None:
    updates, changes = TOGETHER[trainer_type]
    world = Favors(seed)
    live(make(Favors, trainer_type, seed, **changes), world, updates)
    assert world.score() > 0.9


@pytest.mark.parametrize(("trainer_type", "updates"), [("mappo", 25), ("idqn", 100)])
def test_who_learns_for_itself_does_no_favors(live, trainer_type: str, updates: int) -> None:
    world = Favors(1)
    live(make(Favors, trainer_type, 1), world, updates)
    assert world.score() < 0.5


class Aim(UnlikeWorld):
    """The group is paid for how near a number comes to what one member sees, if the other chooses what it sees."""

    members = (
        MemberSpec("Gunner", (vector_sensor("target", 1), vector_sensor("noise", 2)), ActionSpec(1), 1),
        MemberSpec("Loader", (vector_sensor("cue", 3),), ActionSpec(2, (3,)), 1),
    )

    def see(self) -> list[list[np.ndarray]]:
        self.target = self.rng.choice([-0.6, 0.6], self.copies)
        self.cue = self.rng.integers(3, size=self.copies)
        noise = self.rng.normal(size=(self.copies, 2))
        return [[self.target[:, None], noise], [np.eye(3)[self.cue]]]

    def pay(self, actions: Sequence[ActionBatch]) -> tuple[Sequence[np.ndarray], np.ndarray]:
        near = (1.0 - np.abs(actions[0].continuous[:, 0] - self.target)).clip(min=0.0)
        right = actions[1].discrete[:, 0] == self.cue
        self.scores.append(float((near * right).mean()))
        return [np.zeros(self.copies)] * 2, near * right


@each_seed
@pytest.mark.parametrize(
    ("trainer_type", "updates"),
    [
        ("mappo", 30),
        pytest.param("maddpg", 150, marks=pytest.mark.thorough),
        pytest.param("happo", 60, marks=pytest.mark.thorough),
        pytest.param("poca", 60, marks=pytest.mark.thorough),
    ],
)
def test_one_member_has_numbers_and_the_other_choices(
    live, trainer_type: str, updates: int, seed: int
) -> None:
    world = Aim(seed)
    changes = (
        {"buffer_init_steps": 500, "exploration_noise": 0.3} if trainer_type == "maddpg" else {"beta": 0.001}
    )
    live(make(Aim, trainer_type, seed, **changes), world, updates)
    assert world.score() > 0.6


class Listen(UnlikeWorld):
    """One sees which of two doors pays, and may only say one of three symbols; the other hears it, and has four doors.

    Only the one who walks is paid, for the right door: 1/2 where nothing is understood.
    """

    members = (
        MemberSpec("Speaker", (vector_sensor("door", 2),), ActionSpec(0, (3,)), 1),
        MemberSpec("Listener", (vector_sensor("heard", 3),), ActionSpec(0, (4,)), 1),
    )

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.said: np.ndarray | None = None

    def see(self) -> list[list[np.ndarray]]:
        self.door = self.rng.integers(2, size=self.copies)
        return [[np.eye(2)[self.door]], [np.zeros((self.copies, 3))]]

    def step(self, actions: ActionBatch) -> StepBatch:
        if self.said is not None:
            self.said = None
            return super().step(actions)
        self.said = actions.discrete[: self.copies, 0]
        self.seen[1] = [np.eye(3)[self.said]]
        return self.rows()

    def pay(self, actions: Sequence[ActionBatch]) -> tuple[Sequence[np.ndarray], float]:
        right = (actions[1].discrete[:, 0] == self.door).astype(np.float64)
        self.scores.append(float(right.mean()))
        return [np.zeros(self.copies), right], 0.0


@each_seed
@pytest.mark.parametrize("memory", [False, pytest.param(True, marks=pytest.mark.thorough)])
def test_a_speaker_learns_to_be_understood(live, memory: bool, seed: int) -> None:
    world = Listen(seed)
    live(make(Listen, "mappo", seed, memory=memory, reward_mode="team_sum"), world, 60)
    assert world.score() > 0.85


@pytest.mark.thorough
def test_a_speaker_that_is_not_paid_says_nothing(live) -> None:
    world = Listen(1)
    live(make(Listen, "mappo", 1, beta=0.0), world, 40)
    assert world.score() < 0.65
