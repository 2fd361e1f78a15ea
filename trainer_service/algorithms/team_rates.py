"""Hyperparameters of learners of groups as they stand at a step."""

from __future__ import annotations

from typing import NamedTuple

from trainer_service.config.hyperparameters import TeamHyperparameters
from trainer_service.ops.schedules import scheduled

# What the linear schedules end at, as in ML-Agents.
_FINAL_LEARNING_RATE, _FINAL_EPSILON, _FINAL_BETA = 1e-10, 0.1, 1e-5


class Rates(NamedTuple):
    """Scheduled hyperparameters of one update."""

    learning_rate: float
    critic_learning_rate: float
    epsilon: float
    beta: float


def rates_at(hyper: TeamHyperparameters, step: int, max_steps: int) -> Rates:
    """Both learning rates follow one schedule."""
    share = scheduled(hyper.learning_rate_schedule, 1.0, _FINAL_LEARNING_RATE, step, max_steps)
    return Rates(
        hyper.learning_rate * share,
        hyper.rate_of_critic * share,
        scheduled(hyper.epsilon_schedule, hyper.epsilon, _FINAL_EPSILON, step, max_steps),
        scheduled(hyper.beta_schedule, hyper.beta, _FINAL_BETA, step, max_steps),
    )
