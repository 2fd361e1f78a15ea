"""A summary writer: ``--track csv`` writes the mean return of each behavior into returns.csv in the run's folder."""

from __future__ import annotations

from pathlib import Path

from trainer_service.running.metrics import Summary, SummaryWriter
from trainer_service.running.metrics.trackers import TrackedRun, scalars


class ReturnsWriter(SummaryWriter):
    """One line for each summary that has a mean return: behavior, step, return."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, summary: Summary) -> None:
        """Appends a line. An exception here costs the run a warning only."""
        value = scalars(summary).get(f"{summary.behavior}/Environment/Cumulative Reward")
        if value is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(f"{summary.behavior},{summary.step},{value:.4f}\n")


def make_writer(run: TrackedRun) -> ReturnsWriter:
    """The writer of a run."""
    return ReturnsWriter(run.folder / "returns.csv")
