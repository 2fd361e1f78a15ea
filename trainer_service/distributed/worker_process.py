"""The process of a rollout worker. It returns records, and never raises this package's exceptions.

It reports its machine before it loads large modules. So the trainer can distinguish a worker that waits for a place
from a slow one.
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
"""Kinds of plugins that workers use. The trainer uses the other kinds."""


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """The reason why a worker cannot continue."""

    kind: Literal["user", "launch", "simulators", "internal"]
    """``user`` and ``launch``: an invalid configuration or program. ``simulators``: they were lost. ``internal``: an
    unexpected exception."""

    message: str

    traceback: str = ""
    """The traceback of an unexpected exception."""


class WorkerProcess:
    """A rollout worker in its own process."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._worker: RolloutWorker | None = None
        self._watchdog: Watchdog | None = None

    def place(self, plugins: Mapping[str, str]) -> str | WorkerFailure:
        """Returns the machine's name, or a failure if it lacks plugins that the run's objects need.

        plugins: of the run, by name, each with its distribution and version.
        """
        host = socket.gethostname()
        needed = {name: source for name, source in plugins.items() if name.startswith(_NEEDED)}
        if missing := missing_plugins(needed):
            listed = "; ".join(f"{name} {text}" for name, text in missing.items())
            return WorkerFailure("user", f"a plugin is missing on {host}: {listed}")
        return host

    def start(self, options: RunOptions, folder: str | None, directory: str) -> WorkerFailure | None:
        """Starts the simulators. Returns a failure, or None.

        Args:
            options: of the run, with its seed.
            folder: of the run, for the simulators' output if this machine has it.
            directory: where the run was started, which may contain user environments.
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
        """Ends the simulators and this process. If the raylet has ended, no other process does so."""
        try:
            if self._worker is not None:
                self._worker.close()
            if self._watchdog is not None:
                self._watchdog.watch(running_groups())
        finally:
            os._exit(0)


def failure_of(error: Exception) -> WorkerFailure:
    """Converts an exception in a worker to a failure for the trainer."""
    if isinstance(error, UserError | PluginError | DeclarationError):
        return WorkerFailure("user", str(error))
    if isinstance(error, LaunchError | PortInUse):
        return WorkerFailure("launch", str(error))
    if isinstance(error, BridgeError):
        return WorkerFailure("simulators", str(error))
    last = traceback.format_exception_only(error)[-1].strip()
    return WorkerFailure("internal", last, "".join(traceback.format_exception(error)))
