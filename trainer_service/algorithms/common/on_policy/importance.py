"""What the decoupled objective (``ops.losses.importance_weights``) needs of a rollout that an older policy collected.

π_prox is the policy as it is when an update begins: one forward pass over the whole rollout, without gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from trainer_service.networks.encoders.layers import in_chunks
from trainer_service.networks.encoders.memory import Sequences
from trainer_service.ops.losses import MAX_WEIGHT


def proximal_log_probs(
    log_prob: Callable[[slice, Sequences | None], Tensor], steps: int, sequences: Sequences | None, rows: int
) -> Tensor:
    """ln π_prox of what was done at each step of a rollout, by the policy as it is now. Shape [S].

    log_prob: computes it for some steps; sequences: how all S steps follow each other, None without memory; rows: about
    how many at once.
    """
    with torch.no_grad():
        return torch.cat([log_prob(*part) for part in parts_in_order(steps, sequences, rows)])


def parts_in_order(
    steps: int, sequences: Sequences | None, rows: int
) -> Iterator[tuple[slice, Sequences | None]]:
    """All steps in the order of time, about ``rows`` at once; with memory whole sequences, at least one."""
    if sequences is None:
        yield from ((part, None) for part in in_chunks(steps, rows))
        return
    lengths: list[int] = sequences.filled.sum(dim=1).tolist()
    end = 0
    for chosen in in_chunks(len(lengths), max(rows // sequences.filled.shape[1], 1)):
        start, end = end, end + sum(lengths[chosen])
        yield slice(start, end), Sequences(sequences.memories[chosen], sequences.filled[chosen])


def weight_metrics(weights: Tensor) -> dict[str, float]:
    """Mean importance weight, and the share of those that were truncated, by tag. weights: [S]."""
    return {
        "Policy/Importance Weight": float(weights.mean()),
        "Policy/Clipped Weights": float((weights == MAX_WEIGHT).float().mean()),
    }
