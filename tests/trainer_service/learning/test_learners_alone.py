"""Learners that a program makes without a configuration, and trains on arrays in its own loop."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from seeds import quick_where

from trainer_service.config import NetworkSettings, PPOSettings, QMIXSettings, SACSettings, TrainerSettings
from trainer_service.learning import (
    PPO,
    QMIX,
    SAC,
    ActRequest,
    Compute,
    Decisions,
    GroupIndex,
    Learner,
    SensorRole,
    Trajectories,
)
from trainer_service.learning.algorithms import make_learner
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

AGENTS = 32
NETWORK = NetworkSettings(hidden_units=16, num_layers=1)
NUMBER = ObservationSpec("number", (1,))
CHOICE, ANGLE = ActionSpec(discrete_branches=(2,)), ActionSpec(1)
CHOICES = BehaviorSpec((NUMBER,), CHOICE)
REPLAY: dict[str, Any] = {
    "batch_size": 64,
    "buffer_size": 2000,
    "buffer_init_steps": 64,
    "learning_rate": 0.01,
}

CASES: dict[str, tuple[Any, BehaviorSpec, Any]] = {
    "ppo": (PPO, CHOICES, PPOSettings(batch_size=64, buffer_size=256, learning_rate=0.01)),
    "sac": (
        SAC,
        BehaviorSpec((NUMBER,), ANGLE),
        SACSettings(**REPLAY, steps_per_update=8, tau=0.05, init_entcoef=0.05),
    ),
    "qmix": (
        QMIX,
        BehaviorSpec((NUMBER, SensorRole.AGENT_ID.added(2)), CHOICE),
        QMIXSettings(**REPLAY, group_size=2, steps_per_update=16, tau=0.05, exploration_steps=1000),
    ),
}
each_learner = pytest.mark.parametrize("name", CASES)


def make(name: str, seed: int) -> Learner:
    learner, spec, hyperparameters = CASES[name]
    made: Learner = learner(spec, hyperparameters, NETWORK, Compute(seed=seed))
    return made


class Signs:
    """Agents that see a number: 1 for the choice of its sign, less for an angle the farther it is from half of it.

    Every episode is one step. Agents 2k and 2k + 1 are a group, which earns what its worse member does.
    """

    def __init__(self, spec: BehaviorSpec, seed: int = 1) -> None:
        self.spec, self.in_groups = spec, len(spec.observation_specs) > 1
        self.rng, self.tick = np.random.default_rng(seed), 0
        self.allowed = np.ones((AGENTS, spec.action_spec.mask_size), np.bool_)

    def act(self, learner: Learner, *, deterministic: bool = False) -> Decisions:
        numbers = self.rng.uniform(-1, 1, (AGENTS, 1)).astype(np.float32)
        ids = [np.tile(np.eye(2, dtype=np.float32), (AGENTS // 2, 1))] if self.in_groups else []
        self.seen = (numbers, *ids)
        memories = np.empty((AGENTS, learner.actor.memory_size), np.float32)
        decisions = learner.actor.act(ActRequest(self.seen, self.allowed, memories, deterministic))
        if self.spec.action_spec.continuous_size:
            self.score = 1.0 - np.abs(learner.actor.env_actions(decisions) - numbers / 2)[:, 0]
        else:
            self.score = (decisions.discrete_actions == (numbers > 0))[:, 0].astype(np.float32)
        return decisions

    def step(self, learner: Learner) -> Trajectories:
        """Lets all agents act once. Returns their episodes."""
        decisions, self.tick = self.act(learner), self.tick + 1
        nothing, each, clock = np.zeros(AGENTS, np.float32), np.arange(AGENTS), np.zeros(AGENTS)
        shared = np.repeat(self.score.reshape(-1, 2).min(axis=1), 2)
        times = np.full(AGENTS, self.tick)
        return Trajectories(
            observations=self.seen,
            continuous_actions=decisions.continuous_actions,
            discrete_actions=decisions.discrete_actions,
            allowed_actions=self.allowed,
            log_probs=decisions.log_probs,
            memories=decisions.memories,
            rewards=nothing if self.in_groups else self.score,
            group_rewards=shared if self.in_groups else nothing,
            lengths=np.ones(AGENTS, np.int64),
            final_observations=self.seen,
            final_allowed_actions=self.allowed,
            final_memories=decisions.memories,
            terminated=np.ones(AGENTS, np.bool_),
            group_index=GroupIndex(times, times + 1, each // 2, each % 2, clock, clock + shared),
        )


def train(learner: Learner, world: Signs, ticks: int) -> list[dict[str, float]]:
    """Trains in a loop of its own. Returns the metrics of all updates."""
    metrics = []
    learner.prepare(0)
    for tick in range(ticks):
        learner.record(world.step(learner))
        if learner.ready():
            metrics.append(dict(learner.update((tick + 1) * AGENTS)))
    return metrics


@pytest.mark.probe
@pytest.mark.parametrize("name", ["ppo", quick_where(False, "sac"), quick_where(False, "qmix")])
def test_a_learner_made_alone_finds_the_right_actions(name: str) -> None:
    learner, world = make(name, 1), Signs(CASES[name][1])
    train(learner, world, 200)
    world.act(learner, deterministic=True)
    assert world.score.mean() > 0.9


@each_learner
def test_a_learner_made_alone_is_that_of_a_run(name: str) -> None:
    _, spec, hyperparameters = CASES[name]
    written = hyperparameters.model_dump(exclude_unset=True)
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": name,
            "hyperparameters": written,
            "network_settings": {"hidden_units": 16, "num_layers": 1},
        }
    )
    learners = [make(name, 3), make_learner(spec, settings, Compute(torch.device("cpu"), 3))]
    mine, theirs = (train(each, Signs(spec), 12) for each in learners)
    assert mine
    assert mine == theirs
    assert_equal_states(*(flat(each.state_dict()) for each in learners))


def test_network_settings_may_be_left_out() -> None:
    kind, spec, hyperparameters = CASES["ppo"]
    learner = kind(spec, hyperparameters, Compute(seed=3))
    again = kind(spec, TrainerSettings.of(hyperparameters), Compute(seed=3))
    assert_equal_states(flat(learner.state_dict()), flat(again.state_dict()))


def test_settings_of_a_behavior_keep_their_other_keys() -> None:
    settings = TrainerSettings.of(PPOSettings(), network_settings=NETWORK, time_horizon=7, max_steps=900)
    assert (settings.trainer_type, settings.max_steps) == ("ppo", 900)
    assert PPO(CHOICES, settings).horizon == 7


class Unknown(PPOSettings):
    """Hyperparameters of no trainer type."""


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: PPO(CHOICES, SACSettings()), ValueError, "expected PPOSettings, got SACSettings"),
        (lambda: PPO(CHOICES, TrainerSettings(), NETWORK), TypeError, "network settings with hyperparameters only"),
        (lambda: PPO(CHOICES, Unknown()), ValueError, "hyperparameters of a trainer type, got Unknown"),
        (lambda: QMIX(CHOICES, QMIXSettings(group_size=3)), ValueError, r"AGENT_ID.added\(3\)"),
        (lambda: QMIX(CASES["sac"][1], QMIXSettings(share="full")), ValueError, "needs discrete actions"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_fit_are_refused(call: Callable[[], Any], error: type, said: str) -> None:
    with pytest.raises(error, match=said):
        call()
