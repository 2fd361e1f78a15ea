"""Tells who trains one agent at a time that the time goes into messages, and what to do about it."""

from __future__ import annotations

from typing import NamedTuple

from trainer_service.metrics.timers import Timers

_WINDOW_S = 20.0
_LARGE_SHARE = 0.5
_FEW_AGENTS = 2.0
_QUICK_EXCHANGE_S = 0.01
"""What takes longer is the simulator's own work, which copies in one process would only do one after the other."""

_COPIES = {
    "gym": "--env-args --agents 8",
    "pettingzoo": "--env-args --copies 8",
    "sim": "--env-args --agents 8",
}


class ExchangeHint:
    """Measures how much of the time goes into exchanges, and with how many agents, in windows of 20 s and more.

    A window ends with the first look after an update, so that learning has its share in it.
    """

    def __init__(self, timers: Timers, env: str | None, num_envs: int) -> None:
        """timers: of the loop; env: as the user wrote it, None where simulators attach; num_envs: how many run."""
        self._timers = timers
        self._env = env
        self._num_envs = num_envs
        self._before: _Mark | None = None
        self._told = False

    def look(self, now: float, steps: int) -> str:
        """What there is to say, once; empty if there is nothing.

        Args:
            now: in seconds.
            steps: agent steps of all behaviors.
        """
        if self._told or self._env is None:
            return ""
        receive, reply = self._timers.spent("receive"), self._timers.spent("reply")
        updates, passes = self._timers.spent("update")[1], self._timers.spent("act")[1]
        mark = _Mark(now, steps, receive[0] + reply[0], passes, updates)
        before = self._before = self._before or mark
        if now - before.at_s < _WINDOW_S or updates == before.updates or passes == before.passes:
            return ""
        self._before = mark
        share = (mark.exchanging_s - before.exchanging_s) / (now - before.at_s)
        agents = (steps - before.steps) / (passes - before.passes)
        if share < _LARGE_SHARE or agents > _FEW_AGENTS:
            return ""
        self._told = True
        exchange_s = (mark.exchanging_s - before.exchanging_s) / (passes - before.passes)
        return (
            f"{share:.0%} of the time goes into exchanges with the simulator, {agents:.1f} agents at a time. "
            f"Faster: {self._advice(exchange_s)}"
        )

    def _advice(self, exchange_s: float) -> str:
        more = f"--num-envs={2 * self._num_envs} (simulators beside each other)"
        if exchange_s > _QUICK_EXCHANGE_S:
            return more
        copies = _COPIES.get((self._env or "").partition(":")[0])
        together = f"{copies} (copies that share an exchange)" if copies else "more agents in the scene"
        return f"{together}, or {more}"


class _Mark(NamedTuple):
    """What was measured until some time."""

    at_s: float
    steps: int
    exchanging_s: float
    passes: int
    """Forward passes that decided for all who waited."""
    updates: int
