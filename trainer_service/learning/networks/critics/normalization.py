"""Batch normalization of the layers of stacked critics. N critics with B rows of F features each."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from trainer_service.ops.normalization import (
    BatchMoments,
    moments_of,
    normalize,
    renormalization,
    standardize,
)

_MOMENTUM = 0.01
_BATCHES_BEFORE_RENORMALIZATION = 100_000


class BatchNorms(nn.Module):
    """Batch normalization, after 100,000 batches renormalization (Ioffe 2017, arXiv:1702.03275), as in CrossQ."""

    mean: Tensor
    variance: Tensor
    batches: Tensor

    def __init__(self, critics: int, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(critics, 1, features))
        self.bias = nn.Parameter(torch.zeros(critics, 1, features))
        self.register_buffer("mean", torch.zeros(critics, 1, features))
        self.register_buffer("variance", torch.ones(critics, 1, features))
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, features: Tensor) -> Tensor:
        """Normalizes by the running moments, which stay. [N, B, F]"""
        return normalize(features, self.weight, self.bias, self._running)

    def learn(self, features: Tensor) -> Tensor:
        """Normalizes by the moments of these rows, and moves the running moments towards them. [N, B, F]"""
        weight: Tensor = self.weight
        bias: Tensor = self.bias
        moments = moments_of(features)
        if self.batches >= _BATCHES_BEFORE_RENORMALIZATION:
            ratio, shift = renormalization(moments, self._running)
            weight, bias = weight * ratio, bias + weight * shift
        self.batches += 1
        # The first batches count alike, so that values do not wait for hundreds of batches to be right.
        newest = (1.0 / self.batches).clamp(min=_MOMENTUM)
        self.mean.lerp_(moments.mean, newest)
        self.variance.lerp_(moments.variance, newest)
        return standardize(features, weight, bias, moments)

    @property
    def _running(self) -> BatchMoments:
        return BatchMoments(self.mean, self.variance)
