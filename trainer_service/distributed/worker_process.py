"""The process of a rollout worker: it answers with records, and never with exceptions of ours.

It says where it runs before it loads anything large: so a worker that waits for a place is told from one that is slow.
"""

from __future__ import annotations

import os
import socket
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from trainer_service.config import RunOptions, missing_plugins
from trainer_service.errors import UserError
from unity_bridge.errors import BridgeError, DeclarationError, LaunchError, PluginError, PortInUse
from unity_bridge.programs.program import running_groups
from unity_bridge.programs.watchdog import Watchdog

if TYPE_CHECKING:
    from trainer_service.distributed.records import CollectionQuota, SampleRequest, SampleResult
    from trainer_service.distributed.worker import RolloutWorker

_NEEDED = ("algorithms.", "encoders.", "reward_signals.", "simulators.")
"""Kinds of plugins that workers have a use for; the others are the trainer's own."""


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """Why a worker cannot go on."""

    kind: Literal["user", "launch", "simulators", "internal"]
    """``user`` and ``launch``: a configuration or a program that does not work. ``simulators``: they are gone.
    ``internal``: an exception that nobody expected."""

    message: str

    traceback: str = ""
    """Where an exception that nobody expected came from."""


class WorkerProcess:
    """A rollout worker in a process of its own."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._worker: RolloutWorker | None = None
        self._watchdog: Watchdog | None = None

    def place(self, plugins: Mapping[str, str]) -> str | WorkerFailure:
        """The name of the machine, or why the run cannot be there: without its plugins nothing of it can be unpacked.

        plugins: of the run, by name, each with its distribution and version.
        """
        host = socket.gethostname()
        needed = {name: source for name, source in plugins.items() if name.startswith(_NEEDED)}
        if missing := missing_plugins(needed):
            listed = "; ".join(f"{name} {text}" for name, text in missing.items())
            return WorkerFailure("user", f"a plugin is missing on {host}: {listed}")
        return host

    def start(self, options: RunOptions, folder: str | None, directory: str) -> WorkerFailure | None:
        """Starts the simulators. Returns why it could not.

        Args:
            options: of the run, with its seed.
            folder: of the run, where its simulators' output goes if this machine has it.
            directory: where the run was started: environments of users may be there.
        """
        try:
            import torch

            from trainer_service.distributed.worker import RolloutWorker

            self._watchdog = Watchdog()

            torch.set_num_threads(1)
            with suppress(OSError):
                os.chdir(directory)
            run_logs = None
            if folder is not None and Path(folder).is_dir():
                run_logs = Path(folder) / "run_logs" / f"worker-{self._number}"
            self._worker = RolloutWorker(self._number, options, run_logs)
            self._worker.start()
            self._watchdog.watch(running_groups())
        except Exception as error:
            return failure_of(error)
        return None

    def collect(
        self, request: SampleRequest | None, quota: CollectionQuota | None
    ) -> SampleResult | WorkerFailure:
        """Collects; see ``RolloutWorker.collect``."""
        try:
            if self._worker is None:
                raise RuntimeError("a worker that was not started cannot collect")
            result = self._worker.collect(request, quota)
            if self._watchdog is not None:
                self._watchdog.watch(running_groups())
            return result
        except Exception as error:
            return failure_of(error)

    def leave(self) -> None:
        """Ends the simulators, and this process: where a raylet is gone, nobody else does."""
        try:
            if self._worker is not None:
                self._worker.close()
            if self._watchdog is not None:
                self._watchdog.watch(running_groups())
        finally:
            os._exit(0)


def failure_of(error: Exception) -> WorkerFailure:
    """What the trainer hears of an exception in a worker."""
    if isinstance(error, UserError | PluginError | DeclarationError):
        return WorkerFailure("user", str(error))
    if isinstance(error, LaunchError | PortInUse):
        return WorkerFailure("launch", str(error))
    if isinstance(error, BridgeError):
        return WorkerFailure("simulators", str(error))
    last = traceback.format_exception_only(error)[-1].strip()
    return WorkerFailure("internal", last, "".join(traceback.format_exception(error)))
