"""Hyperparameters that change over a run."""

from __future__ import annotations

FINAL_LEARNING_RATE = 1e-10
"""What learning rates fall to, as in ML-Agents."""


def linear_decay(initial: float, floor: float, step: int, max_steps: int) -> float:
    """From ``initial`` at step 0 straight down to ``floor`` at ``max_steps``, and flat from there.

    Where ``max_steps`` is 0 the decay is over before it starts.
    """
    progress = min(step / max_steps, 1.0) if max_steps > 0 else 1.0
    return (initial - floor) * (1.0 - progress) + floor


def scheduled(kind: str, initial: float, floor: float, step: int, max_steps: int) -> float:
    """The value at ``step`` under ML-Agents' ``constant`` or ``linear`` schedule."""
    if kind == "constant":
        return initial
    if kind == "linear":
        return linear_decay(initial, floor, step, max_steps)
    raise ValueError(f"unknown schedule '{kind}'; expected 'constant' or 'linear'")
