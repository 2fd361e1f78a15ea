"""Runs on goal environments whose reward chance hardly ever finds: learned with goals achieved later, not without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from goal_environments import BitFlipping, GoalEnv, PointReach
from seeds import seeds

from trainer_service import evaluate, load_policy, train
from trainer_service.errors import UserError

EPISODES = 50
POINT = {"buffer_init_steps": 500, "tau": 0.02, "exploration_noise": 0.3}
BITS = {"buffer_init_steps": 500, "tau": 0.05, "exploration_steps": 3000, "exploration_final": 0.05}
SOFT = {"buffer_init_steps": 500, "tau": 0.02}


def settings(trainer_type: str, kind: str, steps: int, **hyperparameters: Any) -> dict[str, Any]:
    usual = {"batch_size": 128, "learning_rate": 1e-3, "replay": {"type": kind}}
    return {
        "trainer_type": trainer_type,
        "hyperparameters": {**usual, **hyperparameters},
        "network_settings": {"hidden_units": 64, "num_layers": 2},
        "reward_signals": {"extrinsic": {"gamma": 0.95}},
        "max_steps": steps,
    }


def success_rate(run: Path, env: GoalEnv) -> float:
    """The share of episodes in which the policy achieves its goal."""
    policy = load_policy(run).wrap(env)
    achieved = 0
    for episode in range(EPISODES):
        seen, _ = env.reset(seed=10_000 + episode)
        ended = truncated = False
        while not (ended or truncated):
            seen, _, ended, truncated, _ = env.step(policy.predict(seen)[0])
        achieved += ended
    return achieved / EPISODES


@pytest.mark.probe
@seeds(1, 2, 3)
@pytest.mark.parametrize(
    ("trainer_type", "make", "steps", "hyperparameters"),
    [
        ("dqn", lambda: BitFlipping(10), 6000, BITS),
        ("td3", PointReach, 4000, POINT),
        pytest.param("ddpg", PointReach, 5000, POINT, marks=pytest.mark.thorough),
        pytest.param("sac", PointReach, 5000, SOFT, marks=pytest.mark.thorough),
    ],
    ids=["dqn", "td3", "ddpg", "sac"],
)
def test_a_sparse_goal_is_learned_with_hindsight_and_not_without(
    workplace: Path,
    trainer_type: str,
    make: Callable[[], GoalEnv],
    steps: int,
    hyperparameters: dict[str, Any],
    seed: int,
) -> None:
    rates = {}
    for kind in ("hindsight", "uniform"):
        given = settings(trainer_type, kind, steps, **hyperparameters)
        run = train(given, make, run_id=kind, seed=seed, verbose=0)
        rates[kind] = success_rate(run.folder, make())
    assert rates["hindsight"] >= 0.8
    assert rates["uniform"] <= 0.3


def quick(trainer_type: str = "dqn") -> dict[str, Any]:
    small = {"batch_size": 16, "buffer_init_steps": 20, "steps_per_update": 4, "save_replay_buffer": True}
    return settings(trainer_type, "hindsight", 60, **small)


@pytest.mark.parametrize("trainer_type", ["dqn", "ddpg", "td3", "sac"])
def test_a_run_with_copies_is_resumed_and_scored(workplace: Path, trainer_type: str) -> None:
    make = (lambda: BitFlipping(6)) if trainer_type == "dqn" else PointReach
    copies = {"env_args": ["--copies", "3"], "run_id": "goals", "verbose": 0}
    train(quick(trainer_type), make, **copies)
    assert train({**quick(trainer_type), "max_steps": 120}, make, **copies, resume=True).steps
    assert evaluate("goals", make, episodes=2)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"env": "sim:3dball"}, "sim:3dball: it has no compute_reward that the trainer could call"),
        ({"env": "gym:CartPole-v1"}, "gym:CartPole-v1: expected observations in a Dict"),
        ({"env": None}, "got simulators that attach"),
        ({"env": PointReach, "num_learners": 2}, "expected distributed.num_learners 1, got 2"),
    ],
)
def test_a_simulator_without_goals_is_refused_before_the_run_has_a_folder(
    workplace: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        train(quick(), **given, run_id="goals", verbose=0)
    assert said in str(caught.value)
    assert str(caught.value).startswith("hyperparameters.replay.type: hindsight")
    assert not Path("results").exists()
