"""The command ``population``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainer_service.cli.output import say
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
    _print(result)
    return 0


def _print(result: PopulationResult) -> None:
    if result.interrupted:
        say("\nThe population was interrupted: the same command with --resume continues it.")
        return
    say("\nScores of the members:")
    for number, score in enumerate(result.scores, start=1):
        say(f"  member-{number}  {'failed' if score is None else f'{score:.6g}'}")
    folder = result.folder
    say(f"\nThe best policy is in {result.best}. Score it:")
    say(f"  {suggested_command('evaluate', 'best', '--results-dir', str(folder))}")
    say("Train with the same values, step by step:")
    configuration, schedule = folder / "configuration.yaml", folder / "schedule.yaml"
    again = f"{folder.name}-again"
    say(f"  {suggested_command('learn', str(configuration), '--schedule', str(schedule), '--run-id', again)}")
