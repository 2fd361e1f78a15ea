"""Configurations suggested for an environment, from a program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from trainer_service.commands.common.environments import EnvironmentLike, environment_for
from trainer_service.commands.common.run_arguments import SETTINGS, RunArguments
from trainer_service.commands.common.settings import nested, require_known
from trainer_service.commands.suggest.start import look_at
from trainer_service.config import load_run_options
from trainer_service.running.collection.attach_port import EDITOR_PORT, AttachPort


def suggest(
    env: EnvironmentLike | None = None,
    *,
    env_args: Sequence[str] | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    host: str = "127.0.0.1",
    port: int = EDITOR_PORT,
    **settings: Unpack[RunArguments],
) -> str:
    """Suggests a configuration for an environment, as ``mlagents-style suggest`` does. Nothing is trained.

    The environment plays at random for at most 2000 messages, or about half a minute. Its spaces, agents, episodes and
    rewards decide.

    Args:
        env, env_args, env_kwargs: as for ``train``. Without ``env`` a simulator may attach at ``host`` and ``port``.
        host, port: where it may attach. Beyond this machine the port has TLS and a token, as in ``train``.
        settings: of the simulator, as for ``train``, such as ``no_graphics`` and ``timeout_wait``.

    Returns:
        A configuration as YAML, with the reason for each choice as a comment.

    Raises:
        UserError: the environment has no agents, or something in the arguments cannot be used.
        BridgeError: the simulator could not be started, or failed.
    """
    require_known(settings, RunArguments.__annotations__, "suggest")
    environment = environment_for(env, env_kwargs=env_kwargs, env_args=env_args)
    overrides = nested({**settings, "env_path": environment.env_path}, SETTINGS)
    options = environment.applied_to(load_run_options(None, overrides).options)
    return look_at(options, environment.given, AttachPort(host=host, port=port)).to_yaml()
