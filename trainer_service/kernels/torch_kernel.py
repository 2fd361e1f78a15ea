"""PPO's epochs by hand in torch operations: the fast path that needs nothing but torch, on any device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from trainer_service.kernels.mlp_layout import MlpLayout
from trainer_service.kernels.ppo_kernel import MinibatchSpan, PPOSteps
from trainer_service.kernels.ppo_rows import EpochRows, output_gradient
from trainer_service.kernels.torch_network import NetworkViews, Passes
from trainer_service.networks.encoders.layers import in_chunks
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.ops.losses import PPOBatch

_CHUNK_FLOATS = 1 << 17
"""Numbers of a layer that values are computed of at once: half a megabyte, which stays in a core's cache."""


class TorchKernel:
    """Gradient steps by closed forms: autograd's bookkeeping costs as much as the products of 64 rows."""

    name = "torch operations"

    def __init__(self, layout: MlpLayout, optimizer: FlatOptimizer) -> None:
        """optimizer: of the network that the layout describes.

        Raises ValueError where its bodies are not alike, or where it has memory.
        """
        if layout.lstms:
            raise ValueError("autograd does this for networks with memory")
        self._layout = layout
        self._optimizer = optimizer
        with torch.no_grad():
            self._weights = NetworkViews.of(layout, optimizer.parameters.vector)
            self._gradient = NetworkViews.of(layout, optimizer.parameters.gradient)

    @torch.inference_mode()
    def epoch(
        self,
        observations: Tensor,
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[MinibatchSpan],
        steps: PPOSteps,
        progress: Callable[[int], None],
    ) -> Tensor:
        """Makes a gradient step for each minibatch; see ``PPOKernel``."""
        rows = EpochRows(observations, targets, order, minibatches, steps)
        passes: dict[int, Passes] = {}
        parameters = self._optimizer.parameters
        for number, (minibatch, span) in enumerate(zip(rows.minibatches(), minibatches, strict=True)):
            progress(number)
            count = minibatch.observations.shape[0]
            if count not in passes:
                passes[count] = Passes(self._weights, self._gradient, count)
            outputs = passes[count].forward(minibatch.observations)
            by_outputs = output_gradient(
                minibatch,
                outputs,
                self._weights.log_sigma,
                self._gradient.log_sigma,
                self._layout.branches,
                steps,
            )
            passes[count].backward(minibatch.observations, by_outputs)
            parameters.reduce_gradient(span.share)
            if steps.max_grad_norm is not None:
                parameters.clip_gradient(steps.max_grad_norm)
            self._optimizer.adam.step(steps.learning_rate)
        return rows.losses()

    @torch.inference_mode()
    def values(self, observations: Tensor, sequences: Sequences | None = None) -> Tensor:
        """Returns a value for each reward signal; see ``PPOKernel``. sequences: None."""
        rows = max(_CHUNK_FLOATS // self._layout.widest, 1)
        chunks = [self._weights.values(observations[chunk]) for chunk in in_chunks(len(observations), rows)]
        return torch.cat(chunks) if chunks else observations.new_empty((0, self._layout.value.outputs))
