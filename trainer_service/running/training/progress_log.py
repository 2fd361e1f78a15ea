"""Lines on how far a run is, logged whenever nothing else was for a while: its activity, and the remaining time."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.metrics import Summary, SummaryWriter, format_duration, format_return
from trainer_service.running.metrics.console import Console
from trainer_service.running.metrics.timers import Timers
from unity_bridge.simulators.registry import copies_of

SILENCE_S = 30.0
"""Seconds without a line on a behavior after which there is one, whatever ``summary_freq`` is."""

UPDATE_INTERVAL_S = 0.5
"""Seconds between two updates of the display."""

FORECAST_S = 300.0
"""Seconds between forecasts of how long the run will take, also where summaries come all the time; the first comes
after a fifth of it."""

_LEAST_S = 5.0
"""Seconds that a behavior must have been there before its speed is logged."""

_WINDOW_S = 20.0
_LARGE_SHARE = 0.5
_FEW_AGENTS = 2.0
_QUICK_EXCHANGE_S = 0.01
"""Seconds of an exchange above which the time is the simulator's own work, which copies in one process would do one
after the other."""

_logger = logging.getLogger(__name__)


class ProgressLog(SummaryWriter):
    """Progress of a run, twice a second in the table of a terminal, elsewhere in a line now and then.

    Everything happens in the calls, in the thread of the run. Those in between cost a look at the clock. It is a
    summary writer, too, and so knows when a behavior had its line.
    """

    def __init__(
        self,
        console: Console,
        hint: Callable[[float, int], str] = lambda now, steps: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            console: where to show it.
            hint: given the time and all agent steps; its result is logged, unless it is empty.
            clock: in seconds.
        """
        self._hint = hint
        self._console = console
        self._clock = clock
        self._next_update_s = 0.0
        self._first: dict[str, _Mark] = {}
        self._last_logged: dict[str, _Mark] = {}
        """The step of each behavior at its last line."""
        self._last_line_s = clock()
        """Time of the last line of any kind."""
        self._forecast_s = self._last_line_s + FORECAST_S / 5
        """Time of the next forecast of how long the run will take."""

    def update(self, behaviors: Mapping[str, Behavior]) -> None:
        """Shows progress where that is due. Call it at every tick."""
        now = self._clock()
        if now < self._next_update_s:
            return
        self._next_update_s = now + UPDATE_INTERVAL_S
        if not behaviors:
            self._log_if_silent(now, "Waiting for the first step of a simulator.")
            return
        collecting: list[str] = []
        for each in behaviors.values():
            self._first.setdefault(each.name, _Mark(each.step, now, each.episodes))
            last = self._last_logged.setdefault(each.name, _Mark(each.step, now))
            self._console.progress(
                each.name, each.step, each.step + round(steps_left(each)), each.steps_per_s
            )
            if parts := list(filter(None, (_episode_budget(each), _collected(each)))):
                collecting.append(f"{each.name}: {', '.join(parts)}")
            if now - last.at_s >= SILENCE_S:
                self._log_behavior(each, last, now)
        if advice := self._hint(now, sum(each.step for each in behaviors.values() if each.training)):
            _logger.info("%s", advice)
        left_s = [left for each in behaviors.values() if (left := self._remaining_s(each, now)) is not None]
        forecast = [f"About {format_duration(max(left_s))} left"] if left_s else []
        if forecast and now >= self._forecast_s:
            self._forecast_s = now + FORECAST_S
            if not self._console.has_table:
                _logger.info("%s.", forecast[0])
        self._console.activity(". ".join([*forecast, *collecting]))

    def updating(self, behavior: str, minibatch: int, of: int) -> None:
        """Shows the progress of an update. Call it before every minibatch."""
        self._during(lambda: f"{behavior}. Updating: minibatch {minibatch + 1} of {of}")

    def evaluating(self, episodes: int, of: int) -> None:
        """Shows the progress of an evaluation. Call it now and then while episodes are played."""
        self._during(lambda: f"Evaluating: {episodes} of {of} episodes")

    def write(self, summary: Summary) -> None:
        """Notes that a behavior had its summary."""
        self._last_line_s = self._clock()
        self._last_logged[summary.behavior] = _Mark(summary.step, self._last_line_s)

    def forget(self, behavior: str) -> None:
        """Forgets since when a behavior is there."""
        self._first.pop(behavior, None)
        self._last_logged.pop(behavior, None)

    def _during(self, text: Callable[[], str]) -> None:
        now = self._clock()
        if now < self._next_update_s:
            return
        self._next_update_s = now + UPDATE_INTERVAL_S
        self._console.activity(text())
        self._log_if_silent(now, f"{text()}.")

    def _log_if_silent(self, now: float, line: str) -> None:
        """Logs a line that is no news, if there was no other for long."""
        if now - self._last_line_s >= SILENCE_S:
            self._last_line_s = now
            if not self._console.has_table:
                _logger.info("%s", line)

    def _log_behavior(self, behavior: Behavior, before: _Mark, now: float) -> None:
        """Logs how far a behavior is."""
        self._last_logged[behavior.name] = _Mark(behavior.step, now)
        partial_summary = behavior.partial_summary(wall_s=now)
        if partial_summary.stats.episodes:
            self._console.summary(partial_summary, behavior.settings.max_steps)
        if self._console.has_table:
            return
        self._last_line_s = now
        parts = [behavior.name, _steps(behavior)]
        if behavior.step == before.step:
            parts.append(f"No step for {format_duration(now - before.at_s)}")
        elif (rate := self._rate(behavior, now)) is not None:
            left = self._remaining_s(behavior, now)
            about = "" if left is None else f", about {format_duration(left)} left"
            self._forecast_s = now + FORECAST_S
            parts.append(f"{rate:,.{0 if rate >= 10 else 1}f} steps/s{about}")
        parts += _episodes(partial_summary)
        if collected := _collected(behavior):
            parts.append(f"Collected {collected}")
        _logger.info("%s.", ". ".join(parts))

    def _rate(self, behavior: Behavior, now: float) -> float | None:
        """Agent steps per second since it showed up, updates included."""
        first = self._first.get(behavior.name)
        if first is None or now - first.at_s < _LEAST_S or behavior.step <= first.step:
            return None
        return (behavior.step - first.step) / (now - first.at_s)

    def _remaining_s(self, behavior: Behavior, now: float) -> float | None:
        """Seconds until a behavior's budget is used; None where there is none, or that is unknown."""
        rate = self._rate(behavior, now)
        if rate is None or not behavior.training:
            return None
        left_s = steps_left(behavior) / rate
        most, first = behavior.settings.max_episodes, self._first[behavior.name]
        if most is None or behavior.episodes == first.episodes:
            return left_s
        episode_s = (now - first.at_s) / (behavior.episodes - first.episodes)
        return min(left_s, (most - behavior.episodes) * episode_s)


class _Mark(NamedTuple):
    """The step of a behavior at some time."""

    step: int
    at_s: float
    episodes: int = 0


def steps_left(behavior: Behavior) -> float:
    """Agent steps until a budget of steps is used up, at the present ratio of agent to environment steps."""
    left, env = behavior.settings.max_steps - behavior.step, behavior.env_steps
    if env.budget is None or not env.taken:
        return left
    return min(left, (env.budget - env.taken) * behavior.step / env.taken)


def _steps(behavior: Behavior) -> str:
    if not behavior.training:
        return f"{behavior.step:,} steps, not training"
    most, env = behavior.settings.max_steps, behavior.env_steps
    share = 100 * behavior.step // max(most, 1)
    parts = [f"{behavior.step:,} of {most:,} steps"]
    if env.budget is not None:
        share = max(share, 100 * env.taken // env.budget)
        parts.append(f"{env.taken:,} of {env.budget:,} environment steps")
    parts[-1] += f" ({share} %)"
    return ", ".join(filter(None, (*parts, _episode_budget(behavior))))


def _episode_budget(behavior: Behavior) -> str:
    """A phrase on how many episodes of ``max_episodes`` are over; empty without such a budget, or without training."""
    most = behavior.settings.max_episodes
    return "" if most is None or not behavior.training else f"{behavior.episodes:,} of {most:,} episodes"


def _episodes(partial_summary: Summary) -> list[str]:
    stats = partial_summary.stats
    if stats.mean_return is None:
        return ["No episode was completed since the last summary"]
    episodes = "1 episode" if stats.episodes == 1 else f"{stats.episodes:,} episodes"
    words = [
        f"Mean return of {episodes} since the last summary: {format_return(stats.mean_return, stats.std_return)}"
    ]
    if stats.mean_group_return is not None:
        words.append(f"Of groups: {format_return(stats.mean_group_return)}")
    return words


def _collected(behavior: Behavior) -> str:
    """A phrase on how many of the steps for the next update are there; empty where updates wait for none."""
    collected = behavior.collected
    return "" if collected is None else f"{collected[0]:,} of {collected[1]:,} steps for the next update"


class ExchangeHint:
    """Advice for runs whose time goes into messages about one agent at a time.

    It measures how much of the time goes into exchanges, and with how many agents, in windows of 20 s and more. A
    window ends with the first check after an update, so that learning has its share in it.
    """

    def __init__(self, timers: Timers, env: str | None, num_envs: int) -> None:
        """timers: of the loop; env: as the user wrote it, None where simulators attach; num_envs: how many run."""
        self._timers = timers
        self._env = env
        self._num_envs = num_envs
        self._before: _Measured | None = None
        self._told = False

    def check(self, now: float, steps: int) -> str:
        """The advice, once; empty where none is due.

        Args:
            now: in seconds.
            steps: agent steps of all behaviors.
        """
        if self._told or self._env is None:
            return ""
        receive, reply = self._timers.spent("receive"), self._timers.spent("reply")
        updates, passes = self._timers.spent("update")[1], self._timers.spent("act")[1]
        mark = _Measured(now, steps, receive[0] + reply[0], passes, updates)
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
        flag, _ = copies_of(self._env or "")
        together = (
            f"--env-args {flag} 8 (copies that share an exchange)" if flag else "more agents in the scene"
        )
        return f"{together}, or {more}"


class _Measured(NamedTuple):
    """Totals up to some time."""

    at_s: float
    steps: int
    exchanging_s: float
    passes: int
    """Forward passes that decided for all waiting agents."""
    updates: int
