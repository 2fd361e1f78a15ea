"""The options, policies and simulator of a trained run that is to be scored, recorded or shown."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from trainer_service.commands.common.environments import ChosenEnvironment
from trainer_service.config import RunOptions, load_run_options
from trainer_service.running.evaluation.simulator import EvaluationSimulator
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.layout import RESULTS
from trainer_service.running.runs.status import read_lessons
from unity_bridge.process_guard import plain_torch


def folder_of(run: str | os.PathLike[str]) -> RunFolder:
    """The folder of a run, to be read; see ``run_path``. Raises UserError where there is no run."""
    return RunFolder.read(RESULTS, run)


def options_of(folder: RunFolder | None, settings: Mapping[str, Any] | None = None) -> RunOptions:
    """The options that the run was trained with; the defaults without a run.

    settings: override some of them, nested as in a file.
    """
    return load_run_options(None if folder is None else folder.configuration, settings or {}).options


def simulator_for(
    environment: ChosenEnvironment,
    folder: RunFolder | None,
    *,
    seed: int,
    settings: Mapping[str, Any] | None = None,
) -> EvaluationSimulator:
    """The simulator of an environment, with the options and the lessons of a run, if there is one.

    settings: as for ``options_of``.

    Raises:
        UserError: no environment is given.
        LaunchError: there is no such program.
    """
    options = options_of(folder, settings)
    command = environment.program(options, "" if folder is None else folder.path.name)
    return EvaluationSimulator(options, command, seed, {} if folder is None else read_lessons(folder.status))


@contextmanager
def one_thread() -> Iterator[None]:
    """A context in which torch computes on one core: for a few agents a forward pass is faster there than on two."""
    with plain_torch(torch):
        torch.set_num_threads(1)
        yield
