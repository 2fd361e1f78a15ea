"""A trainer for agents that live in a simulator.

What most programs need is here::

    import trainer_service

    options = trainer_service.load_run_options("configs/3dball.yaml").options
    trainer_service.train(options)
    policy = trainer_service.load_policy("results/ppo")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from trainer_service._version import __version__

if TYPE_CHECKING:
    from trainer_service.callbacks import Callback
    from trainer_service.config import RunOptions, load_run_options, parse_run_options
    from trainer_service.policy import Policy, load_policy
    from trainer_service.training.train import Outcome, train

__all__ = [
    "Callback",
    "Outcome",
    "Policy",
    "RunOptions",
    "__version__",
    "load_policy",
    "load_run_options",
    "parse_run_options",
    "train",
]

_HOME = {
    "Callback": "callbacks",
    "Outcome": "training.train",
    "Policy": "policy",
    "RunOptions": "config",
    "load_policy": "policy",
    "load_run_options": "config",
    "parse_run_options": "config",
    "train": "training.train",
}


def __getattr__(name: str) -> Any:
    # Fetched when first used: a program that only wants to read a configuration need not wait for torch.
    if name in _HOME:
        return getattr(importlib.import_module(f"trainer_service.{_HOME[name]}"), name)
    raise AttributeError(f"module 'trainer_service' has no attribute '{name}'")
