"""Evaluations while a run goes on."""

from __future__ import annotations

from trainer_service.config.section import Section
from trainer_service.config.values import Count, Flag, PositiveCount


class EvaluationSettings(Section):
    """Plays the policies as they are, on a simulator of its own, which training does not notice.

    An addition to ML-Agents.
    """

    every_steps: PositiveCount = 50_000
    """How often, in agent steps of the behavior that has most."""

    episodes: PositiveCount = 20
    """Episodes of each behavior, counted per agent, and the whole episodes of groups among them."""

    seed: Count = 20_000
    """Of the simulator and the draws, the same at every evaluation."""

    stochastic: Flag = False
    """Whether actions are drawn, instead of the likeliest ones."""
