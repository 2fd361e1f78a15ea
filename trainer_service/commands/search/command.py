"""The command ``sweep``: a search of hyperparameters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from trainer_service.commands.common.command import Flag, Settings
from trainer_service.commands.common.configuration import configuration_values
from trainer_service.commands.common.output import CommandResult
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested, put_texts
from trainer_service.commands.search.space import short_text
from trainer_service.errors import suggested_command
from trainer_service.running.training.stop_signals import StopSignals

if TYPE_CHECKING:
    from trainer_service.commands.search.trials import SweepResult

_SHOWN_TRIALS = 10


def search_hyperparameters(
    config: Annotated[Path, Flag(
        "the configuration of all trials: a file, or the name of a bundled configuration", "CONFIG.yaml")],
    *,
    space: Annotated[Path, Flag("the parameters", "SPACE.yaml")],
    jobs: Annotated[int, Flag("trials at a time (default 1)", "K")] = 1,
    objective: Annotated[str | None, Flag(
        "a key of metrics.jsonl or a tag of TensorBoard (default: the return; of groups, of evaluations if any)",
        "NAME")] = None,
    run_id: Annotated[str | None, Flag("name of the sweep's folder (default sweep)", "ID")] = None,
    resume: Annotated[bool, Flag("continue the sweep in that folder")] = False,
    sets: Annotated[Sequence[str], Flag(
        "any setting of the file, for all trials; can be repeated", "KEY.KEY=VALUE", names="--set")] = (),
    ray_address: Annotated[str | None, Flag(
        "run trials on a Ray cluster whose nodes share the results folder: auto, HOST:PORT, ray://HOST:PORT; local "
        "starts one", "ADDRESS")] = None,
    insecure_ray: Annotated[bool, Flag("the cluster may accept everyone")] = False,
    trials: Annotated[int, Flag("number of trials (default 20)", "N")] = 20,
    seeds: Annotated[int, Flag("runs of each trial, averaged (default 1)", "M")] = 1,
    behavior: Annotated[str | None, Flag("whose score counts (default: the mean of all)", "NAME")] = None,
    direction: Annotated[Literal["maximize", "minimize"], Flag("(default maximize)")] = "maximize",
    sampler: Annotated[Literal["tpe", "random"], Flag("how values are drawn (default tpe)")] = "tpe",
    pruner: Annotated[Literal["median", "hyperband", "none"], Flag(
        "which trials end early (default median)")] = "median",
    total_steps: Annotated[int | None, Flag("agent steps after which no trial begins", "N")] = None,
    wall_clock: Annotated[str | None, Flag("save and end after this time: 2h, 90min", "TIME")] = None,
    dry_run: Annotated[bool, Flag("print the values of the first trials only")] = False,
    **settings: Annotated[Any, Settings(
        "env_path", "max_env_steps", "results_dir", "seed", "num_envs", "isolate", "num_areas", "time_scale",
        "no_graphics", "timeout_wait", "device", "env_args")],
) -> CommandResult:  # fmt: skip
    """Searches hyperparameters with Optuna: trials of sampled values, each a run of its own."""
    own = {name: settings.pop(name) for name in ("seed", "results_dir") if name in settings}
    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.commands.search.sweep import sweep

        configuration = configuration_values(config, put_texts(nested(settings, SETTINGS), sets))
        result = sweep(
            configuration, space, trials=trials, jobs=jobs, seeds=seeds, objective=objective, behavior=behavior,
            direction=direction, sampler=sampler, pruner=pruner, total_steps=total_steps, wall_clock=wall_clock,
            dry_run=dry_run, run_id=run_id, resume=resume, ray_address=ray_address, insecure_ray=insecure_ray,
            stop=stop, **own,
        )  # fmt: skip
    return CommandResult(sweep_as_json(result), _trials(result) if dry_run else _sweep_lines(result))


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
    return (f"trial {trial.number}: {short_text(trial.values)}" for trial in result.trials)


def _sweep_lines(result: SweepResult) -> Iterator[str]:
    """Yields the result of a sweep in words."""
    ended = [trial for trial in result.trials if trial.state != "running"]
    counts = {
        state: sum(trial.state == state for trial in ended) for state in ("complete", "pruned", "failed")
    }
    yield "\nTrials: " + ", ".join(f"{count} {state}" for state, count in counts.items())
    for trial in result.ranked[:_SHOWN_TRIALS]:
        yield f"  trial {trial.number:4d}  {result.objective} {trial.score:.6g}  {short_text(trial.values)}"
    if result.importances:
        yield "\nImportances of parameters:"
        yield from (f"  {share:4.0%}  {path}" for path, share in result.importances.items())
    if result.best_file is not None:
        run_id = f"{result.folder.name}-best"
        yield f"\nThe best configuration is {result.best_file}. Train with it:"
        yield f"  {suggested_command('learn', str(result.best_file), f'--run-id={run_id}')}"
    if result.interrupted:
        yield "\nThe sweep was interrupted: the same command with --resume continues it."
