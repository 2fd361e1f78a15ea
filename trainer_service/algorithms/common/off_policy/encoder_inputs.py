"""Inputs of networks from a replay's sample: single observations, or sequences with what was seen after each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.algorithms.common.acting import to_tensor
from trainer_service.networks.encoders.memory import EncoderInput, Sequences
from trainer_service.replay.transitions import SequencesOfSample


def encoder_inputs(
    normalize: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    observations: Sequence[Tensor],
    next_observations: Sequence[Tensor],
    sequences: SequencesOfSample | None,
    n_step: int = 1,
) -> tuple[EncoderInput, EncoderInput]:
    """Inputs of B decisions, and of what was seen ``n_step`` decisions later.

    normalize: from sensors [B, …] to the networks' inputs. With sequences every step is computed once for both: what
    follows a step is a later step of its sequence, or what was seen after the last one.
    """
    if sequences is None:
        return EncoderInput(normalize(observations)), EncoderInput(normalize(next_observations))
    device = observations[0].device
    last = to_tensor(np.cumsum(sequences.lengths) - 1, device)
    layout = Layout.of(sequences.lengths, n_step)
    order = to_tensor(layout.order, device)
    seen = [
        torch.cat([steps, finals])[order]
        for steps, finals in zip(
            normalize(observations), normalize([sensor[last] for sensor in next_observations]), strict=True
        )
    ]
    in_time = Sequences(to_tensor(sequences.memories, device), to_tensor(layout.filled, device))
    return (
        EncoderInput(seen, in_time, to_tensor(layout.steps, device)),
        EncoderInput(seen, in_time, to_tensor(layout.following, device)),
    )


class Layout(NamedTuple):
    """N sequences of B steps, laid end to end with one more place after each for what was seen after it."""

    order: NDArray[np.int64]
    """What lies at each position: a step's number, or B + n for what was seen after sequence n. Shape [B + N]."""

    steps: NDArray[np.int64]
    """Where each step lies. Shape [B]."""

    following: NDArray[np.int64]
    """Where that lies which was seen some steps later, or after the sequence. Shape [B]."""

    filled: NDArray[np.bool_]
    """Positions that are there, when every sequence gets a row as long as the longest. Shape [N, longest + 1]."""

    @classmethod
    def of(cls, lengths: NDArray[np.int64], n_step: int = 1) -> Layout:
        """lengths: steps of each. Shape [N]. n_step: how many steps later."""
        ends = np.cumsum(lengths)
        sequences, steps = len(lengths), int(ends[-1])
        positions = np.arange(steps) + np.repeat(np.arange(sequences), lengths)
        finals = ends + np.arange(sequences)
        order = np.empty(steps + sequences, np.int64)
        order[positions] = np.arange(steps)
        order[finals] = steps + np.arange(sequences)
        following = np.minimum(positions + n_step, np.repeat(finals, lengths))
        return cls(order, positions, following, np.arange(int(lengths.max()) + 1) <= lengths[:, None])
