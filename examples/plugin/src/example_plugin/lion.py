"""An optimizer: Lion, Chen et al. 2023 (arXiv:2302.06675), which steps by the sign of its momentum."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import nn


class Lion(torch.optim.Optimizer):
    """The optimizer ``optimizer: lion``. Its steps are as long as the rate, so that is a tenth of Adam's."""

    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]  # no loss is returned
        """Moves each parameter that has a gradient, in place."""
        for group in self.param_groups:
            beta_1, beta_2 = group["betas"]
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                state = self.state[parameter]
                momentum = state.setdefault("momentum", torch.zeros_like(parameter))
                direction = torch.lerp(parameter.grad, momentum, beta_1).sign()
                parameter.mul_(1.0 - group["lr"] * group["weight_decay"]).sub_(group["lr"] * direction)
                momentum.lerp_(parameter.grad, 1.0 - beta_2)
