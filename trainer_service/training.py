"""A run from its options to its last checkpoint: everything around the loop."""

from __future__ import annotations

import logging
import random
import zlib
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from trainer_service.config import (
    RunOptions,
    SACSettings,
    TrainerSettings,
    dump_run_options,
    unsupported_features,
)
from trainer_service.config.support import unsupported_in_behavior
from trainer_service.console import Console
from trainer_service.curriculum import Curriculum, differences, with_sampler_seeds
from trainer_service.errors import ConfigError, UserError
from trainer_service.metrics import ConsoleWriter, GaugeWriter, JsonlWriter, SummaryWriter, TensorBoardWriter
from trainer_service.run import RunFolder
from trainer_service.status import TrainingStatus, read_lessons
from trainer_service.stopping import StopSignals
from trainer_service.timers import Timers
from unity_bridge.channel_hub import ChannelHub, SideChannel
from unity_bridge.launcher import Command, resolve_program
from unity_bridge.server import Bridge, BridgeSettings
from unity_bridge.session import API_VERSION
from unity_bridge.side_channels import EngineSettings, SideChannelRecord
from unity_bridge.specs import BehaviorSpec

if TYPE_CHECKING:
    import torch

    from trainer_service.behavior import Behavior
    from trainer_service.channels import Channels
    from trainer_service.checkpoint import Checkpoint
    from trainer_service.mlagents_checkpoint import Origin

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
    side_channels: Sequence[SideChannel] | Callable[[int], Sequence[SideChannel]] = (),
) -> Outcome:
    """Runs what ``mlagents-style learn`` runs: trains, or with ``inference`` only acts.

    Args:
        options: what to do; see ``trainer_service.config``.
        console: where to show it; a plain one if None.
        host, port: where simulators may attach, if ``env_settings.env_path`` is not set. Port 0 lets the
            system choose.
        side_channels: channels of your own, such as subclasses of ``mlagents_envs.side_channel.SideChannel``:
            a list that all simulators share, or a function that makes those of simulator number n.

    Raises:
        UserError: something in the options, the run folder or a checkpoint cannot be used.
        BridgeError: the simulators could not be started, or are gone.
        ValueError: two side channels have one id.
    """
    _refuse_unsupported(options)
    command = _command(options)
    options = _with_seeds(options)
    curriculum = Curriculum(options.environment_parameters or {})
    hub = ChannelHub(side_channels)
    saved = options.checkpoint_settings
    with ExitStack() as stack:
        folder = stack.enter_context(
            RunFolder.open(
                saved.results_dir,
                saved.run_id,
                resume=saved.resume,
                force=saved.force,
                initialize_from=saved.initialize_from,
                inference=saved.inference,
            )
        )
        console = console or stack.enter_context(Console(tty=False, debug=options.debug))
        stop = stack.enter_context(StopSignals())
        origins = _origins(options, folder)
        if folder.writable:
            folder.write_configuration(dump_run_options(options))

        def greeting(simulator: int) -> Sequence[SideChannelRecord]:
            return channels.greeting(simulator, bridge.simulators[simulator])

        bridge = stack.enter_context(Bridge(_bridge_settings(options, folder, greeting)))
        if command is None:
            _listen(bridge, host, port)
        else:
            bridge.launch(command, options.env_settings.num_envs)
        # Only now: simulators start up while torch is being loaded, which takes longer.
        from trainer_service.channels import Channels

        device = choose_device(options.torch_settings.device)
        channels = Channels(options, curriculum, hub, device_type=device.type)
        return _serve(options, folder, console, bridge, stop, origins, curriculum, channels, device)


def _serve(
    options: RunOptions,
    folder: RunFolder,
    console: Console,
    bridge: Bridge,
    stop: StopSignals,
    origins: dict[str, _Start],
    curriculum: Curriculum,
    channels: Channels,
    device: torch.device,
) -> Outcome:
    import torch

    from trainer_service.behaviors import Behaviors
    from trainer_service.learn import learn
    from trainer_service.recorder import Recorder

    console.banner(communicator_api=API_VERSION, pytorch=torch.__version__)
    timers = Timers()
    status = TrainingStatus(torch_version=torch.__version__)
    if options.checkpoint_settings.resume:
        status = folder.read_status(torch_version=torch.__version__)
        _resume_lessons(curriculum, options, status)
    for parameter in curriculum.lessons:
        _logger.info("%s", curriculum.describe(parameter))
    writers = _writers(folder, timers)
    expected = dict.fromkeys([*options.behaviors, *curriculum.watched])
    recorder = Recorder(folder, console, writers, timers, status, expected=expected, curriculum=curriculum)
    behaviors = Behaviors(_creator(options, folder, device, options.env_settings.seed, origins, writers))
    try:
        learn(bridge, behaviors, curriculum, channels, recorder, console, timers, stop)
    finally:
        # Whatever ended the loop: what was learned is kept.
        if stop.requested:
            _logger.info("Learning was interrupted. Saving what was learned.")
        recorder.finish(list(behaviors.values()))
    return Outcome(folder.path, {name: each.step for name, each in behaviors.items()}, stop.requested)


def curriculum_reached(options: RunOptions, folder: RunFolder, seed: int) -> Curriculum:
    """The environment parameters in the lessons that a run has reached, for somebody who only plays.

    Samplers are seeded from ``seed``: who is judged shall not meet the very values it has learned on.

    Raises:
        UserError: the run's status cannot be read, or a parameter cannot be told to a simulator.
    """
    curriculum = Curriculum(with_sampler_seeds(options.environment_parameters or {}, seed, anew=True))
    curriculum.resume(read_lessons(folder.status), {})
    for parameter in curriculum.lessons:
        _logger.info("%s", curriculum.describe(parameter))
    return curriculum


def _resume_lessons(curriculum: Curriculum, options: RunOptions, status: TrainingStatus) -> None:
    for difference in differences(options.environment_parameters or {}, status.lessons):
        _logger.warning("%s", difference)
    curriculum.resume(
        status.lessons, {name: behavior.standing for name, behavior in status.behaviors.items()}
    )


def _creator(
    options: RunOptions,
    folder: RunFolder,
    device: torch.device,
    seed: int,
    origins: dict[str, _Start],
    writers: Iterable[SummaryWriter],
) -> Callable[[str, BehaviorSpec], Behavior]:
    """How a behavior is made when it first shows up: fresh, resumed, or from another run's weights."""
    from trainer_service.algorithms import Compute
    from trainer_service.behavior import Behavior

    saved = options.checkpoint_settings
    behaviors: list[Behavior] = []

    def create(name: str, spec: BehaviorSpec) -> Behavior:
        settings = options.behavior_settings(name)
        missing = unsupported_in_behavior(f"behaviors.{name}", settings)
        if missing:
            raise ConfigError(*missing)
        compute = Compute(device, seed_of(seed, name))
        behavior = Behavior(name, spec, settings, compute, learns=not saved.inference)
        behaviors.append(behavior)
        _use_threads(behaviors)
        start = origins.get(name)
        if start is None:
            if saved.resume:
                _logger.warning("'%s' has no checkpoint in this run: it starts from step 0.", name)
        elif start.is_own:
            behavior.restore(_checkpoint(start.origin, behavior, compute.seed))
            _logger.info("Resuming '%s' from step %d.", name, behavior.step)
            _restore_experience(behavior, folder.replay(name))
            for writer in writers:
                writer.truncate_after(name, behavior.step)
        else:
            behavior.initialize(_checkpoint(start.origin, behavior, compute.seed))
            source = settings.init_path or saved.initialize_from
            _logger.info("Starting '%s' from step 0 with the weights of '%s'.", name, source)
        _describe_settings(writers, name, settings)
        return behavior

    return create


def _restore_experience(behavior: Behavior, path: Path) -> None:
    """The replay buffer of who learns from one, if it was saved; says so if it was not."""
    tuning = behavior.settings.hyperparameters
    if not isinstance(tuning, SACSettings) or not behavior.training:
        return
    if tuning.save_replay_buffer and path.is_file():
        behavior.restore_experience(path)
        _logger.info("'%s' goes on with its replay buffer.", behavior.name)
        return
    why = f"'{path}' is missing" if tuning.save_replay_buffer else "save_replay_buffer is false"
    _logger.warning(
        "'%s' starts with an empty replay buffer (%s) and learns again after %d steps.",
        behavior.name, why, max(tuning.buffer_init_steps, tuning.batch_size),
    )  # fmt: skip


def _checkpoint(origin: Origin, behavior: Behavior, seed: int) -> Checkpoint:
    """What a behavior starts from, in our form, whoever wrote it."""
    from trainer_service.mlagents_checkpoint import as_checkpoint

    conversion = as_checkpoint(origin, behavior.name, behavior.spec, behavior.settings, seed=seed)
    for part in conversion.left_behind:
        _logger.warning("'%s': not taken over from ML-Agents: %s.", behavior.name, part)
    return conversion.checkpoint


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


def _use_threads(behaviors: Sequence[Behavior]) -> None:
    """One thread for small minibatches, all cores for large ones, for pictures and for entities.

    Handing 64 rows of a 128-wide layer to a second core takes longer than multiplying them; from about half
    a million multiplications per layer and minibatch on, the second core pays.
    """
    import os

    import torch

    sensors = [sensor for behavior in behaviors for sensor in behavior.spec.observation_specs]
    settings = [behavior.settings for behavior in behaviors]
    largest = max(each.hyperparameters.batch_size * each.network_settings.hidden_units for each in settings)
    heavy = largest >= 2**18 or any(sensor.is_picture or sensor.is_entities for sensor in sensors)
    torch.set_num_threads(max(1, os.cpu_count() or 1) if heavy else 1)


def _refuse_unsupported(options: RunOptions) -> None:
    missing = unsupported_features(options)
    if missing:
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


def engine_settings(options: RunOptions) -> EngineSettings:
    """What the simulators' engine is told with the first reset."""
    engine = options.engine_settings
    return EngineSettings(
        width=engine.width,
        height=engine.height,
        quality_level=engine.quality_level,
        time_scale=engine.time_scale,
        target_frame_rate=engine.target_frame_rate,
        capture_frame_rate=engine.capture_frame_rate,
    )


def _listen(bridge: Bridge, host: str, port: int) -> None:
    port = bridge.listen(host, port)
    _logger.info(
        "Listening on port %d. Start training by pressing the Play button in the Unity Editor. "
        "Or attach a simulator: mlagents-style simulate sim:3dball --mlagents-port %d",
        port, port,
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Start:
    """What a behavior starts from."""

    origin: Origin
    is_own: bool
    """It is the run's own, which goes on; otherwise only the weights are taken."""


def _origins(options: RunOptions, folder: RunFolder) -> dict[str, _Start]:
    """Checkpoints to start from, by behavior; all are read before anything starts, so that a damaged one
    costs nothing."""
    own: dict[str, Path] = {}
    if options.checkpoint_settings.resume:
        own = {path.parent.name: path for path in sorted(folder.path.glob("*/checkpoint.pt"))}
    others: dict[str, Path] = {}
    for name, settings in options.behaviors.items():
        if settings.init_path is not None and name in own:
            _logger.warning("'%s' resumes from its own checkpoint: init_path is for its start only.", name)
        elif settings.init_path is not None:
            others[name] = _init_path(settings.init_path, name, folder)
        elif folder.initialize_from is not None:
            others[name] = folder.initialize_from / name / "checkpoint.pt"
    if not own and not others:
        return {}
    from trainer_service.mlagents_checkpoint import load_origin

    starts = {name: _Start(load_origin(path), False) for name, path in others.items()}
    return starts | {name: _Start(load_origin(path), True) for name, path in own.items()}


def _init_path(given: str, name: str, folder: RunFolder) -> Path:
    path = Path(given)
    if len(path.parts) == 1 and not path.exists() and folder.initialize_from is not None:
        return folder.initialize_from / name / path
    return path


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
