"""The optimizers of policies and critics: ``hyperparameters.optimizer``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from trainer_service.config.hyperparameters.common import OPTIMIZER_PLUGINS, Hyperparameters
from trainer_service.learning.networks.flat import BETAS, FlatOptimizer
from trainer_service.learning.networks.shard import SINGLE_RANK, Shard
from trainer_service.plugins import make_part

TorchOptimizer = torch.optim.Optimizer


def make_optimizer(
    parameters: Iterable[nn.Parameter],
    hyper: Hyperparameters,
    shard: Shard = SINGLE_RANK,
    *,
    epsilon: float = 1e-8,
    betas: tuple[float, float] = BETAS,
) -> FlatOptimizer:
    """Makes the optimizer of the hyperparameters. Raises PluginError if a plugin's cannot be made.

    epsilon, betas: ε, β₁ and β₂ of Adam and AdamW.
    """
    decay, name = hyper.weight_decay, hyper.optimizer
    if name == "adam":
        return FlatOptimizer(parameters, epsilon=epsilon, weight_decay=decay, betas=betas, shard=shard)
    if name == "adamw":
        make: Callable[..., Any] = partial(
            torch.optim.AdamW,
            lr=hyper.learning_rate,
            betas=betas,
            eps=epsilon,
            weight_decay=decay,
            fused=True,
        )
        return FlatOptimizer(parameters, shard=shard, make_rule=lambda each: TorchRule(make(each), decay))
    return FlatOptimizer(parameters, shard=shard, make_rule=partial(_of_plugin, hyper))


class TorchRule:
    """A torch optimizer as a rule of ``FlatOptimizer``. It changes the slices of the vector in place."""

    def __init__(self, optimizer: TorchOptimizer, weight_decay: float) -> None:
        """weight_decay: of this run, which replaces the checkpoint's when resuming."""
        self._optimizer = optimizer
        self._weight_decay = weight_decay

    def __repr__(self) -> str:
        return type(self._optimizer).__name__

    def step(self, learning_rate: float) -> None:
        """Makes one step with this learning rate."""
        for group in self._optimizer.param_groups:
            group["lr"] = learning_rate
        self._optimizer.step()

    def state_dict(self) -> dict[str, Any]:
        """The optimizer's state and name."""
        return {"name": repr(self), **self._optimizer.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError or ValueError for the state of another optimizer."""
        if state["name"] != repr(self):
            raise ValueError(f"a state of {state['name']} is none of {self!r}")
        self._optimizer.load_state_dict({key: state[key] for key in ("state", "param_groups")})
        for group in self._optimizer.param_groups:
            if "weight_decay" in group:
                group["weight_decay"] = self._weight_decay


def _of_plugin(hyper: Hyperparameters, parameters: list[nn.Parameter]) -> TorchRule:
    """Makes the rule of another distribution's optimizer. Raises PluginError."""
    decay = {"weight_decay": hyper.weight_decay} if hyper.weight_decay else {}
    made = make_part(
        OPTIMIZER_PLUGINS,
        hyper.optimizer,
        TorchOptimizer,
        lambda make: make(parameters, lr=hyper.learning_rate, **decay),
    )
    return TorchRule(made, hyper.weight_decay)
