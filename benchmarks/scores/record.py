"""The scores that were measured so far: a line each, beside the benchmark, so that later runs add to them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from trainer_service.commands.common.run_record import read_run
from trainer_service.running.runs.files import write_atomic

T = TypeVar("T")

CURVE_POINTS = 60
"""So many are kept of a curve at most: what a picture shows."""


@dataclass(frozen=True, slots=True)
class Score:
    """One run's last checkpoint, played, and how it came there."""

    row: str
    seed: int
    value: float
    agent_steps: int
    seconds: float
    """Of the training."""

    curve: tuple[tuple[int, float], ...] = ()
    """Agent steps, and the acting policy's mean return by then; empty where it was not kept."""

    cpu_minutes: float | None = None
    """Of the training, its simulators included."""

    weights: str = ""
    """The hash of the weights of the last checkpoint; empty for scores that are older than this field."""

    made_with: Mapping[str, str] = field(default_factory=dict)
    """The kind of machine, its threads, and the versions of packages; a hash holds for equal ones only."""


def read_lines(path: Path, made_of: Callable[[str], T]) -> list[T]:
    """The records of a file with a line of JSON for each; none where there is no file."""
    return list(map(made_of, path.read_text(encoding="utf-8").splitlines())) if path.exists() else []


def write_lines(path: Path, records: Iterable[Any]) -> None:
    """Replaces the file, whole or not at all."""
    write_atomic(path, "".join(map(as_line, records)))


def score_of(text: str) -> Score:
    """The score that one JSON object tells of."""
    fields = json.loads(text)
    curve = tuple((int(step), float(value)) for step, value in fields.get("curve", ()))
    return Score(**{**fields, "curve": curve})


def as_line(record: Any) -> str:
    """A dataclass as one line of JSON."""
    return json.dumps(asdict(record)) + "\n"


def merged(known: Iterable[Score], new: Iterable[Score]) -> list[Score]:
    """Known scores and new ones, which replace those of the same row and seed; in the order of their names."""
    by_run = {(score.row, score.seed): score for score in (*known, *new)}
    return [by_run[key] for key in sorted(by_run)]


def curve_of(run: Path, *, of_group: bool) -> tuple[tuple[int, float], ...]:
    """The mean return of a run's first behavior over agent steps, thinned to what a picture shows.

    of_group: the group's return instead of the agents' own.
    """
    tag = "mean_group_return" if of_group else "mean_return"
    told = next(iter(read_run(run).curves.values()))[tag]
    chosen = np.unique(np.linspace(0, len(told.steps) - 1, CURVE_POINTS).round().astype(int))
    return tuple((int(told.steps[i]), round(float(told.values[i]), 4)) for i in chosen)
