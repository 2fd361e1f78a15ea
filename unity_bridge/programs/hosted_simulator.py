"""A bundled simulator in this process: the conversation of one in a process of its own, without a socket."""

from __future__ import annotations

import faulthandler
import logging
import sys
import threading
import traceback
from collections.abc import Generator
from functools import partial
from pathlib import Path
from typing import Literal

from unity_bridge.errors import LaunchError, SimulatorLost
from unity_bridge.fast_paths import fast_paths_allowed
from unity_bridge.process_guard import HostedExit, ProcessGuard
from unity_bridge.programs.executables import Command
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.schemes import scheme_of
from unity_bridge.simulators.third_party import users_traceback
from unity_bridge.simulators.wait_notice import WaitNotice
from unity_bridge.steps import Actions, Steps
from unity_bridge.transport.endpoint import Call
from unity_bridge.transport.inbox import Inbox

Messages = Generator[bytes | Steps, bytes | Actions | None, None]

LOGGER = logging.getLogger(__name__)

_PACKAGE = str(Path(__file__).parents[1])

Isolate = bool | Literal["auto"]
"""Whether bundled simulators get processes of their own; ``auto`` is true where something speaks for it."""


def is_isolated(command: Command, count: int, isolate: Isolate) -> bool:
    """Whether ``count`` simulators of a program are to get processes of their own.

    Raises:
        LaunchError: ``isolate`` is false for a program that cannot run in this process.
    """
    if isolate is True:
        return True
    arguments = " ".join(command.arguments)
    reason = ""
    if not command.is_bundled:
        reason = "it is a program"
    elif "--vector" in arguments and "async" in arguments:
        reason = "--vector async copies the process"
    if reason and isolate is False:
        raise LaunchError(f"env '{command.env}': isolate is false, but {reason}: expected true or auto")
    if reason or isolate is False:
        return bool(reason)
    scheme = scheme_of(command.env)
    opens_window = "--record" in arguments or '"human"' in arguments
    return count > 1 or opens_window or scheme is None or scheme.is_isolated


class HostedSimulator:
    """A simulator in this process, used instead of an endpoint.

    It runs when the reader of the inbox needs the next message. Errors of its environment pass through the reader, so a
    debugger and tracebacks show its frames. A guard keeps what it changes in its process from the trainer.
    """

    port = 0

    def __init__(self, command: Command, name: str, inbox: Inbox, *, patience_s: float) -> None:
        """
        Args:
            command: a bundled simulator.
            name: by which messages call it; no other simulator of the inbox has it.
            inbox: receives its messages, and runs it.
            patience_s: how long a step may take before a warning says where it is.
        """
        self.command = command
        self.peer = name
        self.has_stepped = False
        self._inbox = inbox
        self._guard = ProcessGuard()
        self._messages: Messages | None = _messages_of(command)
        self._may_respond = False
        self._thread = 0
        self._notice = WaitNotice(self._warn_of_wait, patience_s)
        self._notice.__enter__()
        if not faulthandler.is_enabled() and sys.__stderr__ is not None:
            # A crash in C code is reported with its line.
            faulthandler.enable(sys.__stderr__, all_threads=False)
        inbox.when_handled(partial(self._run, None))

    def close(self) -> None:
        """Closes the environment, unless the conversation has ended."""
        messages, self._messages = self._messages, None
        self._notice.__exit__(None, None, None)
        if messages is None:
            return
        try:
            self._guard.call(messages.close)
        except Exception as error:
            LOGGER.warning("%s: closing it raised %s: %s", self.peer, type(error).__name__, error)

    def _respond(self, response: bytes | Actions | str | None) -> None:
        """Continues with an answer when the reader comes for the next message. Anything else ends the conversation."""
        if not self._may_respond:
            return
        self._may_respond = False
        if response is None or isinstance(response, str):
            self.close()
        else:
            self._inbox.when_handled(partial(self._run, response))

    def _run(self, reply: bytes | Actions | None) -> None:
        """Runs the simulator until its next message.

        Raises:
            LaunchError: it failed before its first step.
            SimulatorLost: it failed later.
        """
        if self._messages is None:
            return
        self._thread = threading.get_ident()
        self._notice.begin()
        try:
            message = self._guard.call(self._messages.send, reply)
        except StopIteration:
            self.close()
            return
        except Exception as error:
            self.close()
            raise self._failure(error) from error
        finally:
            self._notice.end()
        self._may_respond = True
        self._inbox.put(Call(self, self.peer, message, self._respond))

    def _failure(self, error: BaseException) -> LaunchError | SimulatorLost:
        is_told = isinstance(error, SceneError | HostedExit)
        text = str(error) if is_told else f"{type(error).__name__}: {error}"
        lines = users_traceback(error).splitlines()
        shown = "".join(f"\n  {line}" for line in lines)
        kind = SimulatorLost if self.has_stepped else LaunchError
        return kind(f"{self.peer}: {text}" + (f"; its traceback:{shown}" if shown else ""))

    def _warn_of_wait(self, waited_s: float) -> None:
        frame = sys._current_frames().get(self._thread)
        stack = traceback.extract_stack(frame)
        if any(each.filename.endswith(("bdb.py", "pdb.py")) for each in stack):
            return  # a person looks at it
        ours = [i for i, each in enumerate(stack) if each.filename.startswith(_PACKAGE)]
        where = "".join(traceback.format_list(stack[ours[-1] if ours else 0 :]))
        LOGGER.warning(
            "%s has not returned for %.0f s. No other simulator is served meanwhile, and it cannot be ended from "
            "here: Ctrl-C twice ends the run, and --isolate runs it in a process of its own. It is at:\n%s",
            self.peer, waited_s, where,
        )  # fmt: skip


def _messages_of(command: Command) -> Messages:
    """The messages of a bundled simulator, opened by the first ``next``."""
    from unity_bridge.simulators import command as simulator  # imports every scene
    from unity_bridge.simulators.conversation import conversation
    from unity_bridge.simulators.registry import open_scene

    arguments = simulator.parse([command.env, *command.arguments])
    academy = simulator.academy_for(arguments)
    opener = open_scene if command.environment is None else command.environment.open
    with simulator.opened(arguments, academy, opener) as (scene, watch):
        yield from conversation(
            scene,
            seed=arguments.seed,
            episodes=arguments.episodes,
            watch=watch,
            academy=academy,
            as_records=fast_paths_allowed(),
        )
