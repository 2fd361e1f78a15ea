"""A trial of a sweep, and the choices that a sweep has. Nothing here needs Optuna."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import Literal

from trainer_service.commands.search.space import Values
from trainer_service.errors import UserError
from unity_bridge.extras import install_hint

Direction = Literal["maximize", "minimize"]
SamplerName = Literal["tpe", "random"]
Pruner = Literal["median", "hyperband", "none"]
State = Literal["running", "complete", "pruned", "failed"]


@dataclass(frozen=True, slots=True)
class TrialRecord:
    """One trial of a sweep."""

    number: int
    state: State
    values: Values
    """The sampled values by path."""

    score: float | None
    """The mean over its seeds; of a pruned trial the last value that was reported; None without one."""

    steps: int
    """Agent steps of all its runs."""

    message: str
    """Why it failed; empty otherwise."""


def require_optuna() -> None:
    """Raises UserError where Optuna is not installed."""
    if importlib.util.find_spec("optuna") is None:
        raise UserError(f"Optuna is not installed, which sweeps need: {install_hint('sweep')}")
