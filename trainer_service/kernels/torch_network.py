"""The usual network's forward and backward pass by hand, in torch operations that write where results belong.

B rows, N bodies: two side by side, or one that actor and critic share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.kernels.mlp_layout import LinearLayer, MlpLayout


class Weights(NamedTuple):
    """A linear layer's weights and biases, or the gradient by them."""

    weight: Tensor
    """[outputs, inputs], or [N, outputs, inputs] of N bodies."""

    bias: Tensor
    """[outputs], or [N, 1, outputs]."""


@dataclass(frozen=True, slots=True)
class NetworkViews:
    """The usual network's layers as views of a vector, of parameters or of their gradient."""

    body: tuple[Weights, ...]
    """Each with actor's and critic's side by side."""

    mean: Weights | None
    log_sigma: Tensor | None
    """[C]"""

    logits: Weights | None
    value: Weights

    @staticmethod
    def of(layout: MlpLayout, vector: Tensor) -> NetworkViews:
        """Raises ValueError where the bodies of actor and critic are not alike."""
        bodies, apart = (1, 0) if layout.critic is None else (2, _distance(layout))

        def of_bodies(layer: LinearLayer) -> Weights:
            sizes = (layer.outputs, layer.inputs)
            weight = vector.as_strided((bodies, *sizes), (apart, layer.inputs, 1), layer.weight)
            return Weights(weight, vector.as_strided((bodies, 1, sizes[0]), (apart, 0, 1), layer.bias))

        def of_head(layer: LinearLayer | None) -> Weights | None:
            if layer is None:
                return None
            sizes = (layer.outputs, layer.inputs)
            weight = vector[layer.weight : layer.weight + layer.outputs * layer.inputs].view(sizes)
            return Weights(weight, vector[layer.bias : layer.bias + layer.outputs])

        numbers = 0 if layout.mean is None else layout.mean.outputs
        sigma, value = layout.log_sigma, of_head(layout.value)
        assert value is not None
        return NetworkViews(
            body=tuple(of_bodies(layer) for layer in layout.actor),
            mean=of_head(layout.mean),
            log_sigma=None if sigma is None else vector[sigma : sigma + numbers],
            logits=of_head(layout.logits),
            value=value,
        )

    def heads(self) -> tuple[Weights | None, Weights | None, Weights]:
        """The heads in the order of ``Outputs``. The value head sits on the last body, the others on the first."""
        return self.mean, self.logits, self.value

    def values(self, observations: Tensor) -> Tensor:
        """Values of observations [B, inputs]; [B, signals]."""
        features = observations
        for weight, bias in self.body:
            features = nn.functional.linear(features, weight[-1], bias[-1, 0])
            features = nn.functional.silu(features, inplace=True)
        return nn.functional.linear(features, *self.value)


class Outputs(NamedTuple):
    """What the network puts out for B rows, or the gradient of a loss by that."""

    mean: Tensor | None
    """[B, C]"""

    logits: Tensor | None
    """[B, K]"""

    values: Tensor
    """[B, signals]"""


class Passes:
    """Passes of minibatches of one size, in buffers that all of them share."""

    def __init__(self, weights: NetworkViews, gradient: NetworkViews, rows: int) -> None:
        self._weights = weights
        self._gradient = gradient
        self._bodies = weights.body[0].weight.shape[0]
        # One transposed view for each layer instead of one for each step.
        self._forward = [(weight.mT, bias) for weight, bias in weights.body]
        shapes = [(self._bodies, rows, weight.shape[1]) for weight, _ in weights.body]
        empty = weights.value.weight.new_empty
        self._sums = [empty(shape) for shape in shapes]
        """W x + b of each layer."""
        self._features = [empty(shape) for shape in shapes]
        """Each layer's Swish of that."""
        self._by_sums = [empty(shape) for shape in shapes]
        """The gradient by each layer's features, then by its sums."""

    def forward(self, observations: Tensor) -> Outputs:
        """observations: [B, inputs]."""
        inputs = observations.expand(self._bodies, -1, -1)
        for (weight, bias), sums, features in zip(self._forward, self._sums, self._features, strict=True):
            torch.baddbmm(bias, inputs, weight, out=sums)
            torch.ops.aten.silu.out(sums, out=features)
            inputs = features
        mean, logits, value = self._weights.heads()
        return Outputs(
            None if mean is None else torch.addmm(mean.bias, inputs[0], mean.weight.t()),
            None if logits is None else torch.addmm(logits.bias, inputs[0], logits.weight.t()),
            torch.addmm(value.bias, inputs[-1], value.weight.t()),
        )

    def backward(self, observations: Tensor, by_outputs: Outputs) -> None:
        """Writes the gradient by all weights. To be called after ``forward`` of these observations."""
        self._heads_backward(by_outputs)
        for layer in reversed(range(len(self._sums))):
            by_sums, gradient = self._by_sums[layer], self._gradient.body[layer]
            torch.ops.aten.silu_backward.grad_input(by_sums, self._sums[layer], grad_input=by_sums)
            inputs = self._features[layer - 1] if layer else observations.expand(self._bodies, -1, -1)
            torch.bmm(by_sums.mT, inputs, out=gradient.weight)
            torch.sum(by_sums, 1, keepdim=True, out=gradient.bias)
            if layer:
                torch.bmm(by_sums, self._weights.body[layer].weight, out=self._by_sums[layer - 1])

    def _heads_backward(self, by_outputs: Outputs) -> None:
        features, by_features = self._features[-1], self._by_sums[-1]
        bodies = (0, 0, self._bodies - 1)
        reached: set[int] = set()
        heads = zip(bodies, self._weights.heads(), self._gradient.heads(), by_outputs, strict=True)
        for body, head, gradient, by_output in heads:
            if head is None or gradient is None or by_output is None:
                continue
            torch.mm(by_output.t(), features[body], out=gradient.weight)
            torch.sum(by_output, 0, out=gradient.bias)
            if body in reached:
                by_features[body].addmm_(by_output, head.weight)
            else:
                torch.mm(by_output, head.weight, out=by_features[body])
            reached.add(body)


def _distance(layout: MlpLayout) -> int:
    """Numbers from each of the actor's layers to the critic's."""
    actor, critic = layout.actor, layout.critic or ()
    apart = critic[0].weight - actor[0].weight if critic else 0
    moved = tuple(
        LinearLayer(each.weight + apart, each.bias + apart, each.inputs, each.outputs) for each in actor
    )
    if moved != critic:
        raise ValueError("the bodies of actor and critic have other layers")
    return apart
