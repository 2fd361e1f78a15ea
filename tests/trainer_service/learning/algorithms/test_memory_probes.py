"""Tiny worlds that hide their state, each in a way of its own: memory finds the right answer.

A probe is learned from seeds that were not picked: 1 and 2. That learning unrolls memories as acting did is tested in
test_recurrent_ppo.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import gymnasium
import numpy as np
import pytest
from seeds import seeds

from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

# The quick ones are in test_recurrent_ppo.py.
pytestmark = [pytest.mark.probe, pytest.mark.timeout(300)]
thorough = pytest.mark.thorough

AGENTS = 8

each_seed = seeds(1, 2)
kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])


class Hidden(ABC):
    """N agents whose episodes begin anew as they end. Subclasses keep one state per agent in arrays."""

    choices = 2

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.everyone = np.ones(AGENTS, np.bool_)
        self.time = np.zeros(AGENTS, np.int64)
        self.sums = np.zeros(AGENTS)
        self.returns: list[float] = []

    @abstractmethod
    def enter(self, who: np.ndarray) -> None:
        """A new episode for those that are marked."""

    @abstractmethod
    def see(self) -> np.ndarray:
        """Observations of all agents. [N, sensor size]"""

    @abstractmethod
    def act(self, actions: ActionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rewards, terminations and truncations of all agents. [N] each."""

    def begin(self) -> StepBatch:
        self.enter(self.everyone)
        return self.rows(self.everyone, np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        paid, terminated, truncated = self.act(actions)
        over = terminated | truncated
        self.time += 1
        self.sums += paid
        self.returns += self.sums[over].tolist()
        last = self.rows(over, paid, terminated=terminated[over], truncated=truncated[over])
        self.time[over] = 0
        self.sums[over] = 0.0
        self.enter(over)
        return concatenate(last, self.rows(self.everyone, np.where(over, 0.0, paid)))

    def rows(self, who: np.ndarray, rewards: np.ndarray, **ends: Any) -> StepBatch:
        return step_batch(
            [self.see()[who].astype(np.float32)],
            rewards[who].astype(np.float32),
            agent_ids=np.flatnonzero(who),
            allowed_actions=np.ones((int(who.sum()), self.choices), np.bool_),
            **ends,
        )


@pytest.fixture
def remembering(make_behavior) -> Callable[..., Behavior]:
    """A behavior for a hidden world; ``kind`` None takes its memory."""

    def make(world: Hidden, kind: str | None, seed: int, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 64,
            "buffer_size": 512,
            "learning_rate": 0.005,
            "learning_rate_schedule": "constant",
            "beta": 0.001,
            "num_epoch": 4,
        }
        size = changes.pop("memory_size", 16)
        memory = None if kind is None else {"memory_size": size, "sequence_length": 16, "type": kind}
        made: Behavior = make_behavior(
            sizes=(world.see().shape[1],),
            branches=(world.choices,),
            seed=seed,
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 16, "num_layers": 1, "memory": memory},
            time_horizon=32,
            max_steps=10**6,
        )
        return made

    return make


def lately(world: Hidden, episodes: int = 50) -> float:
    """Mean return of the last episodes, drawn actions and all."""
    return float(np.mean(world.returns[-episodes:]))


class Echo(Hidden):
    """A new coin at every step; the world pays for the coin of some steps ago."""

    def __init__(self, seed: int, delay: int) -> None:
        super().__init__(seed)
        self.delay = delay
        self.coins = self.rng.choice([-1.0, 1.0], (AGENTS, 41))

    def enter(self, who: np.ndarray) -> None:
        self.coins[who] = self.rng.choice([-1.0, 1.0], (int(who.sum()), self.coins.shape[1]))

    def see(self) -> np.ndarray:
        return self.coins[np.arange(AGENTS), self.time][:, None]

    def act(self, actions: ActionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        past = self.coins[np.arange(AGENTS), np.maximum(self.time - self.delay, 0)]
        right = (actions.discrete[:, 0] == 1) == (past > 0)
        paid = np.where(self.time >= self.delay, np.where(right, 1.0, -1.0), 0.0) / (40 - self.delay)
        return paid, self.time == 39, np.zeros(AGENTS, np.bool_)


@each_seed
@kinds
@pytest.mark.parametrize("delay", [1, pytest.param(2, marks=thorough)])
def test_a_policy_with_memory_repeats_an_observation_after_some_steps(
    remembering, live, kind: str, delay: int, seed: int
) -> None:
    world = Echo(seed, delay)
    live(remembering(world, kind, seed), world, 15 * delay)
    # Chance is 0, and the mean of 50 episodes of guessing deviates from it by 0.02.
    assert lately(world) > 0.4


@each_seed
def test_a_policy_without_memory_cannot_repeat_an_observation(remembering, live, seed: int) -> None:
    world = Echo(seed, delay=1)
    live(remembering(world, None, seed), world, 15)
    assert abs(lately(world)) < 0.15


class TMaze(Hidden):
    """A sign at the start says which of two ways to turn at the end of a corridor that one walks at one's own pace.

    Bakker 2001. Choices: on, left, right. Turning within the corridor and running into its end cost a little.
    """

    choices = 3
    length = 6

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.sign = np.zeros(AGENTS)
        self.at = np.zeros(AGENTS, np.int64)

    def enter(self, who: np.ndarray) -> None:
        self.sign[who] = self.rng.choice([-1.0, 1.0], int(who.sum()))
        self.at[who] = 0

    def see(self) -> np.ndarray:
        return np.stack([np.where(self.time == 0, self.sign, 0.0), self.at == self.length], axis=1)

    def act(self, actions: ActionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        chosen, there = actions.discrete[:, 0], self.at == self.length
        turned = there & (chosen > 0)
        right = (chosen == 2) == (self.sign > 0)
        on = ~there & (chosen == 0)
        self.at += on
        paid = np.where(turned, np.where(right, 1.0, -1.0), np.where(on, 0.0, -0.05))
        return paid, turned, ~turned & (self.time >= 5 * self.length)


@thorough
@each_seed
def test_a_sign_is_followed_after_a_corridor_of_any_length(remembering, live, seed: int) -> None:
    # An LSTM alone: so fast a GRU settles in one of three runs only, and slower ones take three times as long.
    world = TMaze(seed)
    live(remembering(world, "lstm", seed), world, 70)
    assert lately(world) > 0.8


@thorough
@each_seed
def test_a_sign_does_not_help_a_policy_without_memory(remembering, live, seed: int) -> None:
    world = TMaze(seed)
    live(remembering(world, None, seed), world, 40)
    assert lately(world, 200) < 0.3


class StillPole(Hidden):
    """CartPole as on photographs: where cart and pole are, not how they move."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.poles = [gymnasium.make("CartPole-v1") for _ in range(AGENTS)]
        self.seen = np.zeros((AGENTS, 4))
        for which, pole in enumerate(self.poles):
            pole.reset(seed=1000 * seed + which)

    def enter(self, who: np.ndarray) -> None:
        for which in np.flatnonzero(who):
            self.seen[which] = self.poles[which].reset()[0]

    def see(self) -> np.ndarray:
        # In units in which both matter.
        return self.seen[:, [0, 2]] * [1.0, 5.0]

    def act(self, actions: ActionBatch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        ended, interrupted = np.zeros((2, AGENTS), np.bool_)
        for which, pole in enumerate(self.poles):
            seen = pole.step(int(actions.discrete[which, 0]))
            self.seen[which], ended[which], interrupted[which] = seen[0], seen[2], seen[3]
        return np.ones(AGENTS), ended, interrupted & ~ended


@each_seed
@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, id=kind or "without", marks=thorough) for kind in ("lstm", "gru", None)],
)
def test_memory_balances_a_pole_whose_velocities_are_hidden(
    remembering, live, kind: str | None, seed: int
) -> None:
    world = StillPole(seed)
    changes = {"learning_rate": 3e-3, "buffer_size": 1024, "batch_size": 128, "memory_size": 32}
    live(remembering(world, kind, seed, **changes), world, 50)
    assert lately(world) > 150 if kind else lately(world) < 80
