"""A run from its options to its last checkpoint: everything around the loop."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from trainer_service.config import (
    RunOptions,
    missing_demonstrations,
    plugins_in,
    refused_plugins,
    without_updates,
)
from trainer_service.errors import ConfigError
from trainer_service.learning.networks.allocator import keep_freed_memory
from trainer_service.running.callbacks import Callback, CallbackList, RunView, plugins_among
from trainer_service.running.collection.attach_port import AttachPort
from trainer_service.running.collection.goal_task import open_goal_task
from trainer_service.running.collection.launching import are_isolated, command_of
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.interop.mlagents_checkpoint import load_source
from trainer_service.running.interop.onnx_export import export_policy
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.log_file import log_file
from trainer_service.running.metrics.trackers import make_trackers
from trainer_service.running.monitoring.endpoint import monitoring
from trainer_service.running.runs.folder import RunFolder
from trainer_service.running.training.compute import choose_device, warn_of_slow_precision
from trainer_service.running.training.garbage import collected_at_the_end
from trainer_service.running.training.learn import learn
from trainer_service.running.training.learner_ranks import num_learners, resumed_after_restart, serves_rank_0
from trainer_service.running.training.opponent_pools import read_opponents
from trainer_service.running.training.run import Run, RunFactory, SharedLearners, saved_at_the_end
from trainer_service.running.training.sources import local_simulators, num_workers
from trainer_service.running.training.stop_signals import StopSignals
from trainer_service.running.training.warm_start import (
    WarmStart,
    read_warm_starts,
)
from unity_bridge.process_guard import plain_torch
from unity_bridge.programs.executables import Command
from unity_bridge.server.bridge import Bridge
from unity_bridge.side_channels.channel_hub import ChannelHub, SideChannel
from unity_bridge.simulators.schemes import scheme_of

if TYPE_CHECKING:
    from trainer_service.running.monitoring.run_monitor import RunMonitor
    from trainer_service.running.training.sources import MakeSource

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a finished run. It may stand where the path of the run's folder is asked for."""

    folder: Path
    steps: dict[str, int]
    """Agent steps of each behavior."""
    interrupted: bool
    """Whether a signal or a callback stopped it, before its step budgets were used or a stop rule held."""

    def __fspath__(self) -> str:
        return str(self.folder)


@collected_at_the_end()
def train(
    options: RunOptions,
    *,
    program: Command | None = None,
    console: Console | None = None,
    attach_port: AttachPort | None = None,
    side_channels: Sequence[SideChannel] | Callable[[int], Sequence[SideChannel]] = (),
    callbacks: Sequence[Callback] = (),
    stop: StopSignals | None = None,
) -> Outcome:
    """Trains as ``mlagents-style learn`` does; with ``inference`` it only acts.

    In a process that torchrun started, other than the first, it only computes its part of the updates.

    Args:
        options: the options of the run; see ``trainer_service.config``.
        program: the program to start instead of ``env_settings.env_path``.
        console: where to show it; a plain one if None.
        attach_port: where simulators may attach, if ``env_settings.env_path`` is not set; port 5004 of this machine
            if None.
        side_channels: channels of your own, such as subclasses of ``mlagents_envs.side_channel.SideChannel``:
            a list that all simulators share, or a function that makes those of simulator number n.
        callbacks: code of your own that the run calls; see ``trainer_service.running.callbacks``.
        stop: signals that end the run, already entered; if None, it handles signals from the call on.

    Raises:
        UserError: something in the options, the run folder or a checkpoint cannot be used, or a callback failed.
        BridgeError: the simulators could not be started, or are gone.
        ValueError: two side channels have one id.
    """
    if serves_rank_0():
        return _served(options)
    options, command = _checked(options, program, callbacks, side_channels=bool(side_channels))
    attach_port = attach_port or AttachPort()
    access = attach_port.access() if command is None else None
    listen = partial(attach_port.listen, access=access, base_port=options.env_settings.base_port)
    hub, callback_list = ChannelHub(side_channels), CallbackList(callbacks)
    keep_freed_memory()  # before gRPC has threads with heaps of their own
    with ExitStack() as stack:
        folder, run = _opened(options, command, listen, hub, callback_list, console, stop, stack)
        if run is None:
            return Outcome(folder.path, {}, True)
        with saved_at_the_end(run):
            run.callbacks.on_run_start(RunView(options, folder.path, run.behaviors, run.stop.request))
            learn(run)
        steps = {name: behavior.step for name, behavior in run.behaviors.items()}
        return Outcome(folder.given, steps, run.stop.requested)


def _served(options: RunOptions) -> Outcome:
    """Computes this rank's part of all updates; the rest of the run is rank 0's."""
    from trainer_service.distributed.learners.torchrun import serve_launched

    serve_launched()
    saved = options.checkpoint_settings
    return Outcome(Path(saved.results_dir, saved.run_id), {}, False)


def _opened(
    options: RunOptions,
    command: Command | None,
    listen: Callable[[Bridge], None],
    hub: ChannelHub,
    callbacks: CallbackList,
    console: Console | None,
    stop: StopSignals | None,
    stack: ExitStack,
) -> tuple[RunFolder, Run | None]:
    """Opens the run's folder, starts the simulators, and makes the loop's inputs; None after a request to stop.

    The stack closes what was opened.
    """
    writers = make_trackers(options)
    curriculum = Curriculum(options.environment_parameters or {}, options.env_settings.seed)
    goal_task = open_goal_task(options, command, num_learners(options), stack)
    monitor = _monitor(options, stack)
    folder, console = _open(options, console, stack)
    stop = stop or stack.enter_context(StopSignals())
    warm_starts = read_warm_starts(options, folder, load_source)
    _check_demonstrations_of_resumed(options, warm_starts)
    opponents = read_opponents(options)
    if stop.requested:
        return folder, None
    if num_workers(options):
        source = _rollout_workers(options, folder, curriculum, console, callbacks)
    else:
        source = local_simulators(options, folder, curriculum, hub, command, listen, callbacks)
    make_source = stack.enter_context(source)
    if monitor is not None:
        writers.append(monitor)
        make_source = monitor.watching(make_source)
    stack.enter_context(plain_torch(torch))
    device = _device(options)
    factory = RunFactory(
        options=options,
        command=command,
        folder=folder,
        console=console,
        stop=stop,
        curriculum=curriculum,
        callbacks=callbacks,
        warm_starts=warm_starts,
        opponents=opponents,
        writers=writers,
        device=device,
        goal_task=goal_task,
        ranks=_learner_ranks(options, device, stack),
        export_model=export_policy,
    )
    return folder, factory.make(make_source)


def _checked(
    options: RunOptions, program: Command | None, callbacks: Sequence[Callback], *, side_channels: bool
) -> tuple[RunOptions, Command | None]:
    """The options with all that they leave open, and the program to start, before the run has a folder.

    Raises UserError if the options contradict each other.
    """
    options = resumed_after_restart(options)
    _check_options(options, program, side_channels=side_channels)
    choose_device(options.torch_settings.device)
    command = program or command_of(options)
    if command is not None:
        are_isolated(options, command)
    plugins = {**plugins_in(options), **plugins_among(callbacks)}
    return with_seed(options).model_copy(update={"plugins": plugins}), command


def _open(options: RunOptions, console: Console | None, stack: ExitStack) -> tuple[RunFolder, Console]:
    """The run's folder with its log, and the console, for as long as the stack lasts."""
    saved = options.checkpoint_settings
    folder = stack.enter_context(
        RunFolder.open(
            saved.results_dir,
            saved.run_id,
            resume=bool(saved.resume),
            force=saved.force,
            initialize_from=saved.initialize_from,
            inference=saved.inference,
        )
    )
    if console is None:
        console = Console(tty=False, debug=options.debug, log_format=options.log_format)
        stack.enter_context(console)
    if folder.writable:
        stack.enter_context(log_file(folder.trainer_log, append=bool(saved.resume)))
    _log_plugins(options)
    for warning in without_updates(options):
        _logger.warning("%s", warning)
    return folder, console


def _rollout_workers(
    options: RunOptions, folder: RunFolder, curriculum: Curriculum, console: Console, callbacks: CallbackList
) -> AbstractContextManager[MakeSource]:
    if callbacks.listener("on_step") is not None:
        _logger.warning("on_step of a callback is not called: rollout workers collect in other processes.")
    from trainer_service.distributed.source import rollout_workers

    return rollout_workers(options, folder, curriculum, console)


def _device(options: RunOptions) -> torch.device:
    """The device that the user named, or the best one at hand."""
    device = choose_device(options.torch_settings.device)
    warn_of_slow_precision(options.torch_settings.precision, device)
    return device


def _learner_ranks(options: RunOptions, device: torch.device, stack: ExitStack) -> SharedLearners | None:
    """The ranks that share the updates for as long as the stack lasts; None for one learner."""
    if num_learners(options) == 1:
        return None
    from trainer_service.distributed.learners.ranks import learner_ranks

    return stack.enter_context(learner_ranks(options, device))


def _check_options(options: RunOptions, program: Command | None, *, side_channels: bool) -> None:
    num_learners(options)
    missing: list[str] = []
    simulators = options.env_settings
    if simulators.num_envs > 1 and simulators.env_path is None and program is None:
        missing.append(
            f"env_settings.num_envs: expected 1 while env_path (--env) is not given, got {simulators.num_envs}; "
            "without it any number of simulators may attach by themselves"
        )
    if num_workers(options):
        from trainer_service.distributed.ray_cluster import require_ray

        require_ray()  # before the run has a folder
        if options.env_settings.env_path is None:
            missing.append(
                "distributed.num_workers: rollout workers start simulators themselves, and those that attach are "
                "not theirs: set env_settings.env_path (--env), or num_workers to 0"
            )
        if program is not None:
            missing.append(
                f"distributed.num_workers: rollout workers start simulators themselves, and '{program.env}' is an "
                "object of this program: give it a name (gym:MODULE:FUNCTION), or set num_workers to 0"
            )
        if side_channels:
            missing.append(
                "distributed.num_workers: side channels of yours live in the trainer's process, which has no "
                "simulators then: leave them out, or set num_workers to 0"
            )
    if options.evaluation is not None and options.env_settings.env_path is None:
        missing.append(
            "evaluation: it needs simulators of its own, and those that attach are not: "
            "set env_settings.env_path (--env), or remove the section"
        )
    if options.evaluation is not None and options.evaluation.film:
        missing += _unfilmable(options.env_settings.env_path)
    # Which of them a resumed run still needs is known when its checkpoints were read.
    if not options.checkpoint_settings.inference and not options.checkpoint_settings.resume:
        missing += missing_demonstrations(options)
    if missing:
        raise ConfigError(*missing)


def _monitor(options: RunOptions, stack: ExitStack) -> RunMonitor | None:
    """Starts the endpoint for metrics and health checks, which the stack closes; None without ``metrics_port``."""
    if options.metrics_port is None:
        return None
    return stack.enter_context(monitoring(options))


def _log_plugins(options: RunOptions) -> None:
    for name, source in options.plugins.items():
        _logger.info("Plugin %s of %s.", name, source)
    for refusal in refused_plugins(options):
        _logger.warning("%s", refusal)


def _unfilmable(env: str | None) -> list[str]:
    """Returns the problems that prevent filming the simulator."""
    if env is None or scheme_of(env) is not None:
        return []
    return [
        f"evaluation.film: '{env}' is a program of its own; only bundled environments can be filmed: set it to false"
    ]


def _check_demonstrations_of_resumed(options: RunOptions, warm_starts: dict[str, WarmStart]) -> None:
    if options.checkpoint_settings.inference or not options.checkpoint_settings.resume:
        return
    steps = {name: start.source.step for name, start in warm_starts.items() if start.is_resume}
    if missing := missing_demonstrations(options, steps):
        raise ConfigError(*missing)


def with_seed(options: RunOptions) -> RunOptions:
    """Returns the options with their seed chosen, so that the run can be repeated from its configuration.yaml."""
    seed = options.env_settings.seed if options.env_settings.seed >= 0 else random.randint(0, 9999)
    environment = options.env_settings.model_copy(update={"seed": seed})
    return options.model_copy(update={"env_settings": environment})
