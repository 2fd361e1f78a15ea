"""The environment of a run as a program says it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_service.config import RunOptions
from trainer_service.errors import UserError
from unity_bridge.programs.executables import Command, resolve_program


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Where agents are to live; nothing is started yet."""

    env_path: str | None = None
    """As ``--env`` says it; None leaves it to the configuration."""

    env_args: tuple[str, ...] | None = None
    """Arguments of the simulator; None leaves them to the configuration."""

    env_kwargs: Mapping[str, Any] | None = None
    """Arguments of the environment that the simulator hosts."""

    def arguments(self, configured: Sequence[str] | None) -> tuple[str, ...]:
        """The simulator's arguments, where a configuration has these."""
        own = tuple(configured or ()) if self.env_args is None else self.env_args
        return own if self.env_kwargs is None else (*own, "--env-kwargs", _as_json(self.env_kwargs))

    def program(self, trained_with: RunOptions, run_id: str) -> Command:
        """The program to score or record a run's policies on.

        Raises:
            UserError: it is not known where to play.
            LaunchError: there is no such program.
        """
        before, engine = trained_with.env_settings, trained_with.engine_settings
        env = self.env_path or before.env_path
        if env is None:
            raise UserError(
                f"run '{run_id}' was trained by simulators that attached; say what to evaluate on with --env (env= in "
                "Python)"
            )
        same = env == before.env_path  # then it gets the arguments that it had while training
        return resolve_program(
            env,
            self.arguments(before.env_args if same else None),
            no_graphics=engine.no_graphics,
            no_graphics_monitor=engine.no_graphics_monitor,
        )


def environment_for(
    env: str | os.PathLike[str] | None,
    *,
    env_kwargs: Mapping[str, Any] | None = None,
    env_args: Sequence[str] | None = None,
) -> Environment:
    """What ``env`` stands for.

    Args:
        env: as for ``--env``; None leaves it to the configuration.
        env_kwargs: arguments of the environment that the simulator hosts.
        env_args: arguments of the simulator, as after ``--env-args``.

    Raises:
        UserError: it is none of these.
    """
    if isinstance(env_args, str):
        raise UserError(f"env_args: expected a list of texts, got '{env_args}'")
    return Environment(
        env_path=None if env is None else os.fspath(env),
        env_args=None if env_args is None else tuple(map(str, env_args)),
        env_kwargs=env_kwargs,
    )


def _as_json(env_kwargs: Mapping[str, Any]) -> str:
    try:
        return json.dumps(dict(env_kwargs))
    except (TypeError, ValueError) as error:
        raise UserError(f"env_kwargs: expected what JSON can say, got {env_kwargs!r:.200}: {error}") from None
