"""Scheduled hyperparameters, and their values at a step."""

from __future__ import annotations

from typing import NamedTuple

from trainer_service.config.hyperparameters.common import Hyperparameters
from trainer_service.config.hyperparameters.on_policy import OnPolicyHyperparameters

FINAL_LEARNING_RATE = 1e-10
"""The final value of decreasing learning rates, as in ML-Agents."""

_FINAL_EPSILON, _FINAL_BETA = 0.1, 1e-5

_EXPONENTIAL_SHARE = 0.01
"""The share of a value that remains at max_steps after an exponential decay."""


class Scheduled(NamedTuple):
    """Scheduled hyperparameters of one on-policy update."""

    learning_rate: float
    epsilon: float
    beta: float


def scheduled(kind: str, initial: float, floor: float, step: int, max_steps: int) -> float:
    """Returns the value at ``step`` under a schedule of the configuration, constant from ``max_steps`` on.

    linear: a line from ``initial`` at step 0 down to ``floor``. exponential: a geometric sequence to a hundredth of
    ``initial``, or to a larger ``floor``; 0 stays 0. With ``max_steps`` of 0, the final value is returned. adaptive:
    ``initial``, which ``KLControl`` then adapts.
    """
    progress = min(step / max_steps, 1.0) if max_steps > 0 else 1.0
    if kind in ("constant", "adaptive"):
        return initial
    if kind == "linear":
        return (initial - floor) * (1.0 - progress) + floor
    if kind == "exponential":
        final = max(initial * _EXPONENTIAL_SHARE, floor)
        return initial if initial <= 0 else float(initial * (final / initial) ** progress)
    raise ValueError(f"unknown schedule '{kind}'; expected 'constant', 'linear', 'exponential' or 'adaptive'")


def learning_rate_at(
    hyper: Hyperparameters, step: int, max_steps: int, *, initial: float | None = None
) -> float:
    """Returns the learning rate of any learner at ``step``. initial: replaces ``hyper.learning_rate``."""
    start = hyper.learning_rate if initial is None else initial
    return scheduled(hyper.learning_rate_schedule, start, FINAL_LEARNING_RATE, step, max_steps)


def scheduled_at(hyper: OnPolicyHyperparameters, step: int, max_steps: int) -> Scheduled:
    """Returns all scheduled hyperparameters of an on-policy learner at ``step``."""
    return Scheduled(
        learning_rate_at(hyper, step, max_steps),
        scheduled(hyper.epsilon_schedule, hyper.epsilon, _FINAL_EPSILON, step, max_steps),
        scheduled(hyper.beta_schedule, hyper.beta, _FINAL_BETA, step, max_steps),
    )
