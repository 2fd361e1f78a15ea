"""Where the results of a run are, in words."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_service.commands.common.output import ignoring_closed_output, say
from trainer_service.errors import suggested_command
from trainer_service.running.metrics import format_return
from trainer_service.running.metrics.jsonl import read_rows
from trainer_service.running.runs.layout import RunLayout

if TYPE_CHECKING:
    from trainer_service.config import RunOptions


def print_results(options: RunOptions, folder: Path, behaviors: Sequence[str], interrupted: bool) -> None:
    """Prints where a run's results are, unless the output is closed."""
    with ignoring_closed_output():
        for line in result_lines(options, folder, behaviors, interrupted):
            say(line)


def result_lines(
    options: RunOptions, folder: Path, behaviors: Sequence[str], interrupted: bool
) -> Iterator[str]:
    """Yields lines on where a run's results are."""
    if not behaviors:
        yield "\nStopped before a simulator attached; there is nothing to save."
        return
    saved = options.checkpoint_settings
    location = [] if saved.results_dir == "results" else ["--results-dir", saved.results_dir]
    yield f"\n{'Interrupted' if interrupted else 'Finished'}. Everything is in {folder}"
    layout = RunLayout(folder)
    rows = read_rows(layout.metrics)
    for name in behaviors:
        scored = [row for row in rows if row.get("behavior") == name and row.get("mean_return") is not None]
        if scored:
            newest = scored[-1]
            yield f"  {name}: mean reward {format_return(newest['mean_return'])} at step {newest['step']:,}"
        yield f"  policy of {name}: {layout.checkpoint(name)}"
        for each in options.teams.get(name, [name]):
            if (model := folder / f"{each}.onnx").exists():
                yield f"  model for Unity: {model}"
    env = " --env ENV" if options.env_settings.env_path is None else ""  # attached simulators have no name
    yield f"  score:  {suggested_command('evaluate', saved.run_id, *location)}{env}"
    yield f"  watch:  {suggested_command('watch', saved.run_id, *location)}{env}"
    yield f"  curves: tensorboard --logdir {shlex.quote(saved.results_dir)}"
    if interrupted:
        yield "  resume: the same command with --resume"
