"""What is trained on Gymnasium, and what RL Baselines3 Zoo publishes for it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from marl.rows import Row

Learner = Literal["ppo", "sac", "crossq"]


@dataclass(frozen=True, slots=True)
class GymRow(Row):
    """One configuration on one environment."""

    learner: Learner = "ppo"
    published: float = 0.0
    """Mean return of one run, https://github.com/DLR-RM/rl-baselines3-zoo/blob/master/benchmark.md, or for CrossQ
    of ten, from the files of https://github.com/DAVIAN-Robotics/SimbaV2."""

    published_for: str = ""
    """The environment and the steps of that run."""

    @property
    def peer(self) -> str:
        """The name of the scores of Stable-Baselines3, with the same values in the same environment."""
        return f"{self.name}+sb3"


_PLAIN = "benchmarks/gym_scores/configs"


def _row(
    name: str, env: str, published: float, published_for: str, learner: Learner, *env_args: str
) -> GymRow:
    """A bundled configuration, or that of plain SAC, which only the comparison needs."""
    gym = f"gym:{env}"
    folder = _PLAIN if learner == "sac" else "configs"
    return GymRow(
        name, env, gym, gym, 1, 100, unit="agent", env_args=("--agents", "10", *env_args), trained_args=env_args,
        folder=folder, learner=learner, published=published, published_for=published_for,
    )  # fmt: skip


def _critics(task: str, env: str, sac: float, crossq: float, *env_args: str) -> tuple[GymRow, GymRow]:
    """The bundled configuration, which is CrossQ's, and plain SAC's."""
    return (
        _row(f"{task}_sac", env, crossq, "v4, 0.3 M, CrossQ", "crossq", *env_args),
        _row(f"{task}_plain_sac", env, sac, "v3, 1 M", "sac", *env_args),
    )


_NO_CONTACT_FORCES = ("--env-kwargs", '{"include_cfrc_ext_in_observation": false}')
"""27 observations in the place of 105, as in the versions before v5."""

ROWS = (
    _row("halfcheetah", "HalfCheetah-v5", 5819.1, "v3, 1 M", "ppo"),
    _row("hopper", "Hopper-v5", 2410.4, "v3, 1 M", "ppo"),
    _row("lunarlander", "LunarLander-v3", 242.1, "v2, 1 M", "ppo"),
    _row("bipedalwalker", "BipedalWalker-v3", 287.9, "v3, 5 M", "ppo"),
    *_critics("halfcheetah", "HalfCheetah-v5", 9535.5, 10001.0),
    *_critics("hopper", "Hopper-v5", 2325.5, 2633.0),
    *_critics("walker2d", "Walker2d-v5", 3863.2, 5714.0),
    *_critics("ant", "Ant-v5", 4615.8, 5650.0, *_NO_CONTACT_FORCES),
)
