"""Runs that learn from demonstrations alone."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainer_service.commands.common.command import require_at_least
from trainer_service.commands.common.configuration import Configuration, read_configuration
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.demos.cloning import OfflineCloning, cloning_settings, demonstrated_behavior
from trainer_service.commands.train.run import Outcome, with_seed
from trainer_service.commands.train.train import stop_signals
from trainer_service.config import RunOptions, dump_run_options, plugins_in
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.metrics import JsonlWriter, Series, Summary, SummaryWriter
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.log_file import log_file
from trainer_service.running.metrics.tensorboard import TensorBoardWriter
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.runs.status import TrainingStatus
from trainer_service.running.training.compute import (
    choose_device,
    device_for,
    memory_for,
    seed_of,
    threads_for,
)
from trainer_service.running.training.garbage import collected_at_the_end
from trainer_service.running.training.recorder import Outputs, Recorder
from unity_bridge.process_guard import plain_torch

if TYPE_CHECKING:
    from trainer_service.running.training.stop_signals import StopSignals

DEFAULT_EPOCHS = 100

_logger = logging.getLogger(__name__)


@collected_at_the_end()
def clone(
    demo: str | os.PathLike[str],
    config: Configuration = None,
    *,
    epochs: int | None = None,
    max_steps: int | None = None,
    run_id: str | None = None,
    force: bool | None = None,
    results_dir: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    device: str | None = None,
) -> Outcome:
    """Makes a run by behavioral cloning, without a simulator, as ``mlagents-style clone`` does.

    A tenth of the episodes is held out, and the run's checkpoint is of the epoch with the smallest loss on them.

    Args:
        demo: a .demo file, or a folder of them, of one behavior.
        config: the trainer type and networks of that behavior, see ``train``.
        epochs: passes over the demonstrated steps that are not held out; None is 100.
        max_steps: steps to learn from, instead of ``epochs``; the last pass is completed.
        run_id, force, results_dir, seed, device: as for ``train``.

    Returns:
        The run's folder, and how many demonstrated steps were learned from.

    Raises:
        UserError: something in the arguments, the configuration, the demonstrations or the folder cannot be used.
        DemonstrationError: a recording cannot be read.
    """
    require_at_least(1, epochs=epochs, max_steps=max_steps)
    if epochs is not None and max_steps is not None:
        raise UserError("max_steps: expected only one of max_steps and epochs")
    given = {"run_id": run_id, "force": force, "results_dir": results_dir, "seed": seed, "device": device}
    loaded = read_configuration(config, nested(given, SETTINGS))
    options = with_seed(loaded.options)
    options = options.model_copy(update={"plugins": plugins_in(options)})
    console = Console(tty=False, debug=options.debug, log_format=options.log_format)

    with stop_signals() as stop, console, plain_torch(torch):
        loaded.log(_logger)
        cloning, behavior = _prepare(options, Path(demo))
        if epochs is None:
            epochs = DEFAULT_EPOCHS if max_steps is None else -(-max_steps // len(cloning.training))
        options = _with_budget(options, behavior, epochs * len(cloning.training))
        with _run_folder(options) as folder:
            _logger.info("%s", _in_words(cloning, behavior.name, Path(demo), epochs))
            with _recorded(folder, console, behavior, stop) as (recorder, writers):
                recorder.add(behavior)
                autosave_s = options.checkpoint_settings.autosave_interval_s
                _learn(cloning, behavior, epochs, writers, stop, recorder, autosave_s)
        return Outcome(folder.given, {behavior.name: behavior.step}, stop.requested)


def _prepare(options: RunOptions, path: Path) -> tuple[OfflineCloning, Behavior]:
    """A new behavior as its demonstrations describe it, ready to learn from them."""
    layout = options.env_settings.picture_layout
    name, spec = demonstrated_behavior(path, "hwc" if layout == "auto" else layout)
    settings = cloning_settings(name, options.behavior_settings(name), path)

    def make(device: str | torch.device) -> Behavior:
        seed = seed_of(options.env_settings.seed, name)
        precision = options.torch_settings.precision
        compute = Compute(torch.device(device), seed, precision=precision, behavior=name)
        return Behavior(name, spec, settings, compute)

    wanted = options.torch_settings.device
    with memory_for(name, settings):
        behavior = make(device_for(wanted, choose_device(wanted), lambda: make("cpu")))
        torch.set_num_threads(threads_for([behavior]))
        return OfflineCloning(behavior), behavior


def _with_budget(options: RunOptions, behavior: Behavior, max_steps: int) -> RunOptions:
    """The options that name the behavior, whose ``max_steps`` are the demonstrated steps to learn from."""
    behavior.settings = behavior.settings.model_copy(update={"max_steps": max_steps})
    settings = options.behavior_settings(behavior.name).model_copy(update={"max_steps": max_steps})
    return options.model_copy(update={"behaviors": {**options.behaviors, behavior.name: settings}})


@contextmanager
def _run_folder(options: RunOptions) -> Iterator[RunFolder]:
    """The folder of a new run, with its configuration and log."""
    saved = options.checkpoint_settings
    opened = RunFolder.open(saved.results_dir, saved.run_id, force=saved.force)
    with opened as folder, log_file(folder.trainer_log, append=False):
        folder.begin(dump_run_options(options))
        yield folder


@contextmanager
def _recorded(
    folder: RunFolder, console: Console, behavior: Behavior, stop: StopSignals
) -> Iterator[tuple[Recorder, Sequence[SummaryWriter]]]:
    """A context at whose end the behavior is saved, with its model for Unity, whatever ends it."""
    writers = [JsonlWriter(folder.metrics), TensorBoardWriter(folder.behavior)]
    for writer in writers:
        writer.open()
    outputs = Outputs(folder, console, writers, Timers(), export_policy)
    recorder = Recorder(outputs, TrainingStatus(torch_version=torch.__version__), expected=[behavior.name])
    try:
        yield recorder, writers
    except BaseException as error:
        recorder.finish([behavior], "failed", str(error))
        raise
    if stop.requested:
        recorder.finish([behavior], "interrupted", stop.first_signal)
    else:
        recorder.finish([behavior], "finished", "the number of its epochs, which are over")


def _learn(
    cloning: OfflineCloning,
    behavior: Behavior,
    epochs: int,
    writers: Sequence[SummaryWriter],
    stop: StopSignals,
    recorder: Recorder,
    autosave_s: float,
) -> None:
    """Learns epoch after epoch until a signal asks to stop, and keeps the best one's weights.

    The newest ones are saved after the first epoch, and then every ``autosave_s`` seconds.
    """
    started_s = time.perf_counter()
    saves_at_s = 0.0
    for epoch in range(1, epochs + 1):
        if stop.requested:
            _logger.info("Interrupted after %d epochs. Saving what was learned.", epoch - 1)
            break
        metrics = cloning.learn_epoch()
        wall_s = time.perf_counter() - started_s
        series = {tag: Series.of(value) for tag, value in metrics.items()}
        rate = behavior.step / max(wall_s, 1e-9)
        summary = Summary(
            behavior=behavior.name, step=behavior.step, wall_s=wall_s, steps_per_s=rate, series=series
        )
        for writer in writers:
            writer.write(summary)
        if stop.take_save_request() or wall_s >= saves_at_s:
            saves_at_s = wall_s + autosave_s
            recorder.autosave([behavior])
        if epoch == epochs or not epoch % max(epochs // 20, 1):
            _logger.info("%s. Epoch %d of %d. %s", behavior.name, epoch, epochs, _shown(metrics))
    _logger.info("The weights after %d demonstrated steps are the best.", cloning.restore_best())


def _shown(metrics: Mapping[str, float]) -> str:
    """Losses and scores of an epoch, as ``Pretraining Loss: 0.123``."""
    return ". ".join(f"{tag.partition('/')[2]}: {value:.4g}" for tag, value in metrics.items())


def _in_words(cloning: OfflineCloning, name: str, path: Path, epochs: int) -> str:
    training, held_out = cloning.training, cloning.held_out
    learned = f"{epochs} epochs of {len(training)} steps in {len(training.lengths)} episodes"
    if held_out is None:
        rest = "these are too few to hold any out, so the training loss decides which weights are saved."
    else:
        rest = f"{len(held_out.lengths)} episodes ({len(held_out)} steps) are held out."
    return f"Cloning '{name}' from '{path}': {learned}; {rest}"
