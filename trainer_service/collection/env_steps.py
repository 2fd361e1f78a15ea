"""The count of a run's environment steps, and their budget."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class EnvSteps:
    """The environment steps of a run, over all simulators and starts.

    An environment step is one completed step of one copy of the task. It advances all agents of that copy, of all
    behaviors and teams.
    """

    budget: int | None = None
    """Environment steps after which the run ends; None without a budget."""

    taken: int = 0

    @property
    def used_up(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.taken >= self.budget

    @property
    def share(self) -> float:
        """The used share of the budget, at most 1; 0 without a budget."""
        return 0.0 if self.budget is None else min(self.taken / self.budget, 1.0)
