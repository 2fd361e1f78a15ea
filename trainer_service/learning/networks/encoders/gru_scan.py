"""A GRU over several steps on a CPU, with an explicit gradient.

torch has a fused LSTM for CPUs, but no fused GRU. Its GRU records a dozen operators per step, and their backward pass
takes most of an update. Here a step has six operators forward and four backward. On a GPU, cuDNN is faster.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def gru_scan(inputs: Tensor, memories: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Computes L steps of N agents, of h size H. The gates r, z and n are concatenated, as in torch's layers.

        r, z = σ(x + U h + b'),  n = tanh(x + r (U h + b')),  h' = n + z (h − n)

    inputs: x = W features + b, [L, N, 3H]; memories: the first h, [N, H]; weight: U, [3H, H]; bias: b', [3H].
    Returns every h', [L, N, H].
    """
    outputs: Tensor = _Scan.apply(inputs, memories, weight, bias)  # type: ignore[no-untyped-call]
    return outputs


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, memories: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        size = memories.shape[1]
        hidden = inputs.new_empty((len(inputs) + 1, *memories.shape))
        hidden[0] = memories
        recurrent = torch.empty_like(inputs)
        gates, candidates = torch.empty_like(inputs[..., : 2 * size]), torch.empty_like(hidden[1:])
        parts = [2 * size, size]
        states = (hidden[:-1], hidden[1:], candidates)
        opened = (gates, *torch.split(gates, size, dim=2))
        recurrent_parts = (recurrent, *torch.split(recurrent, parts, dim=2))
        transposed = weight.t()
        for before, after, new, gate, reset, update, spoken, to_gate, to_new, gate_in, new_in in _by_step(
            *states, *opened, *recurrent_parts, *torch.split(inputs, parts, dim=2)
        ):
            torch.addmm(bias, before, transposed, out=spoken)
            torch.add(gate_in, to_gate, out=gate).sigmoid_()
            torch.addcmul(new_in, reset, to_new, out=new).tanh_()
            torch.lerp(new, before, update, out=after)
        ctx.save_for_backward(hidden, recurrent[..., 2 * size :], gates, candidates, weight)
        return hidden[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        hidden, recurrent, gates, candidates, weight = ctx.saved_tensors
        steps, agents, size = candidates.shape
        before, (reset, update) = hidden[:-1], torch.split(gates, size, dim=2)
        # All factors of the gradients of h' are known, so little work is left for the sequential part.
        to_candidate = (1.0 - update) * (1.0 - candidates.square())
        to_reset = to_candidate * recurrent * reset * (1.0 - reset)
        to_update = (before - candidates) * update * (1.0 - update)
        factors = torch.stack([to_reset, to_update, to_candidate * reset], dim=2)
        of_hidden, of_recurrent = torch.empty_like(candidates), torch.empty_like(factors)
        flat = of_recurrent.view(steps, agents, 3 * size)
        carried = torch.zeros_like(candidates[0])
        views = (gradient, of_hidden, of_hidden.unsqueeze(2), factors, of_recurrent, update, flat)
        for above, here, column, factor, gate, kept, row in reversed(_by_step(*views)):
            torch.add(above, carried, out=here)
            torch.mul(column, factor, out=gate)
            torch.mul(here, kept, out=carried).addmm_(row, weight)
        of_inputs = torch.cat([flat[..., : 2 * size], of_hidden * to_candidate], dim=2)
        rows = flat.view(-1, 3 * size)
        return of_inputs, carried, rows.t() @ before.reshape(-1, size), rows.sum(dim=0)


def _by_step(*columns: Tensor) -> list[tuple[Tensor, ...]]:
    """Returns views of every step. Creating them one by one would cost as much as the arithmetic."""
    return list(zip(*(column.unbind() for column in columns), strict=True))
