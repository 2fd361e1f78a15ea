"""How far a run came, how it ended and what made it, as its folder tells."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar

from trainer_service.commands.common.run_record import OURS, RunRecord, is_number
from trainer_service.errors import UserError
from trainer_service.running.runs.files import read_object
from trainer_service.running.runs.layout import RunLayout
from trainer_service.running.runs.lock import is_locked
from trainer_service.running.runs.status import TrainingStatus, saved_status

_T = TypeVar("_T")

_LARGEST_LOG = 2**22
"""Limit of the bytes of a simulator's log that are looked at, at its end."""

_COMPLAINTS = ("error", "exception", "warning")


ITS_BUDGET = "its budget"
"""How the reason begins with which a run ends whose budget is used."""


class Ending(Enum):
    """How a run stands."""

    RUNNING = "running"
    NOTHING = "nothing learned"
    FINISHED = "finished"
    STOPPED = "stopped early"
    FAILED = "failed"
    BROKEN_OFF = "broken off"
    UNKNOWN = "not ended"


@dataclass(frozen=True, slots=True)
class BehaviorProgress:
    """How far a behavior came."""

    step: int
    """Agent steps at the newest summary or checkpoint."""

    max_steps: int | None
    saved_step: int | None
    """Agent steps of the newest numbered checkpoint."""

    saved_at_end: bool
    """Whether everything that it learned was saved when the run ended."""

    elo: float | None

    @property
    def finished(self) -> bool:
        """Whether its budget of steps is used."""
        return self.saved_at_end and self.max_steps is not None and self.step >= self.max_steps


@dataclass(frozen=True, slots=True)
class RunStatus:
    """The status of a run."""

    ending: Ending
    ended_by: str
    """The reason why the run ended, as in timers.json; empty if it is not known."""

    behaviors: Mapping[str, BehaviorProgress]
    seconds: float
    """Of training, time between an interruption and its resumption left out."""

    metadata: Mapping[str, str]
    """Versions, times and the command line, as they stand in timers.json, else in training_status.json."""

    timers: Mapping[str, Any]
    """The tree of timers.json; empty before a run has ended."""

    complaints: Mapping[str, int]
    """Problems that did not end the run, each with its count."""


def run_status(run: RunRecord) -> RunStatus:
    """Reads the status of a run."""
    layout = RunLayout(run.path)
    status = _readable(saved_status, layout.status) or TrainingStatus()
    names = dict.fromkeys([*run.curves, *status.behaviors])
    members = _group_members(run)  # their models are saved by their own names, but they learn as their group
    behaviors = {name: _progress(run, status, name) for name in names if name not in members}
    timers = _readable(read_object, layout.timers) or {}
    metadata = timers.get("metadata") or (_readable(read_object, layout.status) or {}).get("metadata") or {}
    locked = is_locked(layout.lock)
    end, ended_by = ("", "") if locked else _end(layout, metadata)
    return RunStatus(
        ending=_ending(run, behaviors, locked, end, ended_by),
        ended_by=ended_by,
        behaviors=behaviors,
        seconds=max(
            (curve.seconds[-1] for own in run.curves.values() for curve in own.values()), default=0.0
        ),
        metadata={str(key): str(value) for key, value in metadata.items()}
        if isinstance(metadata, dict)
        else {},
        timers=timers,
        complaints=_complaints(run, layout),
    )


def _ending(
    run: RunRecord, behaviors: Mapping[str, BehaviorProgress], locked: bool, end: str, ended_by: str
) -> Ending:
    if locked:
        return Ending.RUNNING
    if not behaviors:
        return Ending.NOTHING
    if all(each.finished for each in behaviors.values()):
        return Ending.FINISHED
    if all(each.saved_at_end for each in behaviors.values()):
        if end == "finished" and ended_by.startswith(ITS_BUDGET):  # that of environment steps
            return Ending.FINISHED
        return Ending.FAILED if end == "failed" else Ending.STOPPED
    return Ending.BROKEN_OFF if run.trainer == OURS else Ending.UNKNOWN  # theirs locks nothing


def _end(layout: RunLayout, metadata: Any) -> tuple[str, str]:
    """Returns how and why the run ended; empty texts for a run that was resumed and then killed.

    The timers of such a run describe its earlier end.
    """
    try:
        is_old = layout.timers.stat().st_mtime < layout.metrics.stat().st_mtime
    except OSError:  # no summary was written, or no end
        is_old = False
    told = metadata if isinstance(metadata, dict) and not is_old else {}
    end, ended_by = (value if isinstance(value := told.get(key), str) else "" for key in ("end", "ended_by"))
    return end, ended_by


def _progress(run: RunRecord, status: TrainingStatus, name: str) -> BehaviorProgress:
    saved = status.behavior(name)
    final = None if saved.final_checkpoint is None else saved.final_checkpoint.steps
    steps = [record.steps for record in saved.checkpoints] + ([] if final is None else [final])
    told = max((int(curve.steps[-1]) for curve in run.curves.get(name, {}).values()), default=0)
    max_steps = _max_steps(run, name)
    # A behavior with a used budget acts on, unchanged, until the others have used theirs.
    learned = told if max_steps is None else min(told, max_steps)
    return BehaviorProgress(
        step=max([told, *steps]),
        max_steps=max_steps,
        saved_step=max(steps, default=None),
        saved_at_end=final is not None and final >= learned,
        elo=saved.elo,
    )


def _group_members(run: RunRecord) -> set[str]:
    teams = (run.options or {}).get("teams")
    members = teams.values() if isinstance(teams, dict) else ()
    return {name for names in members if isinstance(names, dict) for name in names}


def _max_steps(run: RunRecord, name: str) -> int | None:
    steps = run.setting(name, "max_steps")
    return int(steps) if is_number(steps) else None


def _readable(read: Callable[[Path], _T], path: Path) -> _T | None:
    """The content of a file; None where it is damaged."""
    try:
        return read(path)
    except UserError:
        return None


def _complaints(run: RunRecord, layout: RunLayout) -> dict[str, int]:
    counts = {
        "rewards and observed values that were no numbers, and became 0": _total(run, "replaced_values"),
        "checkpoints that could not be written at first": _total(run, "Saving/Failures"),
        "steps of rollout workers that were lost": _total(run, "Distributed/Lost Steps"),
    }
    for log in sorted(layout.run_logs.glob("Player-*.log")):
        counts[f"lines of {log.name} with a warning or an error"] = _complaining_lines(log)
    return {text: count for text, count in counts.items() if count}


def _total(run: RunRecord, metric: str) -> int:
    return int(sum(own[metric].values.sum() for own in run.curves.values() if metric in own))


def _complaining_lines(log: Path) -> int:
    try:
        with log.open("rb") as file:
            file.seek(max(log.stat().st_size - _LARGEST_LOG, 0))
            text = file.read(_LARGEST_LOG).decode("utf-8", "replace").lower()
    except OSError:
        return 0
    return sum(any(word in line for word in _COMPLAINTS) for line in text.splitlines())
