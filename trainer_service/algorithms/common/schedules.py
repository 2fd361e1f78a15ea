"""Hyperparameters that change over a run, and what they are at a step."""

from __future__ import annotations

from typing import NamedTuple

from trainer_service.config.hyperparameters.common import Hyperparameters
from trainer_service.config.hyperparameters.on_policy import GroupOnPolicySettings, OnPolicyHyperparameters

FINAL_LEARNING_RATE = 1e-10
"""The end of falling learning rates, as in ML-Agents."""

_FINAL_EPSILON, _FINAL_BETA = 0.1, 1e-5

_EXPONENTIAL_SHARE = 0.01
"""The share of a value that an exponential decay leaves at max_steps."""


class Scheduled(NamedTuple):
    """Scheduled hyperparameters of one update on policy."""

    learning_rate: float
    epsilon: float
    beta: float


def linear_decay(initial: float, floor: float, step: int, max_steps: int) -> float:
    """A line from ``initial`` at step 0 down to ``floor`` at ``max_steps``, and flat from there.

    Where ``max_steps`` is 0 the decay is over before it starts.
    """
    return (initial - floor) * (1.0 - _progress(step, max_steps)) + floor


def exponential_decay(initial: float, floor: float, step: int, max_steps: int) -> float:
    """A geometric sequence from ``initial`` at step 0 to a hundredth of it at ``max_steps``, and flat from there.

    Where the floor is above a hundredth, the sequence ends at the floor. Nothing decays from 0.
    """
    if initial <= 0:
        return initial
    final = max(initial * _EXPONENTIAL_SHARE, floor)
    return float(initial * (final / initial) ** _progress(step, max_steps))


def _progress(step: int, max_steps: int) -> float:
    """The share of ``max_steps`` that is over, 1 at most."""
    return min(step / max_steps, 1.0) if max_steps > 0 else 1.0


def scheduled(kind: str, initial: float, floor: float, step: int, max_steps: int) -> float:
    """The value at ``step`` under a ``Schedule`` of the configuration."""
    if kind == "constant":
        return initial
    if kind == "linear":
        return linear_decay(initial, floor, step, max_steps)
    if kind == "exponential":
        return exponential_decay(initial, floor, step, max_steps)
    raise ValueError(f"unknown schedule '{kind}'; expected 'constant', 'linear' or 'exponential'")


def learning_rate_at(
    hyper: Hyperparameters, step: int, max_steps: int, *, initial: float | None = None
) -> float:
    """The learning rate at ``step``, of any learner. initial: another start than ``hyper.learning_rate``."""
    start = hyper.learning_rate if initial is None else initial
    return scheduled(hyper.learning_rate_schedule, start, FINAL_LEARNING_RATE, step, max_steps)


def critic_learning_rate_at(hyper: GroupOnPolicySettings, step: int, max_steps: int) -> float:
    """The learning rate of a group's critic at ``step``."""
    return learning_rate_at(hyper, step, max_steps, initial=hyper.initial_critic_learning_rate)


def scheduled_at(hyper: OnPolicyHyperparameters, step: int, max_steps: int) -> Scheduled:
    """Every scheduled hyperparameter of a learner on policy, at ``step``."""
    return Scheduled(
        learning_rate_at(hyper, step, max_steps),
        scheduled(hyper.epsilon_schedule, hyper.epsilon, _FINAL_EPSILON, step, max_steps),
        scheduled(hyper.beta_schedule, hyper.beta, _FINAL_BETA, step, max_steps),
    )
