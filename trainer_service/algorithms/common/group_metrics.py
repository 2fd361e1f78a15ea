"""Metrics of the gradient steps of learners of groups."""

from __future__ import annotations

from collections.abc import Sequence


def value_loss_by_agent(losses: Sequence[float]) -> dict[str, float]:
    """Value losses of each agent of the group, by tag. losses: by agent index."""
    return {f"Losses/Agent {agent} Value Loss": loss for agent, loss in enumerate(losses)}
