"""The last layer of a critic, with values in units of the running scale of returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Self

import torch
from torch import Tensor, nn

from trainer_service.learning.networks.encoders.layers import xavier_linear
from trainer_service.ops.value_scale import (
    ReturnMoments,
    initial_return_moments,
    preserved,
    scale_of,
    updated_return_moments,
)

Scaling = Literal["none", "valuenorm", "popart"]


class ScaledValues(nn.Module):
    """A linear layer whose outputs times σ plus μ are values; one μ and σ per reward signal, for all agents.

    The moments of μ and σ are float64. On devices without float64 (Apple's), they stay on the CPU.
    """

    mean: Tensor
    square: Tensor
    weight: Tensor

    def __init__(self, features: int, signals: int, scaling: Scaling, *, members: int = 1) -> None:
        """members: number of agents whose values each row of features gives."""
        super().__init__()
        self.linear = xavier_linear(features, members * signals)
        self._shape = (members, signals)
        self._scaling = scaling
        for name, start in initial_return_moments(signals)._asdict().items():
            self.register_buffer(name, start)

    def forward(self, features: Tensor) -> Tensor:
        """Maps [..., features] to [..., members, signals], in units of the scale."""
        values: Tensor = self.linear.forward(features)
        return values.view(*features.shape[:-1], *self._shape)

    def scale(self) -> tuple[Tensor, Tensor]:
        """μ and σ of every signal, [signals] each, with the dtype and device of the values."""
        like = self.linear.bias
        if self._scaling == "none":
            return like.new_zeros(len(self.mean)), like.new_ones(len(self.mean))
        mean, deviation = (part.to(like.dtype).to(like.device) for part in scale_of(self._moments()))
        return mean, deviation

    def raw(self, values: Tensor) -> Tensor:
        """Returns values in reward units. Shape kept, signals last."""
        mean, deviation = self.scale()
        return values * deviation + mean

    def scaled(self, returns: Tensor) -> Tensor:
        """Converts returns to units of the scale. Shape kept, signals last."""
        mean, deviation = self.scale()
        return (returns - mean) / deviation

    @torch.no_grad()
    def update(self, returns: Tensor) -> None:
        """Updates the scale with these returns, [B, signals]. With PopArt, the values in reward units are preserved."""
        if self._scaling == "none":
            return
        before = scale_of(self._moments())
        device = self.mean.device
        for name, moved in updated_return_moments(self._moments(), returns.to(device))._asdict().items():
            getattr(self, name).copy_(moved)
        if self._scaling == "popart":
            weight, bias = preserved(
                self.linear.weight.to(device),
                self.linear.bias.to(device),
                self._everyone(before),
                self._everyone(scale_of(self._moments())),
            )
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Moves the module to another device or dtype, as torch does, but keeps the moments in float64."""
        moments = self._moments()
        for name in moments._fields:
            setattr(self, name, None)
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]  # torch has no types here
        for name, moment in moments._asdict().items():
            try:
                setattr(self, name, fn(moment))
            except TypeError:  # the device has no float64
                setattr(self, name, moment)
        return self

    def _everyone(self, scale: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        mean, deviation = scale
        return mean.repeat(self._shape[0]), deviation.repeat(self._shape[0])

    def _moments(self) -> ReturnMoments:
        return ReturnMoments(self.mean, self.square, self.weight)
