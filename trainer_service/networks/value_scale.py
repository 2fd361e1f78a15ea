"""A critic's last layer, whose outputs are in units of the running scale of returns."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from trainer_service.networks.layers import xavier_linear
from trainer_service.ops.value_scale import ReturnMoments, no_moments, preserved, scale_of, updated_moments

Scaling = Literal["none", "valuenorm", "popart"]


class ScaledValues(nn.Module):
    """Linear; what it puts out times σ plus μ is a value. One μ and σ per reward signal, whoever's the value is."""

    mean: Tensor
    square: Tensor
    weight: Tensor

    def __init__(self, features: int, signals: int, scaling: Scaling, *, members: int = 1) -> None:
        """members: of how many agents each row of features tells the values."""
        super().__init__()
        self.linear = xavier_linear(features, members * signals)
        self._shape = (members, signals)
        self._scaling = scaling
        for name, start in no_moments(signals)._asdict().items():
            self.register_buffer(name, start)

    def forward(self, features: Tensor) -> Tensor:
        """[..., features] to [..., members, signals], in units of the scale."""
        values: Tensor = self.linear.forward(features)
        return values.view(*features.shape[:-1], *self._shape)

    def scale(self) -> tuple[Tensor, Tensor]:
        """μ and σ of every signal, [signals] each."""
        if self._scaling == "none":
            return torch.zeros_like(self.mean), torch.ones_like(self.mean)
        return scale_of(self._moments())

    def raw(self, values: Tensor) -> Tensor:
        """In reward units. Shape kept, signals last."""
        mean, deviation = self.scale()
        return values * deviation + mean

    def scaled(self, returns: Tensor) -> Tensor:
        """The other way round."""
        mean, deviation = self.scale()
        return (returns - mean) / deviation

    @torch.no_grad()
    def count(self, returns: Tensor) -> None:
        """Moves the scale towards these returns, [B, signals]; with PopArt what was learned stays as it is."""
        if self._scaling == "none":
            return
        before = self.scale()
        for name, moved in updated_moments(self._moments(), returns)._asdict().items():
            getattr(self, name).copy_(moved)
        if self._scaling == "popart":
            weight, bias = preserved(
                self.linear.weight, self.linear.bias, self._everyone(before), self._everyone(self.scale())
            )
            self.linear.weight.copy_(weight)
            self.linear.bias.copy_(bias)

    def _everyone(self, scale: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        mean, deviation = scale
        return mean.repeat(self._shape[0]), deviation.repeat(self._shape[0])

    def _moments(self) -> ReturnMoments:
        return ReturnMoments(self.mean, self.square, self.weight)
