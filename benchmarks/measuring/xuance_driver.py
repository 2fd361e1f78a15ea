"""XuanCe's own agents, for so many seconds on simple_spread_v3 of mpe2; then the greedy score.

    PYTHON_WITH_XUANCE xuance_driver.py ALGORITHM --seconds S --episodes N --seed SEED --result FILE

Runs in an environment that has XuanCe, and imports nothing of ours. Settings are XuanCe's published ones for this
task; seeds alone are given. Training is its runner's, one call for all the published steps. A callback ends it when the
time is over, so that schedules are those of a full run.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from argparse import Namespace
from contextlib import suppress
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import mpe2.simple_spread_v3
import numpy as np
import torch

# XuanCe asks for pettingzoo.mpe, as mpe2 was once called. Its worker processes import this file first, too.
sys.modules["pettingzoo.mpe"] = mpe2
sys.modules["pettingzoo.mpe.simple_spread_v3"] = mpe2.simple_spread_v3

from xuance import get_runner  # noqa: E402  (needs the line above)
from xuance.common import MultiAgentBaseCallback  # noqa: E402

ENVIRONMENT, TASK = "mpe", "simple_spread_v3"
COPIES = 50
STEPS = 25


class TimeOver(Exception):
    """The training is to end here."""


class Clock(MultiAgentBaseCallback):
    """Ends the training; the time runs from the first step on."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds
        self.environment_steps = 0
        self.elapsed_s = 0.0
        self._began: float | None = None

    def on_train_step(self, current_step: int, *arguments: Any, **named: Any) -> None:
        if self._began is None:
            self._began = time.perf_counter()

    def on_train_step_end(self, current_step: int, *arguments: Any, **named: Any) -> None:
        assert self._began is not None
        self.environment_steps = current_step
        self.elapsed_s = time.perf_counter() - self._began
        if self.elapsed_s >= self.seconds:
            raise TimeOver


def main() -> None:
    """Trains, scores, and writes the result."""
    arguments = parse()
    accept_no_delta()
    given = Namespace(seed=arguments.seed, env_seed=arguments.seed, device="cpu")
    runner = get_runner(arguments.algorithm, ENVIRONMENT, TASK, parser_args=given)
    agent = runner.agent
    clock = agent.callback = Clock(arguments.seconds)
    with suppress(TimeOver):
        runner.run(mode="train")
    spent = os.times()  # the runner has waited for its environments
    returns = play(agent, bool(runner.config.continuous_action), arguments.episodes, arguments.seed)
    result = {
        "environment_steps": clock.environment_steps,
        "agent_steps": clock.environment_steps * agent.n_agents,
        "seconds": clock.elapsed_s,
        "cpu_seconds": spent.user + spent.system + spent.children_user + spent.children_system,
        "published_steps": runner.config.running_steps,
        "parallels": runner.config.parallels,
        "actions": "continuous" if runner.config.continuous_action else "discrete",
        "episodes": len(returns),
        "mean_return": fmean(returns),
        "std_return": stdev(returns) if len(returns) > 1 else 0.0,
    }
    arguments.result.write_text(json.dumps(result) + "\n", encoding="utf-8")


def parse() -> Namespace:
    """The arguments."""
    parser = argparse.ArgumentParser(description="XuanCe on simple_spread_v3 of mpe2, for so many seconds.")
    parser.add_argument("algorithm", help="as XuanCe calls it")
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--episodes", type=int, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--result", type=Path, required=True, metavar="FILE")
    return parser.parse_args()


def accept_no_delta() -> None:
    """Of XuanCe's COMA, which makes a Huber loss with a delta of None and never uses it; newer torch refuses that."""
    strict = torch.nn.HuberLoss

    class HuberLoss(strict):
        def __init__(self, reduction: str = "mean", delta: float | None = 1.0) -> None:
            super().__init__(reduction, 1.0 if delta is None else delta)

    torch.nn.HuberLoss = HuberLoss


def play(agent: Any, continuous: bool, episodes: int, seed: int) -> list[float]:
    """Returns of episodes in which the agents act greedily: the mean over agents of their own sums of rewards."""
    returns: list[float] = []
    worlds = [mpe2.simple_spread_v3.parallel_env(continuous_actions=continuous) for _ in range(COPIES)]
    while len(returns) < episodes:
        # Worlds of their own for every round, whatever was trained on.
        first = 1_000_000 + 10_000 * seed + len(returns)
        seen = [world.reset(seed=first + number)[0] for number, world in enumerate(worlds)]
        sums = [0.0] * COPIES
        for _ in range(STEPS):
            chosen = agent.get_actions(obs_dict=seen, test_mode=True, deterministic=True)["actions"]
            for number, (world, actions) in enumerate(zip(worlds, chosen, strict=True)):
                seen[number], rewards, *_ = world.step(clipped(actions) if continuous else actions)
                sums[number] += fmean(rewards.values())
        returns.extend(sums)
    return returns[:episodes]


def clipped(actions: dict[str, Any]) -> dict[str, Any]:
    """As XuanCe's own environment gives them to mpe2."""
    return {name: np.clip(value, 0.0, 1.0) for name, value in actions.items()}


if __name__ == "__main__":
    main()
