"""One run of one trainer, watched from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from measuring.counting import Meter
from measuring.scenes import Case
from measuring.trainers import RUN_ID, Trainer, write_simulator
from measuring.training_log import Summary, parse_summary

LIMIT_S = 1800.0
"""How long a run may take."""

_UPDATES = ("update", "_update_policy")
"""The blocks of updates in the timers: ours, ML-Agents'."""

_LEAVE_S = 60.0
_LAST_LINES = 12

Watch = Callable[[Summary], None]


@dataclass(frozen=True, slots=True)
class Block:
    """A part of the loop, as the trainer itself timed it."""

    total_s: float

    count: int


@dataclass(frozen=True, slots=True)
class Run:
    """The results of one run."""

    trainer: str
    seed: int
    summaries: tuple[Summary, ...]

    split: Mapping[str, Block] = field(default_factory=dict)
    """The top level of the trainer's own timers, by name. Ours are the parts of the loop."""

    update_ms: float | None = None
    """The mean time of an update, by the trainer's own timers."""

    failure: str | None = None
    """Why it did not come to its last step; its summaries must not be used then."""


def run(trainer: Trainer, case: Case, seed: int, watch: Watch = lambda summary: None) -> Run:
    """Trains until a summary has the case's steps, then interrupts the trainer. Nothing of it stays on disk.

    Args:
        trainer: who.
        case: what.
        seed: of trainer and simulator.
        watch: is told every summary when it comes.
    """
    with tempfile.TemporaryDirectory(prefix="benchmark-") as scratch:
        counts = Path(scratch) / "exchanges"
        counts.mkdir()
        program = write_simulator(Path(scratch), case, counts)
        results = Path(scratch) / "results"
        command = trainer.command(case, program, results, seed)
        summaries, last_lines = _follow(command, trainer.environment(), scratch, counts, case.steps, watch)
        if not summaries or summaries[-1].step < case.steps:
            reached = f"ended after {summaries[-1].step if summaries else 0} of {case.steps} steps"
            failure = "\n    ".join([reached, *last_lines])
            return Run(trainer.name, seed, tuple(summaries), failure=failure)
        timers = results / RUN_ID / "run_logs" / "timers.json"
        if not timers.exists():
            return Run(trainer.name, seed, tuple(summaries))
        told = timers.read_text(encoding="utf-8")
        return Run(trainer.name, seed, tuple(summaries), read_split(told), read_update_ms(told))


def read_split(timers: str) -> dict[str, Block]:
    """The top level of a ``timers.json``; what its blocks leave over is called ``other``."""
    document = json.loads(timers)
    children: Mapping[str, Mapping[str, float]] = document.get("children", {})
    split = {name: Block(child["total"], int(child["count"])) for name, child in children.items()}
    return {**split, "other": Block(document["self"], 1)}


def read_update_ms(timers: str) -> float | None:
    """The mean time of an update in a ``timers.json`` of either trainer, in milliseconds; None where none was made."""
    updates = [block for name, block in _blocks(json.loads(timers)) if name in _UPDATES]
    count = sum(block["count"] for block in updates)
    return sum(block["total"] for block in updates) / count * 1e3 if count else None


def _blocks(block: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, child in block.get("children", {}).items():
        yield name, child
        yield from _blocks(child)


def _follow(
    command: Sequence[str],
    environment: Mapping[str, str],
    folder: str,
    counts: Path,
    steps: int,
    watch: Watch,
) -> tuple[list[Summary], list[str]]:
    """The summaries up to the one with enough steps, and the last lines of all."""
    summaries: list[Summary] = []
    last_lines: deque[str] = deque(maxlen=_LAST_LINES)
    started = time.perf_counter()
    with subprocess.Popen(
        command,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # Ctrl-C at the terminal is ours to pass on
    ) as process:
        watchdog = _kill_after(LIMIT_S, process)
        meter = Meter(process.pid, counts)
        try:
            assert process.stdout is not None
            for line in process.stdout:
                last_lines.append(line.rstrip())
                summary = parse_summary(line, time.perf_counter() - started)
                if summary is None or (summaries and summaries[-1].step >= steps):
                    continue
                summaries.append(replace(summary, served=meter.read()))
                watch(summaries[-1])
                if summary.step >= steps:
                    process.send_signal(signal.SIGINT)
                    watchdog.cancel()
                    watchdog = _kill_after(_LEAVE_S, process)
            process.wait()
        except BaseException:
            _kill(process)
            raise
        finally:
            watchdog.cancel()
    return summaries, list(last_lines)


def _kill_after(seconds: float, process: subprocess.Popen[str]) -> threading.Timer:
    timer = threading.Timer(seconds, _kill, [process])
    timer.daemon = True
    timer.start()
    return timer


def _kill(process: subprocess.Popen[str]) -> None:
    """The trainer and what it forked; simulators end by themselves without an answer."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
