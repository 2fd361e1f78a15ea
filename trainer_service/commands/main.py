"""The command line: ``mlagents-style COMMAND …``."""

from __future__ import annotations

import atexit
import errno
import gc
import os
import pkgutil
import sys
from collections.abc import Sequence
from contextlib import nullcontext

from trainer_service.commands.common.command import call
from trainer_service.commands.common.output import print_error, say, silence_output
from trainer_service.commands.parser import BY_HAND, COMMANDS, build_parser, overview
from trainer_service.errors import UserError
from unity_bridge.errors import (
    BridgeError,
    DeclarationError,
    DemonstrationError,
    LaunchError,
    PluginError,
    PortInUse,
    RemoteError,
)
from unity_bridge.plugins import SWITCH
from unity_bridge.process_guard import collect_garbage_seldom
from unity_bridge.unblocked_output import open_standard_streams, unblocked_standard_streams
from unity_bridge.untrusted_text import quoted

_OF_THE_USER = (errno.ENAMETOOLONG, errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT)
"""Errors of the system that say enough: about names, permissions and disks."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command. Returns the exit code: 0 success, 1 a simulator failed, 2 something that the user can mend."""
    open_standard_streams()
    _limit_spinning()
    # pygame would take SIGTERM for the close button of a window.
    os.environ.setdefault("SDL_NO_SIGNAL_HANDLERS", "1")
    if sys.platform == "linux" and not {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        # Without a screen pygame writes errors beside its pictures.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    collect_garbage_seldom()
    atexit.register(gc.freeze)  # torch is a second's work to collect, for a process that ends anyway
    if not (sys.argv[1:] if arguments is None else arguments):
        say("\n".join(overview()))
        return 0
    parsed, unknown = build_parser().parse_known_args(arguments)
    if parsed.command == "simulate":  # its own parser reads all that follows
        parsed.rest, unknown = [*unknown, *parsed.rest], []
    if unknown:
        parsed.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    if getattr(parsed, "no_plugins", False):
        os.environ[SWITCH] = "off"  # simulators and workers, which are processes of their own, inherit it
    place, _ = COMMANDS[parsed.command]
    # A result waits for its reader, as everywhere; a run waits for nobody.
    with unblocked_standard_streams() if parsed.command == "learn" else nullcontext():
        try:
            command = pkgutil.resolve_name(f"trainer_service.commands.{place}")
            return int(command(parsed)) if parsed.command in BY_HAND else call(command, parsed)
        except (Exception, KeyboardInterrupt) as error:
            return _exit_code(error)


def _exit_code(error: BaseException) -> int:
    """Prints an error of a command for users, and returns the exit code. Raises any other error again."""
    match error:
        case UserError():
            print_error(str(error))
            return error.exit_code
        case (
            DeclarationError()
            | LaunchError()
            | PortInUse()
            | DemonstrationError()
            | PluginError()
            | RemoteError()
        ):
            print_error(str(error))
            return 2
        case BridgeError():
            print_error(str(error))
            return 1
        case BrokenPipeError():
            silence_output()  # the reader of our output is gone (`… | head`)
            return 1
        case OSError(errno=number) if number in _OF_THE_USER:
            name = "" if error.filename is None else f": {quoted(str(error.filename))}"
            print_error(f"{error.strerror}{name}")
            return 2
        case KeyboardInterrupt():
            print_error("interrupted")
            return 130
    raise error


def _limit_spinning() -> None:
    """Lets torch's threads wait for each other by spinning, but not for long. Counts when torch is loaded later.

    They wait in vain where another run, or a simulator, has a core that they count on: without a limit two threads
    then take several times longer than one. If they never spin, the second one gains nothing on a free machine.
    """
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", "1000")


if __name__ == "__main__":
    sys.exit(main())
