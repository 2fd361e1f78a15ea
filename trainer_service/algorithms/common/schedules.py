"""Hyperparameters as they stand at a step."""

from __future__ import annotations

from typing import NamedTuple

from trainer_service.config.hyperparameters.common import Hyperparameters
from trainer_service.config.hyperparameters.on_policy import OnPolicyHyperparameters
from trainer_service.ops.schedules import FINAL_LEARNING_RATE, scheduled

# What the linear schedules end at, as in ML-Agents.
_FINAL_EPSILON, _FINAL_BETA = 0.1, 1e-5


class Scheduled(NamedTuple):
    """Scheduled hyperparameters of one update on policy."""

    learning_rate: float
    critic_learning_rate: float
    """The same where the critic has no pace of its own."""

    epsilon: float
    beta: float


def learning_rate_at(hyper: Hyperparameters, step: int, max_steps: int) -> float:
    """The learning rate alone, of any learner."""
    return scheduled(hyper.learning_rate_schedule, hyper.learning_rate, FINAL_LEARNING_RATE, step, max_steps)


def scheduled_at(hyper: OnPolicyHyperparameters, step: int, max_steps: int) -> Scheduled:
    """Both learning rates follow one schedule."""

    def learning_rate(start: float) -> float:
        return scheduled(hyper.learning_rate_schedule, start, FINAL_LEARNING_RATE, step, max_steps)

    return Scheduled(
        learning_rate(hyper.learning_rate),
        learning_rate(hyper.initial_critic_learning_rate),
        scheduled(hyper.epsilon_schedule, hyper.epsilon, _FINAL_EPSILON, step, max_steps),
        scheduled(hyper.beta_schedule, hyper.beta, _FINAL_BETA, step, max_steps),
    )
