"""What is trained on Gymnasium, and what RL Baselines3 Zoo publishes for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marl.rows import Row


@dataclass(frozen=True, slots=True)
class GymRow(Row):
    """One configuration on one environment."""

    learner: Literal["ppo", "sac"] = "ppo"
    published: float = 0.0
    """Mean return of one run, https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md"""

    published_for: str = ""
    """The environment and the steps of that run."""

    @property
    def peer(self) -> str:
        """The name of the scores of Stable-Baselines3, with the same values in the same environment."""
        return f"{self.name}+sb3"


def _row(name: str, env: str, published: float, published_for: str, learner: Literal["ppo", "sac"]) -> GymRow:
    gym = f"gym:{env}"
    return GymRow(
        name, env, gym, gym, 1, 100, unit="agent", env_args=("--agents", "10"),
        learner=learner, published=published, published_for=published_for,
    )  # fmt: skip


ROWS = (
    _row("halfcheetah", "HalfCheetah-v5", 5819.1, "v3, 1 M", "ppo"),
    _row("hopper", "Hopper-v5", 2410.4, "v3, 1 M", "ppo"),
    _row("lunarlander", "LunarLander-v3", 242.1, "v2, 1 M", "ppo"),
    _row("bipedalwalker", "BipedalWalker-v3", 287.9, "v3, 5 M", "ppo"),
    _row("halfcheetah_sac", "HalfCheetah-v5", 9535.5, "v3, 1 M", "sac"),
    _row("hopper_sac", "Hopper-v5", 2325.5, "v3, 1 M", "sac"),
)
