"""The options, policies and program of a trained run that is to be scored or recorded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainer_service.config import RunOptions, load_run_options
from trainer_service.policy import Policy, chosen_checkpoints
from trainer_service.runs.folder import RunFolder
from trainer_service.training.compute import choose_device
from unity_bridge.programs.executables import Command, resolve_program


def options_of(folder: RunFolder) -> RunOptions:
    """The options that the run was trained with."""
    return load_run_options(folder.configuration).options


def program_for(trained_with: RunOptions, env: str, arguments: Sequence[str]) -> Command:
    """The program to start, with or without graphics as in training. Raises LaunchError if there is none."""
    engine = trained_with.engine_settings
    return resolve_program(
        env, arguments, no_graphics=engine.no_graphics, no_graphics_monitor=engine.no_graphics_monitor
    )


def load_policies(folder: Path, checkpoint: str = "last", *, device: str, seed: int) -> dict[str, Policy]:
    """A policy of every behavior of a run, by name. checkpoint: see ``chosen_checkpoints``."""
    import torch

    torch.set_num_threads(1)  # a forward pass for a few agents is faster on one core than on two
    choose_device(device)
    chosen = chosen_checkpoints(folder, checkpoint)
    return {name: Policy.load(path, device=device, seed=seed) for name, path in chosen.items()}
