"""The command ``sweep``."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from trainer_service.cli.output import say, say_json
from trainer_service.errors import suggested_command

if TYPE_CHECKING:
    from trainer_service.experiments.sweep import SweepResult

_SHOWN_TRIALS = 10
OF_THE_SWEEP = (
    "trials", "jobs", "seeds", "objective", "behavior", "direction", "sampler", "pruner", "total_steps", "wall_clock",
    "run_id", "results_dir", "resume", "seed", "dry_run", "ray_address", "insecure_ray",
)  # fmt: skip
"""Flags that are no settings of the trials."""


def sweep_configuration(parsed: argparse.Namespace, overrides: Mapping[str, Any]) -> int:
    """Runs a sweep and prints its result. Returns the exit code.

    overrides: the flags that are settings of the configuration, nested as in a file.
    """
    from trainer_service.training.stop_signals import StopSignals

    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.api.configuration import configuration_values
        from trainer_service.api.experiments.sweep import sweep
        from trainer_service.experiments.space import short_text

        own = {name: value for name, value in vars(parsed).items() if name in OF_THE_SWEEP}
        configuration = configuration_values(parsed.trainer_config_path, overrides)
        result = sweep(configuration, parsed.space, stop=stop, **own)
    if parsed.json:
        say_json(_as_json(result))
    elif parsed.dry_run:
        for trial in result.trials:
            say(f"trial {trial.number}: {short_text(trial.values)}")
    else:
        _print(result)
    return 0


def _print(result: SweepResult) -> None:
    from trainer_service.experiments.space import short_text

    ended = [trial for trial in result.trials if trial.state != "running"]
    counts = {
        state: sum(trial.state == state for trial in ended) for state in ("complete", "pruned", "failed")
    }
    say("\nTrials: " + ", ".join(f"{count} {state}" for state, count in counts.items()))
    for trial in result.ranked[:_SHOWN_TRIALS]:
        say(f"  trial {trial.number:4d}  {result.objective} {trial.score:.6g}  {short_text(trial.values)}")
    if result.importances:
        say("\nImportances of parameters:")
        for path, share in result.importances.items():
            say(f"  {share:6.1%}  {path}")
    if result.best_file is not None:
        run_id = f"{result.folder.name}-best"
        say(f"\nThe best configuration is {result.best_file}. Train with it:")
        say(f"  {suggested_command('learn', str(result.best_file), f'--run-id={run_id}')}")
    if result.interrupted:
        say("\nThe sweep was interrupted: the same command with --resume continues it.")


def _as_json(result: SweepResult) -> dict[str, Any]:
    return {
        "folder": str(result.folder),
        "objective": result.objective,
        "trials": [asdict(trial) for trial in result.trials],
        "best": None if result.best is None else asdict(result.best),
        "best_file": None if result.best_file is None else str(result.best_file),
        "importances": dict(result.importances),
        "interrupted": result.interrupted,
    }
