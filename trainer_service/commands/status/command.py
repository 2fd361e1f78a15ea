"""The command ``status``: the progress of a run or the reason of its end, from its folder only."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer_service.commands.common.flags import RESULTS, ResultsDir, Run
from trainer_service.commands.common.output import CommandResult
from trainer_service.commands.common.run_record import RunRecord, find_run, read_run
from trainer_service.commands.status.run_status import Ending, run_status
from trainer_service.running.metrics import format_duration, format_return
from trainer_service.running.runs.layout import RunLayout, existing_state
from trainer_service.running.runs.lock import holder_of_lock
from unity_bridge.untrusted_text import harmless


def print_status(run: Run, *, results_dir: ResultsDir = RESULTS) -> CommandResult:
    """Tells from a run's folder what it is doing, or how it ended. Exit code 0: it is running, or it ended well; 1: it
    failed, was broken off, learned nothing, or is a run of ML-Agents without an end; 2: there is no such run.
    """
    status = status_of(read_run(find_run(run, results_dir)))
    return CommandResult(status, _lines(status), 0 if status["ok"] else 1)


def status_of(run: RunRecord) -> dict[str, Any]:
    """How a run stands, as the object that ``status --json`` prints. Ages are in seconds; None is unknown."""
    layout, status, now_s = RunLayout(run.path), run_status(run), time.time()
    seconds = {name: _seconds(run, name) for name in status.behaviors}
    summary_age_s = _age_s(layout.metrics, now_s)
    newest_s = max((each for each in seconds.values() if each is not None), default=0.0)
    behaviors = {}
    for name, progress in status.behaviors.items():
        own_s = seconds[name]
        behaviors[name] = {
            "step": progress.step,
            "max_steps": progress.max_steps,
            "mean_return": _last(run, name, "mean_return"),
            "mean_group_return": _last(run, name, "mean_group_return"),
            "steps_per_s": _last(run, name, "steps_per_s"),
            "last_summary_age_s": None
            if summary_age_s is None or own_s is None
            else round(summary_age_s + newest_s - own_s, 3),
            "checkpoint_step": progress.saved_step,
            "checkpoint_age_s": _age_s(existing_state(layout.checkpoint(name)), now_s),
        }
    running = status.ending is Ending.RUNNING
    ages = [_age_s(path, now_s) for path in (layout.metrics, layout.evaluations, layout.trainer_log)]
    return {
        "run": run.name,
        "folder": str(run.path),
        "state": status.ending.value,
        "ok": status.ending in (Ending.RUNNING, Ending.FINISHED, Ending.STOPPED),
        "process": holder_of_lock(layout.lock) if running else None,
        "ended_by": status.ended_by,
        "last_line_age_s": min((age for age in ages if age is not None), default=None),
        "training_s": round(status.seconds, 3),
        "log": str(layout.trainer_log) if layout.trainer_log.is_file() else None,
        "behaviors": behaviors,
    }


def _lines(status: Mapping[str, Any]) -> Iterator[str]:
    """The status in words."""
    head = [f"{status['run']}: {status['state']}"]
    if status["process"] is not None:
        head.append(f"process {status['process']}")
    if status["ended_by"]:
        head.append(f"ended by {status['ended_by']}")
    if (age_s := status["last_line_age_s"]) is not None:
        head.append(f"last line {format_duration(age_s)} ago")
    yield harmless(", ".join(head))
    for name, behavior in status["behaviors"].items():
        yield harmless(f"  {name}: {', '.join(progress_words(behavior))}")
    if status["log"] is not None:
        yield f"  log: {status['log']}"


def progress_words(behavior: Mapping[str, Any]) -> Iterator[str]:
    """The progress of a behavior in words."""
    step, most = behavior["step"], behavior["max_steps"]
    yield f"{step:,} steps" if not most else f"{step:,} of {most:,} steps ({100 * step // most} %)"
    for key, what in (("mean_return", "mean return"), ("mean_group_return", "of groups")):
        if behavior[key] is not None:
            yield f"{what} {format_return(behavior[key])}"
    if behavior["steps_per_s"] is not None:
        yield f"{behavior['steps_per_s']:,.0f} steps/s"
    if (age_s := behavior["last_summary_age_s"]) is not None:
        yield f"last summary {format_duration(age_s)} ago"
    if behavior["checkpoint_step"] is not None:
        yield f"last checkpoint at step {behavior['checkpoint_step']:,}"
    if (age_s := behavior["checkpoint_age_s"]) is not None:
        yield f"saved {format_duration(age_s)} ago"


def _last(run: RunRecord, behavior: str, metric: str) -> float | None:
    """The newest value of a metric."""
    curve = run.curves.get(behavior, {}).get(metric)
    return None if curve is None else float(curve.values[-1])


def _seconds(run: RunRecord, behavior: str) -> float | None:
    """The time of a behavior's newest summary on the run's clock."""
    curves = run.curves.get(behavior, {})
    own = [curve.seconds[-1] for metric, curve in curves.items() if not metric.startswith("evaluation/")]
    return max(map(float, own), default=None)


def _age_s(path: Path, now_s: float) -> float | None:
    """Seconds from when a file was written until now; None without one."""
    try:
        return round(max(now_s - path.stat().st_mtime, 0.0), 3)
    except OSError:
        return None
