"""The command ``relay``: simulators on this machine for a trainer on another."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from trainer_service.commands.common.command import Flag, Settings
from trainer_service.commands.common.output import note, say
from trainer_service.commands.common.run_arguments import SETTINGS
from trainer_service.commands.common.settings import nested
from trainer_service.config import load_run_options
from trainer_service.errors import UserError
from trainer_service.running.collection.launching import bridge_settings, command_of
from trainer_service.running.metrics.console import Console
from unity_bridge.relay.relay import Relay
from unity_bridge.remote.dialing import PlainConnection, TrainerConnection
from unity_bridge.remote.join_code import JOIN_VARIABLE, JoinCode, split_address
from unity_bridge.simulators.client import terminate_like_ctrl_c
from unity_bridge.transport.endpoint import is_loopback
from unity_bridge.transport.ports import port_number


def relay_simulators(
    *,
    join: Annotated[str | None, Flag(
        "the join code that the trainer prints; without CODE that in TRAINER_SERVICE_JOIN", "CODE", nargs="?", const=""
        )] = None,
    address: Annotated[str | None, Flag(
        "the trainer's address, if not one of the code's; without a code only an address of this machine", "HOST:PORT"
        )] = None,
    port: Annotated[int, Flag("where the Editor attaches (default 5004)", "PORT", type=port_number)] = 5004,
    run_logs: Annotated[Path | None, Flag("keep the simulators' output there", "DIR")] = None,
    **settings: Annotated[Any, Settings(
        "env_path", "num_envs", "base_port", "timeout_wait", "max_lifetime_restarts", "restarts_rate_limit_n",
        "restarts_rate_limit_period_s", "no_graphics", "no_graphics_monitor", "env_args")],
) -> None:  # fmt: skip
    """Starts simulators on this machine, or waits for the Unity Editor, and carries their messages to a trainer on
    another machine (docs/remote.md).
    """
    options = load_run_options(None, nested(settings, SETTINGS)).options
    trainer, connect = _trainer(join, address)
    os.environ.pop(JOIN_VARIABLE, None)  # a secret, which no simulator needs
    command = command_of(options)
    # What the trainer tells its simulators is the trainer's: only how they are started and watched is decided here.
    how = bridge_settings(options, run_logs, lambda simulator: ())
    # The trainer hears a goodbye.
    with Console(tty=False, stream=sys.stderr), terminate_like_ctrl_c(), Relay(how, connect) as relay:
        if command is not None:
            relay.launch(command, options.env_settings.num_envs)
            say(f"Relaying {options.env_settings.num_envs} x {command.env} to {trainer}")
        else:
            attached = relay.listen(port)
            say(f"Relaying what attaches to port {attached} to {trainer}. Press Play in the Unity Editor.")
        relay.run()
    note("The trainer ended all conversations.")


def _trainer(join: str | None, address: str | None) -> tuple[str, Callable[[], PlainConnection]]:
    """Returns the trainer's name in messages, and the function that makes a connection to it."""
    if join is not None or address is None:
        code = JoinCode.given(join or "")
        return address or ", ".join(code.addresses), lambda: TrainerConnection(code, address)
    if not is_loopback(split_address(address)[0]):
        raise UserError(
            f"--address {address}: expected --join beside an address of another machine; without a code nothing is "
            "encrypted, which is for this machine and tunnels of ssh"
        )
    return address, lambda: PlainConnection(address)
