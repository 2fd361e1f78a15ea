"""The command ``sweep``: a search of hyperparameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainer_service.commands.common.output import say_result
from trainer_service.errors import suggested_command

if TYPE_CHECKING:
    from trainer_service.commands.search.trials import SweepResult

_SHOWN_TRIALS = 10
_FLAGS = {
    "trials", "jobs", "seeds", "seed", "objective", "behavior", "direction", "sampler", "pruner", "total_steps",
    "wall_clock", "dry_run", "run_id", "results_dir", "resume", "ray_address", "insecure_ray",
}  # fmt: skip
"""Flags that are no settings of the trials."""


def search_hyperparameters(
    parsed: argparse.Namespace, overrides_of: Callable[[Mapping[str, Any]], dict[str, Any]]
) -> int:
    """Runs a sweep and prints its result. Returns the exit code.

    overrides_of: returns the flags that are settings of the configuration, nested as in a file.
    """
    from trainer_service.running.training.stop_signals import StopSignals

    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.commands.common.configuration import configuration_values
        from trainer_service.commands.search.sweep import sweep

        own = {name: value for name, value in vars(parsed).items() if name in _FLAGS}
        others = {name: value for name, value in vars(parsed).items() if name not in _FLAGS}
        configuration = configuration_values(parsed.trainer_config_path, overrides_of(others))
        result = sweep(configuration, parsed.space, stop=stop, **own)
    say_result(parsed, sweep_as_json(result), _trials(result) if parsed.dry_run else _sweep_lines(result))
    return 0


def sweep_as_json(result: SweepResult) -> dict[str, Any]:
    """The object that ``sweep --json`` prints."""
    return {
        "folder": str(result.folder),
        "objective": result.objective,
        "trials": [asdict(trial) for trial in result.trials],
        "best": None if result.best is None else asdict(result.best),
        "best_file": None if result.best_file is None else str(result.best_file),
        "importances": dict(result.importances),
        "interrupted": result.interrupted,
    }


def _trials(result: SweepResult) -> Iterator[str]:
    """Yields the values of sampled trials."""
    from trainer_service.commands.search.space import short_text

    return (f"trial {trial.number}: {short_text(trial.values)}" for trial in result.trials)


def _sweep_lines(result: SweepResult) -> Iterator[str]:
    """Yields the result of a sweep in words."""
    from trainer_service.commands.search.space import short_text

    ended = [trial for trial in result.trials if trial.state != "running"]
    counts = {
        state: sum(trial.state == state for trial in ended) for state in ("complete", "pruned", "failed")
    }
    yield "\nTrials: " + ", ".join(f"{count} {state}" for state, count in counts.items())
    for trial in result.ranked[:_SHOWN_TRIALS]:
        yield f"  trial {trial.number:4d}  {result.objective} {trial.score:.6g}  {short_text(trial.values)}"
    if result.importances:
        yield "\nImportances of parameters:"
        yield from (f"  {share:6.1%}  {path}" for path, share in result.importances.items())
    if result.best_file is not None:
        run_id = f"{result.folder.name}-best"
        yield f"\nThe best configuration is {result.best_file}. Train with it:"
        yield f"  {suggested_command('learn', str(result.best_file), f'--run-id={run_id}')}"
    if result.interrupted:
        yield "\nThe sweep was interrupted: the same command with --resume continues it."
