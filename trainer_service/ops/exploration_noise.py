"""Noise on continuous actions, for policies that draw nothing themselves. In units of its deviation."""

from __future__ import annotations

import math

from torch import Tensor

OU_RATE = 0.15
"""Share of an Ornstein-Uhlenbeck process that is gone a step later, as Lillicrap et al. 2016 have it."""


def drifted(state: Tensor, kick: Tensor, *, rate: float = OU_RATE) -> Tensor:
    """An Ornstein-Uhlenbeck process (Uhlenbeck & Ornstein 1930) a step later: z' = (1−θ) z + √(1−(1−θ)²) k.

    From 0 it swings in to a deviation of 1, whatever θ is; a kick of deviation σ at each step, as it is often
    written, leads to σ/√(1−(1−θ)²): 1.9 σ with the usual θ of 0.15.

    Args:
        state: z. Any shape.
        kick: k, independent draws of deviation 1. Same shape.
        rate: θ in (0, 1]; 1 forgets everything.
    """
    kept = 1.0 - rate
    return kept * state + math.sqrt(1.0 - kept * kept) * kick


def explored(actions: Tensor, noise: Tensor, deviation: float) -> Tensor:
    """Actions with noise of a deviation, kept within [−1, 1]. actions: in [−1, 1]; noise: of deviation 1."""
    return (actions + deviation * noise).clamp(-1.0, 1.0)
