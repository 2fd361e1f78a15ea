"""Runs whose policies are served, and the newer checkpoints that a run saves meanwhile."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from trainer_service.errors import UserError
from trainer_service.running.policy import Policy, by_behavior, chosen_checkpoints
from trainer_service.running.serving.served_policy import ServedPolicy
from unity_bridge.serving.messages import CallRefused, PolicyAnswer, PolicyRequest
from unity_bridge.throttled_logger import ThrottledLogger

LOOK_S = 1.0
"""Seconds between two looks for newer checkpoints."""

_throttled = ThrottledLogger(logging.getLogger(__name__))
_T = TypeVar("_T")


class ServedRun:
    """The policies of one run, by behavior."""

    def __init__(
        self, folder: Path, which: str, load: Callable[[Path], Policy], limits: tuple[int, float]
    ) -> None:
        """Loads them. Raises UserError where a checkpoint is missing or damaged.

        Args:
            folder: of the run.
            which: the checkpoints, see ``chosen_checkpoints``.
            load: reads a checkpoint.
            limits: the number and the age in seconds of callers' memories.
        """
        self._folder, self._which, self._load, self._limits = folder, which, load, limits
        self._seen: Mapping[Path, int] = {}
        self.policies: dict[str, ServedPolicy] = {}
        self._use(self._newer())

    def _newer(self) -> Mapping[str, Policy]:
        """The policies, if they were saved since the last call; else none."""
        paths = chosen_checkpoints(self._folder, self._which)
        times = {path: path.stat().st_mtime_ns for path in paths.values()}
        if times == self._seen:
            return {}
        policies = by_behavior({name: self._load(path) for name, path in paths.items()})
        self._seen = times
        return policies

    def _use(self, policies: Mapping[str, Policy]) -> None:
        for name, policy in policies.items():
            if name in self.policies:
                self.policies[name].replace(policy)
            else:
                self.policies[name] = ServedPolicy(policy, *self._limits)

    async def follow(self) -> None:
        """Uses newer policies, if there are any. Reads them beside the calls."""
        try:
            self._use(await asyncio.to_thread(self._newer))
        except (UserError, OSError) as error:  # it is being saved, or cannot be used
            _throttled.log(self._folder, f"The policies of '{self._folder}' stay as they are: {error}")


async def act(runs: Mapping[str, ServedRun], request: PolicyRequest) -> PolicyAnswer:
    """Decides. Raises CallRefused for a request that does not fit."""
    run = _named("run", request.run, runs)
    return await _named("behavior", request.behavior, run.policies).act(request)


async def watch(runs: Mapping[str, ServedRun], *, follow: bool) -> None:
    """Forgets silent callers, and uses newer policies if ``follow`` is true, until it is cancelled."""
    while True:
        await asyncio.sleep(LOOK_S)
        for run in runs.values():
            for served in run.policies.values():
                served.memories.forget_silent()
            if follow:
                await run.follow()


def _named(what: str, name: str, known: Mapping[str, _T]) -> _T:
    """Returns the run or behavior of a name; the only one for an empty name."""
    if not name and len(known) == 1:
        return next(iter(known.values()))
    if name in known:
        return known[name]
    wanted = f"no {what} '{name}'" if name else f"one of several {what}s must be named"
    raise CallRefused(
        f"{what}: {wanted}; served are {', '.join(known)}", "NOT_FOUND" if name else "INVALID_ARGUMENT"
    )
