"""The options of a run for starting its simulators."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from trainer_service.config import RunOptions
from unity_bridge.programs.executables import Command, resolve_program
from unity_bridge.programs.hosted_simulator import is_isolated
from unity_bridge.server.settings import BridgeSettings
from unity_bridge.side_channels import EngineConfiguration, SideChannelRecord


def command_of(options: RunOptions) -> Command | None:
    """Returns the program to start; None if simulators attach. Raises LaunchError if it does not exist."""
    environment = options.env_settings
    if environment.env_path is None:
        return None
    arguments = list(environment.env_args or ())
    if needs_expert(options):
        arguments.append("--expert")
    return program_for(options, environment.env_path, arguments)


def program_for(options: RunOptions, env: str, arguments: Sequence[str]) -> Command:
    """Returns the program to start, with graphics as in training. Raises LaunchError if it does not exist."""
    engine = options.engine_settings
    return resolve_program(
        env, arguments, no_graphics=engine.no_graphics, no_graphics_monitor=engine.no_graphics_monitor
    )


def are_isolated(options: RunOptions, command: Command) -> bool:
    """Whether each simulator of a run gets its own process.

    Raises:
        LaunchError: The settings are impossible, or an object cannot be sent to another process.
    """
    isolated = is_isolated(command, options.env_settings.num_envs, options.env_settings.isolate)
    if isolated and command.environment is not None:
        _ = command.environment.content
    return isolated


def needs_expert(options: RunOptions) -> bool:
    """Whether the opponents of a learning behavior may include the scene's expert."""
    if options.checkpoint_settings.inference:
        return False
    settings = [*options.behaviors.values(), options.default_settings]
    return any(
        name.is_expert
        for each in settings
        if each is not None and each.self_play is not None
        for name in each.self_play.fixed_opponents
    )


def bridge_settings(
    options: RunOptions,
    run_logs: Path | None,
    greeting: Callable[[int], Sequence[SideChannelRecord]],
    *,
    first: int = 0,
) -> BridgeSettings:
    """Returns the settings of the bridge of the run's simulators.

    Args:
        options: of the run.
        run_logs: folder of programs' output; None discards it.
        greeting: returns the records of simulator number n's first reset.
        first: number of the run's simulators on other bridges. Seeds and ports continue from there.
    """
    environment = options.env_settings
    return BridgeSettings(
        seed=environment.seed + first,
        greeting=greeting,
        num_areas=environment.num_areas,
        isolate=environment.isolate,
        picture_layout=environment.picture_layout,
        timeout_wait_s=environment.timeout_wait,
        engine=engine_settings(options),
        base_port=None if environment.base_port is None else environment.base_port + first,
        run_logs=run_logs,
        max_lifetime_restarts=environment.max_lifetime_restarts,
        restarts_rate_limit_n=environment.restarts_rate_limit_n,
        restarts_rate_limit_period_s=environment.restarts_rate_limit_period_s,
    )


def engine_settings(options: RunOptions) -> EngineConfiguration:
    """Returns the engine settings of a simulator, which are sent with the first reset."""
    engine = options.engine_settings
    return EngineConfiguration(
        width=engine.width,
        height=engine.height,
        quality_level=engine.quality_level,
        time_scale=engine.time_scale,
        target_frame_rate=engine.target_frame_rate,
        capture_frame_rate=engine.capture_frame_rate,
    )
