"""The commands ``sweep`` and ``population``: searches of hyperparameters."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainer_service.cli.output import say_result
from trainer_service.errors import suggested_command

if TYPE_CHECKING:
    from trainer_service.api.experiments.population import PopulationResult
    from trainer_service.experiments.sweep import SweepResult

_SHOWN_TRIALS = 10
_FLAGS = {"jobs", "objective", "run_id", "results_dir", "resume", "seed", "ray_address", "insecure_ray"}
_FLAGS_OF = {
    "sweep": _FLAGS | {
        "trials", "seeds", "behavior", "direction", "sampler", "pruner", "total_steps", "wall_clock", "dry_run",
    },
    "population": _FLAGS | {"interval", "members", "games"},
}  # fmt: skip
"""Flags that are no settings of the runs, by command."""


def search(parsed: argparse.Namespace, overrides_of: Callable[[Mapping[str, Any]], dict[str, Any]]) -> int:
    """Runs a sweep or a population and prints its result. Returns the exit code.

    overrides_of: returns the flags that are settings of the configuration, nested as in a file.
    """
    from trainer_service.training.stop_signals import StopSignals

    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.api.configuration import configuration_values

        flags = _FLAGS_OF[parsed.command]
        own = {name: value for name, value in vars(parsed).items() if name in flags}
        others = {name: value for name, value in vars(parsed).items() if name not in flags}
        configuration = configuration_values(parsed.trainer_config_path, overrides_of(others))
        if parsed.command == "sweep":
            from trainer_service.api.experiments.sweep import sweep

            swept = sweep(configuration, parsed.space, stop=stop, **own)
            shown = sweep_as_json(swept), _trials(swept) if parsed.dry_run else _sweep_lines(swept)
        else:
            from trainer_service.api.experiments.population import train_population

            trained = train_population(configuration, parsed.space, stop=stop, **own)
            shown = population_as_json(trained), _population_lines(trained)
    say_result(parsed, *shown)
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


def population_as_json(result: PopulationResult) -> dict[str, Any]:
    """The object that ``population --json`` prints."""
    return {
        "folder": str(result.folder),
        "scores": list(result.scores),
        "best": None if result.best is None else str(result.best),
        "interrupted": result.interrupted,
    }


def _trials(result: SweepResult) -> Iterator[str]:
    """Yields the values of sampled trials."""
    from trainer_service.experiments.space import short_text

    return (f"trial {trial.number}: {short_text(trial.values)}" for trial in result.trials)


def _sweep_lines(result: SweepResult) -> Iterator[str]:
    """Yields the result of a sweep in words."""
    from trainer_service.experiments.space import short_text

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


def _population_lines(result: PopulationResult) -> Iterator[str]:
    """Yields the result of a population in words."""
    if result.interrupted:
        yield "\nThe population was interrupted: the same command with --resume continues it."
        return
    yield "\nScores of the members:"
    for number, score in enumerate(result.scores, start=1):
        yield f"  member-{number}  {'failed' if score is None else f'{score:.6g}'}"
    folder = result.folder
    yield f"\nThe best policy is in {result.best}. Score it:"
    yield f"  {suggested_command('evaluate', 'best', '--results-dir', str(folder))}"
    yield "Train with the same values, step by step:"
    configuration, schedule = folder / "configuration.yaml", folder / "schedule.yaml"
    again = f"{folder.name}-again"
    yield f"  {suggested_command('learn', str(configuration), '--schedule', str(schedule), '--run-id', again)}"
