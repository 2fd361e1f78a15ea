"""The command ``suggest``: a configuration for an environment."""

from __future__ import annotations

import sys
from typing import Annotated, Any

from trainer_service.commands.common.command import Flag, Settings
from trainer_service.commands.common.output import say
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.commands.suggest.start import look_at
from trainer_service.config import load_run_options
from trainer_service.running.collection.attach_port import AttachPort
from trainer_service.running.metrics.console import Console
from unity_bridge.transport.ports import port_number


def print_suggestion(
    *,
    host: Annotated[str, Flag("where a simulator attaches (default 127.0.0.1)", "ADDRESS")] = "127.0.0.1",
    port: Annotated[int, Flag("the port for that (default 5004)", "PORT", type=port_number)] = 5004,
    **settings: Annotated[Any, Settings(
        "env_path", "num_areas", "isolate", "picture_layout", "timeout_wait", "time_scale", "no_graphics", "env_args")],
) -> None:  # fmt: skip
    """Plays an environment at random for a moment, and prints a configuration that suits it: the reason for each value
    is a comment. Without --env a simulator may attach.
    """
    options = load_run_options(None, nested(settings, SETTINGS)).options
    # Everything on the way goes to standard error: standard output is for the result.
    with Console(tty=False, stream=sys.stderr):
        suggestion = look_at(options, None, AttachPort(host=host, port=port))
    say(suggestion.to_yaml().rstrip("\n"))
