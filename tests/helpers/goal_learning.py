"""What is learned of goal environments with a sparse reward, with hindsight replay and without."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from goal_environments import BitFlipping, GoalEnv, PointReach

from trainer_service import load_policy, train

EPISODES = 100
KINDS = ("hindsight", "uniform")


@dataclass(frozen=True, slots=True)
class Case:
    """A learner of a goal environment, and how long it learns."""

    trainer_type: str
    make: Callable[[], GoalEnv]
    task: str
    steps: int
    hyperparameters: dict[str, Any]

    def settings(self, kind: str, **changes: Any) -> dict[str, Any]:
        """Its configuration. kind: of the replay."""
        usual = {"batch_size": 128, "learning_rate": 1e-3, "buffer_init_steps": 500, "replay": {"type": kind}}
        return {
            "trainer_type": self.trainer_type,
            "hyperparameters": {**usual, **self.hyperparameters, **changes},
            "network_settings": {"hidden_units": 64, "num_layers": 2},
            "reward_signals": {"extrinsic": {"gamma": 0.95}},
            "max_steps": self.steps,
        }

    def success_rate(self, kind: str, seed: int, results: Path) -> float:
        """Trains, and returns the share of episodes in which the greedy policy achieves its goal."""
        run_id = f"{self.trainer_type}-{kind}-{seed}"
        place = {"run_id": run_id, "results_dir": str(results), "force": True}
        run = train(self.settings(kind), self.make, **place, seed=seed, verbose=0)
        return success_rate(run.folder, self.make())


BITS = {"tau": 0.05, "exploration_steps": 3000}
NOISE = {"tau": 0.02, "exploration_noise": 0.3}
CASES = (
    Case("dqn", lambda: BitFlipping(10), "flip 10 bits", 6000, BITS),
    Case("td3", PointReach, "reach a point", 4000, NOISE),
    Case("ddpg", PointReach, "reach a point", 5000, NOISE),
    Case("sac", PointReach, "reach a point", 5000, {"tau": 0.02}),
)


def success_rate(run: Path, env: GoalEnv) -> float:
    policy = load_policy(run).wrap(env)
    achieved = 0
    for episode in range(EPISODES):
        seen, _ = env.reset(seed=10_000 + episode)
        ended = truncated = False
        while not (ended or truncated):
            seen, _, ended, truncated, _ = env.step(policy.predict(seen)[0])
        achieved += ended
    return achieved / EPISODES
