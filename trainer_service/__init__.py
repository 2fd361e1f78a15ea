"""A trainer for agents that live in a simulator.

What most programs need is here::

    import trainer_service

    outcome = trainer_service.train("configs/3dball.yaml", env="sim:3dball", run_id="balls")
    scores = trainer_service.evaluate(outcome)
    policy = trainer_service.load_policy(outcome)
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

from trainer_service._version import __version__

if TYPE_CHECKING:
    from trainer_service.commands.common.environments import EnvironmentLike
    from trainer_service.commands.compare.compare import compare, compare_tasks
    from trainer_service.commands.compare.metrics import load_metrics
    from trainer_service.commands.demos.clone import clone
    from trainer_service.commands.play.play import evaluate, play
    from trainer_service.commands.play.record import record
    from trainer_service.commands.report.command import report
    from trainer_service.commands.search.seeds import train_seeds
    from trainer_service.commands.search.sweep import sweep
    from trainer_service.commands.share.export import export
    from trainer_service.commands.share.share import load_from_hub, push_to_hub
    from trainer_service.commands.suggest.suggest import suggest
    from trainer_service.commands.train.run import Outcome
    from trainer_service.commands.train.train import train
    from trainer_service.commands.watch.watch import watch
    from trainer_service.config import RunOptions, load_run_options, parse_run_options
    from trainer_service.learning.rollout.episode_scores import Evaluation, Score
    from trainer_service.learning.rollout.trajectories import Trajectories
    from trainer_service.running.callbacks import Callback, EndedEpisodes, RunView, SimulatorStep
    from trainer_service.running.policy import Policy, load_policy
    from trainer_service.running.policy.gym_policy import GymPolicy
    from trainer_service.running.policy.pettingzoo_policy import PettingZooPolicy

# With Intel's MKL torch's products depend in their last digits on where in memory their factors lie, unless MKL is told
# otherwise before its first product. A resumed run would leave the way of one that never stopped.
os.environ.setdefault("MKL_CBWR", "AUTO,STRICT")

__all__ = [
    "Callback",
    "EndedEpisodes",
    "EnvironmentLike",
    "Evaluation",
    "GymPolicy",
    "Outcome",
    "PettingZooPolicy",
    "Policy",
    "RunOptions",
    "RunView",
    "Score",
    "SimulatorStep",
    "Trajectories",
    "__version__",
    "clone",
    "compare",
    "compare_tasks",
    "evaluate",
    "export",
    "load_from_hub",
    "load_metrics",
    "load_policy",
    "load_run_options",
    "parse_run_options",
    "play",
    "push_to_hub",
    "record",
    "report",
    "suggest",
    "sweep",
    "train",
    "train_seeds",
    "watch",
]

_HOME = {
    "Callback": "running.callbacks",
    "EndedEpisodes": "running.callbacks",
    "EnvironmentLike": "commands.common.environments",
    "Evaluation": "learning.rollout.episode_scores",
    "GymPolicy": "running.policy.gym_policy",
    "Outcome": "commands.train.run",
    "PettingZooPolicy": "running.policy.pettingzoo_policy",
    "Policy": "running.policy",
    "RunOptions": "config",
    "RunView": "running.callbacks",
    "Score": "learning.rollout.episode_scores",
    "SimulatorStep": "running.callbacks",
    "Trajectories": "learning.rollout.trajectories",
    "clone": "commands.demos.clone",
    "compare": "commands.compare.compare",
    "compare_tasks": "commands.compare.compare",
    "evaluate": "commands.play.play",
    "export": "commands.share.export",
    "load_from_hub": "commands.share.share",
    "load_metrics": "commands.compare.metrics",
    "load_policy": "running.policy",
    "load_run_options": "config",
    "parse_run_options": "config",
    "play": "commands.play.play",
    "push_to_hub": "commands.share.share",
    "record": "commands.play.record",
    "report": "commands.report.command",
    "sweep": "commands.search.sweep",
    "suggest": "commands.suggest.suggest",
    "train": "commands.train.train",
    "train_seeds": "commands.search.seeds",
    "watch": "commands.watch.watch",
}


def __getattr__(name: str) -> Any:
    # Fetched when first used: a program that only wants to read a configuration need not wait for torch.
    if name in _HOME:
        return getattr(importlib.import_module(f"trainer_service.{_HOME[name]}"), name)
    raise AttributeError(f"module 'trainer_service' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)  # for tab completion: what is offered, and nothing of how
