"""The environment of a run as a program says it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeAlias

from trainer_service.config import RunOptions, load_run_options
from trainer_service.errors import UserError
from trainer_service.running.collection.launching import program_for
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.programs.executables import Command, bundled_command
from unity_bridge.programs.program_environment import ProgramEnvironment, is_environment, program_environment
from unity_bridge.simulators.foreign.lookup.libraries import library_of
from unity_bridge.simulators.schemes import scheme_of
from unity_bridge.untrusted_text import first_line


class SteppedEnvironment(Protocol):
    """An environment of Gymnasium or PettingZoo, or with lists of agents."""

    @property
    def reset(self) -> Callable[..., Any]: ...

    @property
    def step(self) -> Callable[..., Any]: ...


EnvironmentLike: TypeAlias = str | os.PathLike[str] | SteppedEnvironment | Callable[..., Any]
"""The types of ``env`` in ``train``, ``evaluate`` and ``record``: a text as for ``--env``, an id, a path, an
environment, or a function or class that makes one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenEnvironment:
    """An environment that a run shall start."""

    env_path: str | None = None
    """As ``--env`` says it, or ``python:NAME`` for an object; None leaves it to the configuration."""

    env_args: tuple[str, ...] | None = None
    """Arguments of the simulator; None leaves them to the configuration."""

    env_kwargs: Mapping[str, Any] | None = None
    """Arguments of the environment that the simulator hosts, where it has a name."""

    given: ProgramEnvironment | None = None
    """An environment object, or a function that makes it; None for an environment with a name."""

    def arguments(self, configured: Sequence[str] | None) -> tuple[str, ...]:
        """The simulator's arguments, where a configuration has these."""
        own = tuple(configured or ()) if self.env_args is None else self.env_args
        return own if self.env_kwargs is None else (*own, "--env-kwargs", _as_json(self.env_kwargs))

    def applied_to(self, options: RunOptions) -> RunOptions:
        """The options with the simulator's arguments."""
        settings = options.env_settings
        changed = settings.model_copy(update={"env_args": self.arguments(settings.env_args) or None})
        return options.model_copy(update={"env_settings": changed})

    def over(self, options: RunOptions) -> tuple[str | None, tuple[str, ...]]:
        """The environment, or else that of the options, and the simulator's arguments."""
        before = options.env_settings
        env = self.env_path or before.env_path
        same = env == before.env_path  # then it gets the arguments that it had while training
        return env, self.arguments(before.env_args if same else None)

    def program(self, trained_with: RunOptions, run_id: str) -> Command:
        """The program to score or record a run's policies on.

        Raises:
            UserError: no environment is given.
            LaunchError: there is no such program.
        """
        env, arguments = self.over(trained_with)
        if env is None:
            raise UserError(
                f"run '{run_id}' was trained by simulators that attached; say what to evaluate on with --env (env= in "
                "Python)"
            )
        if self.given is not None:
            return bundled_command(env, arguments, self.given)
        return program_for(trained_with, env, arguments)


def environment_for(
    env: EnvironmentLike | None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
) -> ChosenEnvironment:
    """The environment that ``env`` stands for.

    Args:
        env: a text as for ``--env``; a path; the id of an environment that is registered with Gymnasium in this
            process, or is of a known library; an environment of Gymnasium or PettingZoo, or with lists of agents; or a
            function or class that makes one. None leaves it to the configuration.
        env_kwargs: arguments of the environment, where it is to be made.
        env_args: arguments of the simulator, as after ``--env-args``.

    Raises:
        UserError: it is none of these.
        LaunchError: arguments for an environment that is made already.
    """
    if isinstance(env_args, str):
        raise UserError(f"env_args: expected a list of texts, got '{env_args}'")
    arguments = None if env_args is None else tuple(map(str, env_args))
    if isinstance(env, os.PathLike):
        env = os.fspath(env)
    if isinstance(env, str):
        env = _registered(env)
    if env is None or isinstance(env, str):
        return ChosenEnvironment(env_path=env, env_args=arguments, env_kwargs=env_kwargs)
    if not callable(env) and not is_environment(env):
        raise UserError(
            "env: expected a text as for --env, a path, an environment of Gymnasium or PettingZoo, or a function that "
            f"makes one, got {env!r:.80}"
        )
    given = program_environment(env, env_kwargs)
    return ChosenEnvironment(env_path=given.env, env_args=arguments, given=given)


def environment_of_resumed(
    options: RunOptions, overrides: Mapping[str, Any]
) -> tuple[Mapping[str, Any], str]:
    """The settings of the environment that a resumed run keeps where nothing names one, and a line that says so.

    It keeps environments that the bundled simulator hosts. A build is a program: it starts only where a user asks for
    it. ``env_path: null`` on the command line keeps nothing.
    """
    saved = options.checkpoint_settings
    configuration = RunLayout(Path(saved.results_dir, saved.run_id)).configuration
    is_named = options.env_settings.env_path is not None or "env_path" in overrides.get("env_settings", {})
    if not saved.resume or is_named or not configuration.is_file():
        return {}, ""
    try:
        before = load_run_options(configuration).options.env_settings
    except UserError as error:
        return {}, f"The environment of run '{saved.run_id}' is not known: {first_line(error)}"
    if before.env_path is None:
        return {}, ""
    if scheme_of(before.env_path) is None:
        return {}, (
            f"Run '{saved.run_id}' was trained with the build {before.env_path}, which is not started unasked: start "
            f"it again with --env={before.env_path}, or press Play in the Unity Editor or attach a simulator."
        )
    kept = before.model_dump(mode="json", include={"env_path", "env_args", "num_envs"})
    return kept, f"Run '{saved.run_id}' keeps its environment, {before.env_path}; --env names another."


def _registered(env: str) -> str | Callable[..., Any]:
    """The environment of a text that is an id of Gymnasium or of a known library; else the text."""
    name = env.rpartition(":")[2]
    library = library_of(name) if re.search(r"-v\d+$", name) else None
    if library is not None and env == f"{library.module}:{name}":
        return f"{library.scheme}:{env}"
    if ":" in env or Path(env).exists():
        return env
    try:
        import gymnasium
    except ModuleNotFoundError:
        return env
    if env not in gymnasium.registry:
        return env if library is None else f"{library.scheme}:{env}"
    spec = gymnasium.registry[env]
    if str(spec.entry_point).startswith("gymnasium."):
        return f"gym:{env}"
    # Other processes do not know it, unless it is sent to them. The checker refuses lists of spaces.
    make = partial(gymnasium.make, env, disable_env_checker=True)
    make.__name__ = env  # type: ignore[attr-defined]
    return make


def _as_json(env_kwargs: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(env_kwargs))
    except (TypeError, ValueError) as error:
        raise UserError(f"env_kwargs: expected what JSON can say, got {env_kwargs!r:.200}: {error}") from None
