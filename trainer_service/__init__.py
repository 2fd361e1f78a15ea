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
    from trainer_service.api.clone import clone
    from trainer_service.api.comparison import compare, compare_tasks, report
    from trainer_service.api.configuration import suggest
    from trainer_service.api.environments import EnvironmentLike
    from trainer_service.api.evaluate import evaluate
    from trainer_service.api.experiments.seeds import train_seeds
    from trainer_service.api.experiments.sweep import sweep
    from trainer_service.api.export import export
    from trainer_service.api.metrics import load_metrics
    from trainer_service.api.play import play
    from trainer_service.api.record import record
    from trainer_service.api.train import train
    from trainer_service.api.watch import watch
    from trainer_service.callbacks import Callback, EndedEpisodes, RunView, SimulatorStep
    from trainer_service.config import RunOptions, load_run_options, parse_run_options
    from trainer_service.hub.share import load_from_hub, push_to_hub
    from trainer_service.policy import Policy, load_policy
    from trainer_service.policy.gym_policy import GymPolicy
    from trainer_service.policy.pettingzoo_policy import PettingZooPolicy
    from trainer_service.rollout.episode_scores import Evaluation, Score
    from trainer_service.rollout.trajectories import Trajectories
    from trainer_service.training.train import Outcome

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
    "Callback": "callbacks",
    "EndedEpisodes": "callbacks",
    "EnvironmentLike": "api.environments",
    "Evaluation": "rollout.episode_scores",
    "GymPolicy": "policy.gym_policy",
    "Outcome": "training.train",
    "PettingZooPolicy": "policy.pettingzoo_policy",
    "Policy": "policy",
    "RunOptions": "config",
    "RunView": "callbacks",
    "Score": "rollout.episode_scores",
    "SimulatorStep": "callbacks",
    "Trajectories": "rollout.trajectories",
    "clone": "api.clone",
    "compare": "api.comparison",
    "compare_tasks": "api.comparison",
    "evaluate": "api.evaluate",
    "export": "api.export",
    "load_from_hub": "hub.share",
    "load_metrics": "api.metrics",
    "load_policy": "policy",
    "load_run_options": "config",
    "parse_run_options": "config",
    "play": "api.play",
    "push_to_hub": "hub.share",
    "record": "api.record",
    "report": "api.comparison",
    "sweep": "api.experiments.sweep",
    "suggest": "api.configuration",
    "train": "api.train",
    "train_seeds": "api.experiments.seeds",
    "watch": "api.watch",
}


def __getattr__(name: str) -> Any:
    # Fetched when first used: a program that only wants to read a configuration need not wait for torch.
    if name in _HOME:
        return getattr(importlib.import_module(f"trainer_service.{_HOME[name]}"), name)
    raise AttributeError(f"module 'trainer_service' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(__all__)  # for tab completion: what is offered, and nothing of how
