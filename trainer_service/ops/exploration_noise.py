"""Exploration noise on continuous actions of deterministic policies, in units of its standard deviation."""

from __future__ import annotations

import math

from torch import Tensor

OU_RATE = 0.15
"""θ of Lillicrap et al. 2016: the share of an Ornstein-Uhlenbeck process that decays in one step."""


def drifted(state: Tensor, kick: Tensor, *, rate: float = OU_RATE) -> Tensor:
    """One step of an Ornstein-Uhlenbeck process (Uhlenbeck & Ornstein 1930): z' = (1−θ) z + √(1−(1−θ)²) k.

    Starting at 0, its standard deviation approaches 1 for every θ. The common form, with kicks of standard deviation
    σ, approaches σ/√(1−(1−θ)²): 1.9 σ for θ = 0.15.

    Args:
        state: z. Any shape.
        kick: k, independent draws of deviation 1. Same shape.
        rate: θ in (0, 1]; 1 forgets everything.
    """
    kept = 1.0 - rate
    return kept * state + math.sqrt(1.0 - kept * kept) * kick


def explored(actions: Tensor, noise: Tensor, deviation: float) -> Tensor:
    """Adds noise to actions and clips them to [−1, 1]. actions: in [−1, 1]; noise: of standard deviation 1."""
    return (actions + deviation * noise).clamp(-1.0, 1.0)
