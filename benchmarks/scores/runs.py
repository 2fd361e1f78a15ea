"""Runs of rows: trained and scored once for each seed, and kept in a folder, so that an interrupted queue resumes."""

from __future__ import annotations

import concurrent.futures
import json
import math
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from measuring.terminal import say

from scores.provenance import THREADS, hash_of_weights, made_with
from scores.record import Score, as_line, curve_of, merged, read_lines, score_of, write_lines
from scores.rows import Row
from trainer_service.commands.common.run_record import read_run
from trainer_service.commands.status.run_status import Ending, run_status
from trainer_service.config import load_run_options
from trainer_service.config.hyperparameters.off_policy import ReplayHyperparameters

CHECKOUT = Path(__file__).resolve().parents[2]
KEPT = CHECKOUT / "benchmarks" / "scores" / "scores.jsonl"
PEER = CHECKOUT / "benchmarks" / "scores" / "peer.py"
_adding = threading.Lock()


class RunFailed(Exception):
    """A command that did not come to its end. The text is its last lines."""


def run_all(wanted: Iterable[Callable[[], str]], jobs: int) -> int:
    """Calls all of them, so many at once, and shows the line that each returns. Returns how many of them failed."""
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        futures = [pool.submit(each) for each in wanted]
        for future in concurrent.futures.as_completed(futures):
            try:
                say(future.result())
            except RunFailed as error:
                failed += 1
                say(str(error))
    return failed


def run(row: Row, seed: int, folder: Path, kept: Path) -> str:
    """Trains, scores and keeps one run, or as much of that as is missing. Returns a line that tells of it."""
    file = folder / f"{row.name}-{seed}.json"
    if not file.exists():
        file.write_text(as_line(scored(row, trained(row, seed, folder), folder)), encoding="utf-8")
    score = score_of(file.read_text(encoding="utf-8"))
    add([score], kept)
    return f"{file.stem}: {score.value:.2f} after {score.agent_steps} agent steps, {score.seconds:.0f} s"


def trained(row: Row, seed: int, folder: Path) -> Score:
    """A run that is trained, unless it was; its value is not known yet."""
    run_id = f"{row.name}-{seed}"
    took = train(row, seed, run_id, folder)
    curve = curve_of(folder / run_id, of_group=row.unit == "team")
    weights = hash_of_weights(folder / run_id) if took.is_whole else ""
    return Score(
        row.name, seed, math.nan, 0, took.seconds, curve, cpu_minutes=took.cpu_minutes,
        weights=weights, made_with=made_with(row.packages, CHECKOUT),
    )  # fmt: skip


def scored(row: Row, run: Score, folder: Path) -> Score:
    """A trained run with the value of its last checkpoint."""
    said = json.loads(call(row.evaluate(f"{row.name}-{run.seed}"), folder))
    return replace(run, value=row.score(said), agent_steps=int(said["step"]))


def run_peer(row: Row, seed: int, folder: Path, python: Path, kept: Path) -> str:
    """Trains and scores a row's rival for as many steps of a row's environment. Returns a line that tells of it."""
    run_id = f"{row.peer}-{seed}"
    file = folder / f"{run_id}.json"
    if not file.exists():
        ((task, settings),) = load_run_options(CHECKOUT / row.config).options.behaviors.items()
        asked = [settings.trainer_type, task, str(seed), str(settings.max_steps)]
        printed, _ = output_of([str(python), str(PEER), *asked], run_id)
        said = json.loads(printed.splitlines()[-1])
        file.write_text(
            as_line(score_of(json.dumps({"row": row.peer, "seed": seed, **said}))), encoding="utf-8"
        )
    score = score_of(file.read_text(encoding="utf-8"))
    add([score], kept)
    return f"{run_id}: {score.value:.2f} after {score.agent_steps} agent steps, {score.seconds:.0f} s"


def add(scores: Iterable[Score], kept: Path) -> None:
    """Adds scores to a file, in the place of those of the same row and seed. From any thread: jobs end together."""
    with _adding:
        write_lines(kept, merged(read_lines(kept, score_of), scores))


@dataclass(frozen=True, slots=True)
class Training:
    """The duration of a training, and whether it was in one piece."""

    seconds: float
    """Of wall time, or of its last part if it was interrupted."""

    cpu_minutes: float | None
    """None if it was interrupted, or if the system does not tell."""

    is_whole: bool
    """False if it was interrupted: its weights depend on where, since unfinished episodes are lost."""


def train(row: Row, seed: int, run_id: str, folder: Path) -> Training:
    """Trains a run, unless that came to its end before. An interrupted run resumes where it saved."""
    file = folder / f"{run_id}.training"
    if not file.exists():
        began = time.perf_counter()
        name, *rest = row.learn(run_id, seed)
        logs = folder / run_id / "run_logs"
        is_new = not (logs / "training_status.json").exists()
        how = "--force" if is_new else "--resume"
        say(f"{run_id}: training ({how}); its log is {logs / 'trainer.log'}")
        # The last arguments may be the simulator's.
        _, cpu = _called([name, how, *saving_replay_buffers(CHECKOUT / row.config), *rest], folder)
        require_end(folder / run_id)
        took = Training(time.perf_counter() - began, cpu if is_new else None, is_new)
        file.write_text(as_line(took), encoding="utf-8")
    return Training(**json.loads(file.read_text(encoding="utf-8")))


def saving_replay_buffers(config: Path) -> list[str]:
    """Arguments of ``learn`` that save the replay buffers of a configuration, so that a resumed run keeps its data."""
    return [
        f"--set={key}.hyperparameters.save_replay_buffer=true"
        for key, settings in load_run_options(config).options.settings_by_key().items()
        if isinstance(settings.hyperparameters, ReplayHyperparameters)
    ]


def require_end(run: Path) -> None:
    """Raises RunFailed where a run did not use up its budget: an interrupted run has exit code 0, too."""
    status = run_status(read_run(run))
    if status.ending is not Ending.FINISHED:
        steps = ", ".join(f"{each.step} of {each.max_steps} steps" for each in status.behaviors.values())
        raise RunFailed(
            f"{run.name}: {status.ending.value} after {steps}, by {status.ended_by or 'nothing known'}"
        )


def call(arguments: Sequence[str], folder: Path) -> str:
    """Runs a command of the trainer on the runs in a folder. Returns what it printed. Raises RunFailed."""
    return _called(arguments, folder)[0]


def _called(arguments: Sequence[str], folder: Path) -> tuple[str, float | None]:
    name, *rest = arguments
    command = [sys.executable, "-m", "trainer_service", name, f"--results-dir={folder.resolve()}", *rest]
    return output_of(command, " ".join(arguments))


def output_of(command: Sequence[str], name: str) -> tuple[str, float | None]:
    """Runs a program with one thread in the checkout. Returns what it printed, and its CPU minutes where known.

    Raises:
        RunFailed: it ended with another code than 0; with its last lines.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": THREADS}
    with (
        tempfile.TemporaryFile("w+", encoding="utf-8") as out,
        tempfile.TemporaryFile("w+", encoding="utf-8") as err,
    ):
        process = subprocess.Popen(command, cwd=CHECKOUT, env=environment, stdout=out, stderr=err)
        code, cpu = _wait(process)
        out.seek(0)
        err.seek(0)
        printed, complaints = out.read(), err.read()
    if code:
        last = "\n".join((printed + complaints).splitlines()[-5:])
        raise RunFailed(f"{name} ended with {code}:\n{last}")
    return printed, cpu


def _wait(process: subprocess.Popen[bytes]) -> tuple[int, float | None]:
    """The exit code, and the CPU minutes of the process and of its children where the system tells."""
    if not hasattr(os, "wait4"):
        return process.wait(), None
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, round((usage.ru_utime + usage.ru_stime) / 60, 3)
