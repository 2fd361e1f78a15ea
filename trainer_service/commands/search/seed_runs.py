"""Runs of one configuration that differ in their seeds: their ids and their remaining tasks."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from trainer_service.commands.common.jobs import Job
from trainer_service.config import RunOptions
from trainer_service.config.names import validate_run_id
from trainer_service.errors import UserError
from trainer_service.running.runs.layout import RunLayout

MOST_SEEDS = 1000
_PART = re.compile(r"(\d+)(?:-(\d+))?")


Action = Literal["start", "resume", "skip"]


@dataclass(frozen=True, slots=True)
class SeedRun:
    """One of the runs."""

    index: int
    """Its position among the seeds."""

    seed: int
    run_id: str
    folder: Path
    action: Action
    """``skip`` for a run that has finished."""

    def job(self, arguments: Sequence[str]) -> Job:
        """The job that does it. arguments: those of ``mlagents-style``."""
        return Job(self.run_id, tuple(arguments), RunLayout(self.folder).job_log)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Reads seeds such as ``1-5`` or ``1,4,7-9``. Raises UserError for other text, and for a seed that comes twice."""
    seeds: list[int] = []
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None or int(match[2] or match[1]) < int(match[1]):
            raise UserError(f"--seeds: expected seeds such as 1-5 or 1,4,7, got '{text}'")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MOST_SEEDS:
            raise UserError(f"--seeds: expected at most {MOST_SEEDS} seeds, got '{text}'")
        seeds += range(first, last + 1)
    return require_seeds(seeds)


def require_seeds(seeds: Sequence[int]) -> tuple[int, ...]:
    """Returns the seeds. Raises UserError where there is none, where one comes twice or is not a seed."""
    twice = sorted({seed for seed in seeds if seeds.count(seed) > 1})
    if twice:
        raise UserError(f"--seeds: expected every seed once, got {twice[0]} twice")
    wrong = [seed for seed in seeds if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0]
    if wrong or not seeds:
        raise UserError(f"--seeds: expected whole numbers from 0 on, got {wrong[0] if wrong else 'none'!r}")
    return tuple(seeds)


def require_seedable(options: RunOptions) -> None:
    """Raises UserError where options make no sense for several runs."""
    saved = options.checkpoint_settings
    if saved.inference:
        raise UserError(
            "--seeds: expected runs that train, got --inference. Use evaluate to score a trained run"
        )
    if options.env_settings.env_path is None:
        raise UserError(
            "--seeds: expected an environment to start (--env); simulators that attach belong to one run"
        )
    if saved.resume is not False and saved.resume is not True:
        raise UserError(
            f"--resume={saved.resume}: with --seeds expected --resume alone, which continues every run from its newest "
            "checkpoint"
        )


def plan_seeds(
    options: RunOptions, seeds: Sequence[int], is_finished: Callable[[Path], bool]
) -> list[SeedRun]:
    """Returns the task for each seed: ``resume`` skips finished runs, resumes begun ones and starts the others.

    Args:
        options: the options of all runs; each run's id begins with their run id.
        seeds: the seeds.
        is_finished: whether the run in a folder has used the budget of the options.

    Raises:
        UserError: an impossible run id, or runs that exist without ``resume`` and ``force``.
    """
    saved = options.checkpoint_settings
    runs = []
    for index, seed in enumerate(seeds):
        run_id = f"{saved.run_id}-{seed}"
        validate_run_id(run_id)
        folder = Path(saved.results_dir) / run_id
        action: Action = "start"
        if saved.resume and RunLayout(folder).has_run():
            action = "skip" if is_finished(folder) else "resume"
        runs.append(SeedRun(index, seed, run_id, folder, action))
    taken = [run.run_id for run in runs if RunLayout(run.folder).has_run()]
    if taken and not saved.resume and not saved.force:
        raise UserError(
            f"run id '{taken[0]}' is taken{f', and {len(taken) - 1} more' if taken[1:] else ''}: "
            f"'{saved.results_dir}' holds earlier runs. Choose a new --run-id, use --resume to continue those runs, or "
            "--force to overwrite them."
        )
    return runs


def arguments_of_run(run: SeedRun, options: RunOptions, *, file_resumes: bool) -> list[str]:
    """The flags of ``learn`` in which one run differs from the others. Ports that are given count up.

    Args:
        run: the run.
        options: of all runs.
        file_resumes: whether the configuration says ``resume``, which a run that starts must not do.
    """
    flags = [f"--run-id={run.run_id}", f"--seed={run.seed}"]
    saved, settings = options.checkpoint_settings, options.env_settings
    if settings.base_port is not None:
        flags.append(f"--base-port={settings.base_port + run.index * settings.num_envs}")
    if options.metrics_port is not None:
        flags.append(f"--metrics-port={options.metrics_port + run.index}")
    if run.action == "resume":
        flags.append("--resume")
        return flags
    if file_resumes:
        flags.append("--set=checkpoint_settings.resume=false")
    if saved.force:
        flags.append("--force")
    return flags
