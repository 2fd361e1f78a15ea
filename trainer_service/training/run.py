"""A run from its options to its last checkpoint: everything around the loop."""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_service.callbacks import Callback, CallbackList, RunView
from trainer_service.config import (
    RunOptions,
    SACSettings,
    TrainerSettings,
    dump_run_options,
    missing_demonstrations,
)
from trainer_service.config.hyperparameters.off_policy import OffPolicyHyperparameters
from trainer_service.curriculum import Curriculum, lesson_mismatches, with_sampler_seeds
from trainer_service.errors import ConfigError, UserError
from trainer_service.evaluation.simulator import engine_settings
from trainer_service.metrics import ConsoleWriter, GaugeWriter, JsonlWriter, SummaryWriter, TensorBoardWriter
from trainer_service.metrics.console import Console
from trainer_service.metrics.timers import Timers
from trainer_service.runs.folder import RunFolder
from trainer_service.runs.status import TrainingStatus
from trainer_service.training.stop_signals import StopSignals, UpdateInterrupted
from trainer_service.training.warm_start import (
    WarmStart,
    converted_checkpoint,
    read_warm_starts,
    trained_group_size,
    warm_start_of,
)
from unity_bridge.codec.protocol import API_VERSION
from unity_bridge.programs.executables import Command, resolve_program
from unity_bridge.server.bridge import Bridge, BridgeSettings
from unity_bridge.side_channels import SideChannelRecord
from unity_bridge.side_channels.channel_hub import ChannelHub, SideChannel
from unity_bridge.specs import BehaviorSpec
from unity_bridge.transport.endpoint import is_loopback

if TYPE_CHECKING:
    import torch

    from trainer_service.behaviors.behavior import Behavior
    from trainer_service.behaviors.registry import Behaviors
    from trainer_service.evaluation.periodic import PeriodicEvaluator
    from trainer_service.training.channels import Channels
    from trainer_service.training.progress_log import ProgressLog
    from trainer_service.training.recorder import Recorder

EDITOR_PORT = 5004
"""Where the Unity Editor looks for a trainer."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a finished run left."""

    folder: Path
    steps: dict[str, int]
    """Agent steps of each behavior."""
    interrupted: bool
    """It was asked to stop before its step budgets were used."""


def train(
    options: RunOptions,
    *,
    console: Console | None = None,
    host: str = "127.0.0.1",
    port: int = EDITOR_PORT,
    insecure_listen: bool = False,
    side_channels: Sequence[SideChannel] | Callable[[int], Sequence[SideChannel]] = (),
    callbacks: Sequence[Callback] = (),
    stop: StopSignals | None = None,
) -> Outcome:
    """Runs what ``mlagents-style learn`` runs: trains, or with ``inference`` only acts.

    Args:
        options: what to do; see ``trainer_service.config``.
        console: where to show it; a plain one if None.
        host, port: where simulators may attach, if ``env_settings.env_path`` is not set. Port 0 lets the
            system choose.
        insecure_listen: whether ``host`` may be an address that other machines reach. Whoever reaches the port is
            taken for a simulator, and nothing is encrypted.
        side_channels: channels of your own, such as subclasses of ``mlagents_envs.side_channel.SideChannel``:
            a list that all simulators share, or a function that makes those of simulator number n.
        callbacks: code of your own that the run calls; see ``trainer_service.callbacks``.
        stop: who asks it to end, entered already; if None, signals that come from here on.

    Raises:
        UserError: something in the options, the run folder or a checkpoint cannot be used, or a callback failed.
        BridgeError: the simulators could not be started, or are gone.
        ValueError: two side channels have one id.
    """
    _check_options(options)
    command = _command(options)
    if command is None:
        _require_permission_to_listen(host, insecure_listen)
    options = _with_seeds(options)
    curriculum = Curriculum(options.environment_parameters or {})
    hub = ChannelHub(side_channels)
    called = CallbackList(callbacks)
    saved = options.checkpoint_settings
    with ExitStack() as stack:
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
        console = console or stack.enter_context(Console(tty=False, debug=options.debug))
        stop = stop or stack.enter_context(StopSignals())
        warm_starts = read_warm_starts(options, folder)
        _check_demonstrations_of_resumed(options, warm_starts)
        if folder.writable:
            folder.write_configuration(dump_run_options(options))

        def greeting(simulator: int) -> Sequence[SideChannelRecord]:
            return channels.greeting(simulator, bridge.simulators[simulator])

        if stop.requested:
            return Outcome(folder.path, {}, True)
        bridge = stack.enter_context(Bridge(_bridge_settings(options, folder, greeting)))
        if command is None:
            _listen(bridge, host, port, options.env_settings.base_port)
        else:
            _logger.info("Starting %d x %s", options.env_settings.num_envs, command.env)
            bridge.launch(command, options.env_settings.num_envs)
        # Only now: simulators start up while torch is being loaded, which takes longer.
        from trainer_service.training.channels import Channels

        device = choose_device(options.torch_settings.device)
        channels = Channels(options, curriculum, hub, device_type=device.type)
        outcome = _serve(
            options, folder, console, bridge, stop, warm_starts, curriculum, channels, device, called
        )
        if leaving := len(bridge.simulators):
            _logger.info("Waiting for %d simulator%s to leave.", leaving, "s" if leaving > 1 else "")
        return outcome


def _serve(
    options: RunOptions,
    folder: RunFolder,
    console: Console,
    bridge: Bridge,
    stop: StopSignals,
    warm_starts: dict[str, WarmStart],
    curriculum: Curriculum,
    channels: Channels,
    device: torch.device,
    callbacks: CallbackList,
) -> Outcome:
    import torch

    from trainer_service.behaviors.registry import Behaviors
    from trainer_service.evaluation.periodic import evaluator_for
    from trainer_service.training import memory_errors
    from trainer_service.training.exchange_hint import ExchangeHint
    from trainer_service.training.learn import learn
    from trainer_service.training.progress_log import ProgressLog
    from trainer_service.training.recorder import Recorder

    console.banner(communicator_api=API_VERSION, pytorch=torch.__version__)
    timers = Timers()
    status = TrainingStatus(torch_version=torch.__version__)
    if options.checkpoint_settings.resume:
        status = _status_of(folder, torch_version=torch.__version__)
        _resume_curriculum(curriculum, options, status, warm_starts)
    for parameter in curriculum.lessons:
        _logger.info("%s", curriculum.describe(parameter))
    environment = options.env_settings
    progress = ProgressLog(console, ExchangeHint(timers, environment.env_path, environment.num_envs).look)
    writers = [*_writers(folder, timers), progress]
    expected = dict.fromkeys([*options.behaviors, *curriculum.watched_behaviors])
    autosave_s = options.checkpoint_settings.autosave_interval_s
    recorder = Recorder(
        folder,
        console,
        writers,
        timers,
        status,
        expected,
        autosave_s,
        curriculum=curriculum,
        callbacks=callbacks,
    )
    if folder.writable:
        _logger.info(
            "What is learned is saved in '%s' every %d s (autosave_interval_s), at every checkpoint, and whatever "
            "ends the run; --resume goes on from there.", folder.path, autosave_s,
        )  # fmt: skip
    behaviors = Behaviors(
        _behavior_factory(
            options,
            folder,
            device,
            options.env_settings.seed,
            warm_starts,
            writers,
            callbacks,
            progress,
            stop,
        ),
        listed=options.behaviors,
        absence_timeout_s=options.env_settings.timeout_wait,
    )
    evaluator = evaluator_for(
        options, _command(options), folder, curriculum, writers, stop, progress.evaluating
    )
    with _saving_at_the_end(recorder, behaviors, stop, evaluator, callbacks):
        try:
            callbacks.on_run_start(RunView(options, folder.path, behaviors, stop.request))
            learn(
                bridge,
                behaviors,
                curriculum,
                channels,
                recorder,
                progress,
                timers,
                stop,
                evaluator,
                callbacks,
            )
        except UpdateInterrupted:
            _logger.info(
                "An update that takes longer was broken off: its gradient steps so far are kept, the rest of its "
                "rollout is not."
            )
        except Exception as error:
            told = memory_errors.in_words(error, behaviors.values(), device)
            if told is None:
                raise
            raise told from None
    return Outcome(folder.path, {name: each.step for name, each in behaviors.items()}, stop.requested)


@contextmanager
def _saving_at_the_end(
    recorder: Recorder,
    behaviors: Behaviors,
    stop: StopSignals,
    evaluator: PeriodicEvaluator | None,
    callbacks: CallbackList,
) -> Iterator[None]:
    """Whatever ends the loop: what was learned is kept, and what ended it is told.

    An update that an exception broke off is saved as it stands, unless a number in it is none: gradient steps that
    were made are kept, the rest of its rollout is not.
    """

    def conclude() -> None:
        if stop.requested:
            _logger.info("Learning was interrupted. Saving what was learned.")
        recorder.finish(list(behaviors.values()))
        if evaluator is not None:
            evaluator.finish()
        callbacks.on_run_end()

    try:
        yield
    except BaseException:
        try:
            conclude()
        except Exception as error:
            _logger.error("%s", error, exc_info=None if isinstance(error, UserError) else error)
        raise
    conclude()


def _status_of(folder: RunFolder, *, torch_version: str) -> TrainingStatus:
    """What a run that goes on had listed. A list that is damaged costs the lessons, not the run."""
    try:
        return folder.read_status(torch_version=torch_version)
    except UserError as error:
        if not folder.writable:
            raise
        _logger.warning(
            "%s Nothing is left to do: it was moved to '%s'.", error, folder.set_aside([folder.status])
        )
        return TrainingStatus(torch_version=torch_version)


def _resume_curriculum(
    curriculum: Curriculum, options: RunOptions, status: TrainingStatus, warm_starts: dict[str, WarmStart]
) -> None:
    for difference in lesson_mismatches(options.environment_parameters or {}, status.lessons):
        _logger.warning("%s", difference)
    older = {name for name, start in warm_starts.items() if start.is_resume and not start.is_newest}
    if older and status.lessons:
        _logger.warning("Lessons are as they were at the end: checkpoints have none of their own.")
    histories = {name: each.lesson_history for name, each in status.behaviors.items() if name not in older}
    curriculum.resume(status.lessons, histories)


def _behavior_factory(
    options: RunOptions,
    folder: RunFolder,
    device: torch.device,
    seed: int,
    warm_starts: dict[str, WarmStart],
    writers: Iterable[SummaryWriter],
    callbacks: CallbackList,
    progress: ProgressLog,
    stop: StopSignals,
) -> Callable[[str, BehaviorSpec, int], Behavior]:
    """How a behavior is made when it first shows up: fresh, resumed, or from another run's weights."""
    import torch

    from trainer_service.algorithms import Compute
    from trainer_service.algorithms.common.observation_selection import with_group_size
    from trainer_service.behaviors.behavior import Behavior
    from trainer_service.behaviors.self_play import TurnScheduler
    from trainer_service.training.resuming import make_newest
    from trainer_service.training.threads import threads_for

    saved = options.checkpoint_settings
    behaviors: list[Behavior] = []
    turn_scheduler = TurnScheduler()

    def create(name: str, spec: BehaviorSpec, group: int) -> Behavior:
        start = warm_start_of(name, warm_starts)
        settings = with_group_size(options.behavior_settings(name), trained_group_size(start) or group)

        def before_minibatch(minibatch: int, of: int) -> None:
            progress.updating(name, minibatch, of)
            stop.raise_if_overdue()

        compute = Compute(device, seed_of(seed, name), before_minibatch)
        behavior = Behavior(
            name,
            spec,
            settings,
            compute,
            learns=not saved.inference,
            callbacks=callbacks,
            turn_scheduler=turn_scheduler,
        )
        torch.set_num_threads(threads_for([*behaviors, behavior]))
        if start is None:
            if saved.resume:
                _logger.warning("'%s' has no checkpoint in this run: it starts from step 0.", name)
            elif saved.initialize_from is not None:
                _logger.warning(
                    "'%s' has no checkpoint in '%s': it starts anew.", name, saved.initialize_from
                )
        elif start.is_resume:
            behavior.restore(converted_checkpoint(start.origin, behavior, compute.seed))
            _logger.info("Resuming '%s' from step %d.", name, behavior.step)
            if folder.writable:
                make_newest(folder, name, behavior.step, start.path)
            _restore_replay(behavior, folder.replay(name), is_newest=start.is_newest)
            for writer in writers:
                writer.truncate_after(name, behavior.step)
        else:
            behavior.initialize(converted_checkpoint(start.origin, behavior, compute.seed))
            source = settings.init_path or saved.initialize_from
            _logger.info("Starting '%s' from step 0 with the weights of '%s'.", name, source)
        behavior.prepare()
        _describe_settings(writers, name, settings)
        behaviors.append(behavior)
        return behavior

    return create


def _restore_replay(behavior: Behavior, path: Path, *, is_newest: bool) -> None:
    """The replay buffer of who learns from one, if it was saved; says so if it was not.

    is_newest: the buffer was saved with the checkpoint that the behavior goes on from.
    """
    tuning = behavior.settings.hyperparameters
    if not isinstance(tuning, SACSettings | OffPolicyHyperparameters) or not behavior.training:
        return
    if tuning.save_replay_buffer and path.is_file():
        behavior.restore_replay(path)
        of_when = "" if is_newest else ", as it was at the end: checkpoints have none of their own"
        _logger.info("'%s' goes on with its replay buffer%s.", behavior.name, of_when)
        return
    # A batch is of joint steps where groups learn, and each of them takes a step of every agent.
    agents = tuning.num_agents
    why = f"'{path}' is missing" if tuning.save_replay_buffer else "save_replay_buffer is false"
    _logger.warning(
        "'%s' starts with an empty replay buffer (%s) and learns again after %d steps.",
        behavior.name, why, max(tuning.buffer_init_steps, agents * tuning.batch_size),
    )  # fmt: skip


def choose_device(name: str | None) -> torch.device:
    """The device that the user named, or a GPU if there is one.

    Raises:
        UserError: no such device here.
    """
    import torch

    chosen = name or ("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(chosen)
        torch.zeros(1, device=device).item()  # a device that holds no numbers, such as meta, is none
    except (RuntimeError, AssertionError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"torch device '{chosen}' cannot be used here: {reason}") from None
    return device


def seed_of(seed: int, behavior: str) -> int:
    """A seed for one behavior that depends on nothing but the run's seed and its name."""
    return (seed * 1_000_003 + zlib.crc32(behavior.encode())) % 2**62


def _check_options(options: RunOptions) -> None:
    missing: list[str] = []
    if options.evaluation is not None and options.env_settings.env_path is None:
        missing.append(
            "evaluation: it needs simulators of its own, and those that attach are not: "
            "set env_settings.env_path (--env), or remove the section"
        )
    # Which of them a resumed run still needs is known when its checkpoints were read.
    if not options.checkpoint_settings.inference and not options.checkpoint_settings.resume:
        missing += missing_demonstrations(options)
    if missing:
        raise ConfigError(*missing)


def _check_demonstrations_of_resumed(options: RunOptions, warm_starts: dict[str, WarmStart]) -> None:
    if options.checkpoint_settings.inference or not options.checkpoint_settings.resume:
        return
    steps = {name: start.origin.step for name, start in warm_starts.items() if start.is_resume}
    if missing := missing_demonstrations(options, steps):
        raise ConfigError(*missing)


def _command(options: RunOptions) -> Command | None:
    environment, engine = options.env_settings, options.engine_settings
    if environment.env_path is None:
        return None
    return resolve_program(
        environment.env_path,
        environment.env_args or (),
        no_graphics=engine.no_graphics,
        no_graphics_monitor=engine.no_graphics_monitor,
    )


def _bridge_settings(
    options: RunOptions, folder: RunFolder, greeting: Callable[[int], Sequence[SideChannelRecord]]
) -> BridgeSettings:
    environment = options.env_settings
    return BridgeSettings(
        seed=environment.seed,
        greeting=greeting,
        num_areas=environment.num_areas,
        timeout_wait_s=environment.timeout_wait,
        engine=engine_settings(options),
        base_port=environment.base_port,
        run_logs=folder.run_logs if folder.writable else None,
        max_lifetime_restarts=environment.max_lifetime_restarts,
        restarts_rate_limit_n=environment.restarts_rate_limit_n,
        restarts_rate_limit_period_s=environment.restarts_rate_limit_period_s,
    )


def _require_permission_to_listen(host: str, insecure_listen: bool) -> None:
    """Raises UserError where other machines would reach the port, and nobody said that they may."""
    if insecure_listen or is_loopback(host):
        return
    raise UserError(
        f"host {host}: other machines would reach the port, and whoever does is taken for a simulator, without "
        "password or encryption: in a network that you trust say so with --insecure-listen (insecure_listen=True in "
        "Python)"
    )


def _listen(bridge: Bridge, host: str, port: int, base_port: int | None) -> None:
    port = bridge.listen(host, port)
    if not is_loopback(host):
        _logger.warning(
            "Other machines reach this port (--insecure-listen): whoever does is taken for a simulator, and nothing is "
            "encrypted."
        )
    if base_port not in (None, port):
        # No mistake, files of ML-Agents have it; but who typed it would wait on the wrong port for ever.
        _logger.warning(
            "base_port: %d is where simulators that are launched (--env) are expected; --port says where others are.",
            base_port,
        )
    _logger.info(
        "Listening on port %d. Start training by pressing the Play button in the Unity Editor. "
        "Or attach a simulator: mlagents-style simulate sim:3dball --mlagents-port %d",
        port, port,
    )  # fmt: skip


def _with_seeds(options: RunOptions) -> RunOptions:
    """The options with every seed that they leave open, so that the run can be repeated from what is written."""
    seed = options.env_settings.seed if options.env_settings.seed >= 0 else random.randint(0, 9999)
    chosen: dict[str, object] = {"env_settings": options.env_settings.model_copy(update={"seed": seed})}
    if options.environment_parameters is not None:
        chosen["environment_parameters"] = with_sampler_seeds(options.environment_parameters, seed)
    return options.model_copy(update=chosen)


def _writers(folder: RunFolder, timers: Timers) -> list[SummaryWriter]:
    if not folder.writable:
        return [ConsoleWriter()]
    return [
        ConsoleWriter(), JsonlWriter(folder.metrics), TensorBoardWriter(folder.behavior), GaugeWriter(timers)
    ]  # fmt: skip


def _describe_settings(writers: Iterable[SummaryWriter], name: str, settings: TrainerSettings) -> None:
    text = dump_run_options(RunOptions(behaviors={name: settings}))
    for writer in writers:
        if isinstance(writer, TensorBoardWriter):
            writer.write_text(name, text)
