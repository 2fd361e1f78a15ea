"""The screen of ``learn --seeds``: a table of all runs, or lines where no terminal shows it."""

from __future__ import annotations

import logging
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from trainer_service.commands.common.output import say
from trainer_service.commands.common.settings import ATTACH_PORT
from trainer_service.commands.search.seed_runs import SeedRun, parse_seeds
from trainer_service.commands.search.seeds import is_finished, run_seeds, shared_flags
from trainer_service.commands.search.trial_runs import RunWatch
from trainer_service.commands.status.command import progress_words, status_of
from trainer_service.config import RunOptions, load_run_options
from trainer_service.errors import UserError, suggested_command
from trainer_service.running.metrics import format_return
from trainer_service.running.metrics.console import Console
from trainer_service.running.training.stop_signals import StopSignals
from unity_bridge.untrusted_text import printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from trainer_service.commands.common.jobs import JobEnd

_LINES_S = 30.0
"""Seconds between lines on the progress of runs outside a terminal."""
_SWITCHES = {"quiet": "-q", "no_plugins": "--no-plugins", "deterministic": "--deterministic"}

_logger = logging.getLogger(__name__)


def learn_seeds(given: Mapping[str, Any], overrides: dict[str, Any], stop: StopSignals) -> int:
    """Runs ``learn --seeds``.

    Args:
        given: the flags that are present.
        overrides: the settings among them, nested as in a file.
        stop: asks the runs to end.

    Returns:
        The exit code: that of the first run that failed, else 0.

    Raises:
        UserError: a flag or a setting cannot be used.
    """
    seeds = parse_seeds(given["seeds"])
    for name in ATTACH_PORT:
        if name in given:
            flag = f"--{name.replace('_', '-')}"
            raise UserError(
                f"{flag}: with --seeds no simulator attaches; expected an environment to start (--env)"
            )
    loaded = load_run_options(given.get("trainer_config_path"), overrides)
    options = loaded.options
    screen = _Screen()
    with Console(
        table=screen.table,
        debug=options.debug,
        log_format=options.log_format,
        verbose=1 if given.get("quiet") else 2,
    ) as console:
        screen.console = console
        loaded.log(_logger)
        runs, ends = run_seeds(
            options,
            seeds,
            _line(given),
            env_args=given.get("env_args"),
            jobs=given.get("jobs"),
            stop=stop,
            given=given,
            on_look=screen.look,
        )
    if not given.get("quiet") and options.log_format != "json":
        _print_end(options, runs)
    return next((abs(end.exit_code) for end in ends if end.message), 0)


def _line(given: Mapping[str, Any]) -> list[str]:
    """The arguments of ``learn`` that all runs share."""
    config = given.get("trainer_config_path")
    return [
        *([] if config is None else [str(config)]),
        *shared_flags(given),
        *(f"--set={text}" for text in given.get("settings", ())),
        *(f"--hooks={name}" for name in given.get("callbacks", ())),
        *(flag for name, flag in _SWITCHES.items() if given.get(name)),
        *([f"--max-steps={given['max_steps']}"] if "max_steps" in given else []),
    ]


class _Screen:
    """The table of all runs, which is read from their folders."""

    def __init__(self) -> None:
        self.console: Console | None = None
        self._rows: list[tuple[SeedRun, str, Mapping[str, Any]]] = []
        self._watches: dict[Path, RunWatch] = {}
        self._read: dict[Path, Mapping[str, Any]] = {}
        self._next_lines_s = time.monotonic() + _LINES_S

    def look(self, runs: Sequence[SeedRun], running: Sequence[str], ends: Sequence[JobEnd]) -> None:
        """Shows how the runs stand."""
        ended = {
            end.job.name: "failed" if end.message else "stopped" if end.stopped else "finished"
            for end in ends
        }
        self._rows = [(run, _state(run, running, ended), self._behaviors(run)) for run in runs]
        if self.console is None:
            return
        if self.console.has_table:
            self.console.activity("", at_once=True)
        elif time.monotonic() >= self._next_lines_s:
            self._next_lines_s = time.monotonic() + _LINES_S
            for run, state, behaviors in self._rows:
                for name, behavior in behaviors.items() if state == "running" else ():
                    _logger.info("%s: %s: %s", run.run_id, name, ", ".join(progress_words(behavior)))

    def _behaviors(self, run: SeedRun) -> Mapping[str, Any]:
        """The behaviors of a run as ``status`` tells them, read again when there is news."""
        watch = self._watches.setdefault(run.folder, RunWatch(run.folder))
        if (record := watch.news()) is not None:
            self._read[run.folder] = status_of(record)["behaviors"]
        return self._read.get(run.folder, {})

    def table(self) -> RenderableType:
        """The table."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for header in ("Run", "", "Behavior"):
            table.add_column(header)
        table.add_column("")
        for header in ("Step", "Reward", "Steps/s"):
            table.add_column(header, justify="right", no_wrap=True)
        for run, state, behaviors in self._rows:
            head = [Text(run.run_id, no_wrap=True), Text(state, style="dim")]
            if not behaviors:
                table.add_row(*head)
            for name, each in behaviors.items():
                mean = each["mean_return"] if each["mean_group_return"] is None else each["mean_group_return"]
                rate = each["steps_per_s"] if state == "running" else None
                table.add_row(
                    *head,
                    Text(printable(name), no_wrap=True, overflow="ellipsis"),
                    ProgressBar(total=max(each["max_steps"] or 1, 1), completed=each["step"], width=12),
                    f"{each['step']:,}",
                    "–" if mean is None else format_return(mean),
                    "–" if rate is None else f"{rate:,.0f}",
                )
                head = [Text(""), Text("")]
        return table


def _state(run: SeedRun, running: Sequence[str], ended: Mapping[str, str]) -> str:
    if run.run_id in running:
        return "running"
    return ended.get(run.run_id, "finished" if run.action == "skip" else "waiting")


def _print_end(options: RunOptions, runs: Sequence[SeedRun]) -> None:
    """Prints how many runs have finished, and what to do with them."""
    saved = options.checkpoint_settings
    finished = sum(run.folder.is_dir() and is_finished(run.folder, options) for run in runs)
    say(f"\n{finished} of {len(runs)} runs finished. They are in {saved.results_dir}: {runs[0].run_id} …")
    location = [] if saved.results_dir == "results" else ["--results-dir", saved.results_dir]
    say(f"  compare: {suggested_command('compare', saved.run_id, *location)}")
    say(f"  curves:  tensorboard --logdir {shlex.quote(saved.results_dir)}")
    if finished < len(runs):
        say("  resume:  the same command with --resume")
