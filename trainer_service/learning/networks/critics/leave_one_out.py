"""Attention in several versions of a group that differ in one member each, at little more than the cost of one.

Every member has two kinds, and a version defines the kind of each member. Members are embedded and projected once per
kind and compared once, and each version selects its results. G groups of r members, V versions, U units. The members
of a group are consecutive: first all of the first kind, then all of the second.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def attend(query: Tensor, key: Tensor, projected: Tensor, kinds: Tensor) -> Tensor:
    """Returns every member of every version after attention to all members of that version, plus itself: [G, V, r, U].

    No member is absent, so only members of the other kind are masked. Scores are divided by √U.

    Args:
        query, key: [G · 2r, heads, U / heads]
        projected: the result of ``project_heads``, [G · 2r, heads + 1, U].
        kinds: whether a member is of the second kind. bool [V, r]
    """
    (versions, size), (_, heads, part), (_, parts, units) = kinds.shape, query.shape, projected.shape
    query = query.view(-1, 2 * size, heads, part).transpose(1, 2) / units**0.5
    key = key.view(-1, 2 * size, heads, part).permute(0, 2, 3, 1)
    of_both = torch.matmul(query, key).unsqueeze(2)
    first, second = torch.split(of_both, size, dim=3)
    scores = torch.where(kinds.unsqueeze(2), second, first)
    # [V, r, 2r]: presence of members by kind.
    is_kind = torch.cat([~kinds, kinds], dim=1).unsqueeze(1).expand(versions, size, 2 * size)
    itself = is_kind & torch.eye(size, dtype=torch.bool, device=kinds.device).repeat(1, 2)
    weights = torch.softmax(scores.masked_fill(~is_kind, -torch.inf), dim=-1)
    identity = itself.to(weights.dtype).expand(len(weights), -1, -1, -1)
    # [G, V · r, 2r · parts], in the order of ``projected``.
    weights = torch.cat([weights.movedim(1, -1), identity.unsqueeze(-1)], dim=-1).flatten(3).flatten(1, 2)
    return torch.bmm(weights, projected.view(-1, 2 * size * parts, units)).view(-1, versions, size, units)


def project_heads(values: Tensor, output: Tensor, identity: Tensor) -> Tensor:
    """Returns each head's output for a member, then the member's residual: [N, heads + 1, U].

    The output projection of attention is linear, so it can precede the weighted sum. Then it is computed for 2r
    members, instead of V · r results.

    Args:
        values: of the attention, by head. [N, heads, U / heads]
        output: weights of the output projection. [U, U]
        identity: the residual of each member. [N, U]
    """
    projected: Tensor = _ProjectHeads.apply(values, output, identity)  # type: ignore[no-untyped-call]
    return projected


class _ProjectHeads(Function):
    """A projection with an explicit gradient, which writes products in place instead of copying them."""

    @staticmethod
    def forward(context: Any, values: Tensor, output: Tensor, identity: Tensor) -> Tensor:
        context.save_for_backward(values, output)
        (rows, heads, part), units = values.shape, len(output)
        projected = values.new_empty((rows, heads + 1, units))
        for head in range(heads):
            torch.mm(values[:, head], output[:, head * part : (head + 1) * part].T, out=projected[:, head])
        projected[:, heads] = identity
        return projected

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        (gradient,), (values, output) = gradients, context.saved_tensors
        _, heads, part = values.shape
        of_values, of_output = torch.empty_like(values), torch.empty_like(output)
        for head in range(heads):
            own, columns = gradient[:, head], slice(head * part, (head + 1) * part)
            torch.mm(own, output[:, columns], out=of_values[:, head])
            torch.mm(own.T, values[:, head], out=of_output[:, columns])
        return of_values, of_output, gradient[:, heads]
