"""The command ``population``."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trainer_service.cli.output import say_result
from trainer_service.errors import suggested_command

if TYPE_CHECKING:
    from trainer_service.api.experiments.population import PopulationResult

OF_THE_POPULATION = (
    "interval", "members", "jobs", "objective", "games", "run_id", "results_dir", "resume", "seed", "ray_address",
    "insecure_ray",
)  # fmt: skip
"""Flags that are no settings of the members."""


def train_population(parsed: argparse.Namespace, overrides: Mapping[str, Any]) -> int:
    """Trains a population and prints its result. Returns the exit code.

    overrides: the flags that are settings of the configuration, nested as in a file.
    """
    from trainer_service.training.stop_signals import StopSignals

    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.api.configuration import configuration_values
        from trainer_service.api.experiments.population import train_population as train

        own = {name: value for name, value in vars(parsed).items() if name in OF_THE_POPULATION}
        configuration = configuration_values(parsed.trainer_config_path, overrides)
        result = train(configuration, parsed.space, stop=stop, **own)
    say_result(parsed, _as_json(result), _lines(result))
    return 0


def _as_json(result: PopulationResult) -> dict[str, Any]:
    return {
        "folder": str(result.folder),
        "scores": list(result.scores),
        "best": None if result.best is None else str(result.best),
        "interrupted": result.interrupted,
    }


def _lines(result: PopulationResult) -> Iterator[str]:
    """Yields the result in words."""
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
