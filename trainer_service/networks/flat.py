"""All parameters of a network as one vector, and their gradients as another."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn


class FlatParameters:
    """Rebinds parameters to slices of one vector, so that what is done to all of them is done once.

    Zeroing, clipping and Adam then cost a few operations instead of a few per tensor, which matters where a
    minibatch's own arithmetic takes less time than the bookkeeping around it. The parameters stay what they
    are for everybody else: state dicts, forward passes and autograd do not notice.
    """

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        """The parameters must be of one type, on the device where they will stay."""
        parameters = list(parameters)
        self.vector = nn.Parameter(torch.cat([parameter.detach().flatten() for parameter in parameters]))
        """What an optimizer is given."""
        self.gradient: Tensor = torch.zeros_like(self.vector)
        self.vector.grad = self.gradient
        start = 0
        for parameter in parameters:
            piece = slice(start, start + parameter.numel())
            parameter.data = self.vector.data[piece].view_as(parameter)
            # Autograd adds to a gradient that is there, in place: it never replaces the slice.
            parameter.grad = self.gradient[piece].view_as(parameter)
            start = piece.stop

    def zero_gradient(self) -> None:
        """Before each backward pass."""
        self.gradient.zero_()

    def clip_gradient(self, max_norm: float) -> None:
        """Scales the gradient down to ``max_norm`` where it is longer, without asking the device how long."""
        norm = torch.linalg.vector_norm(self.gradient)
        self.gradient.mul_((max_norm / (norm + 1e-6)).clamp_(max=1.0))
