"""Output of commands: results on standard output, everything on the way to them on standard error."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from trainer_service.running.runs.files import with_short_paths
from unity_bridge.untrusted_text import harmless

if TYPE_CHECKING:
    from trainer_service.config import RunOptions

# Everything heavy is imported where it is needed, so that each command answers at once.

_PROGRESS_INTERVAL_S = 30.0
"""Seconds between lines on an evaluation's progress outside a terminal."""


def say(text: object) -> None:
    """Prints a result. Text of files, simulators and other machines cannot move the cursor or forge a line of ours."""
    print(harmless(str(text)), flush=True)


def note(text: object) -> None:
    """Prints text besides the result, as ``say`` does."""
    print(harmless(str(text)), file=sys.stderr, flush=True)


def say_json(value: object, *, indent: int | None = None) -> None:
    """Prints a result for programs. JSON itself escapes non-ASCII characters."""
    print(json.dumps(value, indent=indent), flush=True)


class CommandResult(NamedTuple):
    """The result of a command, as one object for programs and as lines for people."""

    value: object
    words: Iterable[object]
    exit_code: int = 0

    def to_json(self) -> object:
        """The result for programs."""
        return self.value

    def lines(self) -> Iterable[object]:
        """The result in words."""
        return self.words


def progress_printer(what: str = "episodes") -> Callable[[int, int], None]:
    """A function that prints how many episodes are done: all the time on a terminal, elsewhere now and then."""
    if sys.stderr.isatty():
        return lambda done, wanted: print(
            f"{done} of {wanted} {what}", end="\n" if done >= wanted else "\r", file=sys.stderr, flush=True
        )
    printed_s = time.monotonic()

    def print_progress(done: int, wanted: int) -> None:
        nonlocal printed_s
        if time.monotonic() - printed_s >= _PROGRESS_INTERVAL_S:
            printed_s = time.monotonic()
            note(f"{done} of {wanted} {what}")

    return print_progress


def score_lines(label: str, result: Mapping[str, Any]) -> Iterator[str]:
    """Yields lines on a behavior's score, ``Score.to_json()``."""
    yield f"{label}: {_score_text(result)}"
    for team, of_team in result.get("teams", {}).items():
        yield f"  team {team}: {_score_text(of_team)}"
    for member, of_member in result.get("members", {}).items():
        yield f"  {member}: {_member_text(of_member)}"


def _member_text(result: Mapping[str, Any]) -> str:
    """The score of one behavior of a heterogeneous group in words."""
    if not result["episodes"]:
        return "no episodes"
    mean = _mean_text(result["mean_return"], result["std_return"])
    return f"mean return {mean} over {result['episodes']} episodes"


def _score_text(result: Mapping[str, Any]) -> str:
    """A score in words."""
    words = (
        f"mean return {_mean_text(result['mean_return'], result['std_return'])} "
        f"over {result['episodes']} episodes, mean length {result['mean_length']:.1f}"
    )
    if "cut_episodes" in result:
        words += f" ({result['cut_episodes']} of them cut at the limit of steps)"
    if not result["group_episodes"]:
        return words
    return (
        f"{words}; mean group return {_mean_text(result['mean_group_return'], result['std_group_return'])} "
        f"over {result['group_episodes']} episodes of groups"
    )


def _mean_text(mean: float, deviation: float) -> str:
    from trainer_service.running.metrics import format_return

    return f"{format_return(mean, deviation)} ± {format_return(deviation, mean)}"


def print_results(options: RunOptions, folder: Path, behaviors: Sequence[str], interrupted: bool) -> None:
    """Prints where a run's results are, unless the output is closed."""
    with _ignoring_closed_output():
        for line in result_lines(options, folder, behaviors, interrupted):
            say(line)


def result_lines(
    options: RunOptions, folder: Path, behaviors: Sequence[str], interrupted: bool
) -> Iterator[str]:
    """Yields lines on where a run's results are."""
    from trainer_service.errors import suggested_command
    from trainer_service.running.runs.layout import RunLayout

    if not behaviors:
        yield "\nStopped before any simulator came; there is nothing to save."
        return
    saved = options.checkpoint_settings
    location = [] if saved.results_dir == "results" else ["--results-dir", saved.results_dir]
    yield f"\n{'Interrupted' if interrupted else 'Finished'}. Everything is in {folder}"
    for name in behaviors:
        yield f"  policy of {name}: {RunLayout(folder).checkpoint(name)}"
        for each in options.teams.get(name, [name]):
            if (model := folder / f"{each}.onnx").exists():
                yield f"  model for Unity: {model}"
    yield f"  curves: tensorboard --logdir {shlex.quote(saved.results_dir)}"
    env = " --env ENV" if options.env_settings.env_path is None else ""  # attached simulators have no name
    yield f"  score:  {suggested_command('evaluate', saved.run_id, *location)}{env}"
    if interrupted:
        yield "  go on:  the same command with --resume"


@contextmanager
def _ignoring_closed_output() -> Iterator[None]:
    """A context in which printing is no error where the terminal or the pipe is gone."""
    try:
        yield
    except OSError:
        silence_output()


def silence_output() -> None:
    """Sends the rest of the output nowhere, so that not even the ending interpreter fails to write it."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            os.dup2(nowhere, stream.fileno())


def print_error(message: str) -> None:
    with _ignoring_closed_output():
        note(f"mlagents-style: error: {with_short_paths(message)}")


def print_warning(message: str) -> None:
    note(f"[WARNING] {message}")
