"""Results of runs: measured from their episodes, kept as lines of JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

LAST = 5
"""Episodes over whose returns the mean is taken."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One run of a case."""

    case: str
    seed: int

    final: float | None
    """Mean of the last five returns; None where there were not so many episodes."""

    passed: bool
    """The run came to its end and did what its case asks for."""

    steps_to_threshold: int | None
    """Steps at the end of the first episode that brought the mean of five above the threshold.

    Where two sides play each other it is the later of both; or the first, where only one of them shall learn it.
    """

    seconds: float
    failure: str | None = None
    """Why the run did not come to its end."""

    other_final: float | None = None
    """As ``final``, of the second side, where two play each other."""


@dataclass(frozen=True, slots=True)
class Episode:
    """The end of an episode."""

    steps: int
    """Of all episodes of this side so far."""

    return_: float
    side: int = 0
    """Which of the behaviors that play each other."""


def read_episodes(path: Path) -> list[Episode]:
    """The lines that a world wrote. A missing file is one without episodes."""
    if not path.exists():
        return []
    lines = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    return [Episode(int(steps), float(return_), int(side)) for side, steps, return_ in lines]


def final_mean(episodes: Sequence[Episode]) -> float | None:
    """The mean of the last returns; None where there are too few."""
    if len(episodes) < LAST:
        return None
    return sum(episode.return_ for episode in episodes[-LAST:]) / LAST


def steps_to(threshold: float, episodes: Sequence[Episode]) -> int | None:
    """The steps after which the mean of the last returns first exceeded the threshold; None if it never did."""
    for end in range(LAST, len(episodes) + 1):
        mean = final_mean(episodes[:end])
        if mean is not None and mean > threshold:
            return episodes[end - 1].steps
    return None


class ResultFile:
    """Results as lines of JSON: whatever interrupts the whole, what was done stays done."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        if not resume:
            path.unlink(missing_ok=True)

    def read(self) -> list[Result]:
        """Everything that was added. A half line, left by an interruption, is passed over."""
        if not self._path.exists():
            return []
        results = []
        for line in self._path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                results.append(Result(**json.loads(line)))
        return results

    def add(self, result: Result) -> None:
        """Appends a line."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(result)) + "\n")
