"""The loop in which frozen policies play episodes: evaluations, matches and recordings."""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from trainer_service.errors import UserError
from trainer_service.learning.rollout.agents import MAX_SILENT_TICKS
from trainer_service.learning.rollout.episode_scores import EpisodeLedger
from trainer_service.learning.rollout.games import GameLedger
from trainer_service.learning.rollout.whole_episodes import WholeEpisodes
from trainer_service.running.evaluation.episode_limit import EpisodeLimit, LimitedBatch
from unity_bridge.errors import SimulatorLost
from unity_bridge.server.bridge import Departure, Tick
from unity_bridge.steps import ActionBatch, StepBatch

SILENCE_S = 30.0
"""Seconds without an end of an episode after which a line tells what is waited for; the next pauses are longer."""

_LONGEST_PAUSE_S = 1800.0
_POLL_S = 0.5
_logger = logging.getLogger(__name__)


class PlayStopped(Exception):
    """Raised by a callback of the loop to end a play before everything is complete."""


class BridgeLike(Protocol):
    """The simulators of an evaluation: a ``Bridge``, or a scene in this process."""

    def receive(self, timeout_s: float) -> Sequence[Tick | Departure]:
        """Everything that waits; empty if nothing came in time."""
        ...

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        """Answers a tick with actions."""
        ...

    def reset(self, simulator: int) -> None:
        """Answers a tick with a reset: all agents begin new episodes."""
        ...


Ledger = EpisodeLedger | GameLedger | WholeEpisodes
"""A count of episodes or games."""


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeTally:
    """A ledger of one behavior or side, and the limit that it counts under."""

    name: str
    ledger: Ledger
    limit: EpisodeLimit

    is_reported: bool = True
    """Whether its ends are progress; those of opponents are not."""

    def __str__(self) -> str:
        ended, wanted = self.ledger.num_ended, self.ledger.wanted
        return f"{self.name}: {ended} of {wanted} ended, the current ones have lasted {self.limit.longest:,} steps"

    def observe(self, simulator: int, team: int, batch: StepBatch) -> LimitedBatch:
        """Counts a tick, and returns it as it counts under the limit."""
        seen = self.limit.observe(simulator, team, batch)
        self.ledger.observe(simulator, team, seen.batch, seen.cut)
        return seen


class Actors(Protocol):
    """Policies or experts that act for agents and keep their state."""

    def drop(self, simulator: int) -> None:
        """Drops the state of a simulator's agents, which is reset."""
        ...


class Play(ABC):
    """Actors and the tallies of their episodes."""

    def __init__(self, *actors: Actors) -> None:
        self._actors = actors
        self.tallies: list[EpisodeTally] = []
        """The tallies so far; the play ends when all reported tallies are complete."""

    @abstractmethod
    def step(self, tick: Tick) -> Mapping[str, ActionBatch]:
        """Counts a tick, and returns the actions for it."""

    @property
    def complete(self) -> bool:
        """Whether everything that is reported has been played."""
        reported = [tally.ledger.complete for tally in self.tallies if tally.is_reported]
        return bool(reported) and all(reported)

    def drop(self, simulator: int) -> None:
        """Drops the state of a simulator that is reset."""
        for actors in self._actors:
            actors.drop(simulator)
        for tally in self.tallies:
            tally.limit.drop(simulator)


class EpisodeLoop:
    """Lets frozen policies play until their ledgers are full.

    With a limit of steps, an episode that reaches it is cut: see ``EpisodeLimit``. Once no agent of a simulator is in
    an episode that counts, the simulator is reset, and all agents begin new episodes. A reset never ends an episode
    that counts.
    """

    def __init__(
        self,
        simulators: BridgeLike,
        max_episode_steps: int | None = None,
        *,
        what: str = "episode",
        option: str = "--max-episode-steps N (max_episode_steps=N from Python)",
        progress: Callable[[int, int], None] = lambda done, wanted: None,
        check_stop: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            simulators: to play on.
            max_episode_steps: the limit; None for none.
            what: an episode or a game.
            option: how the user sets the limit.
            progress: told how many episodes of how many are done.
            check_stop: called at least twice a second; what it raises ends the loop.
            clock: in seconds.
        """
        self.simulators = simulators
        self._max_steps = max_episode_steps
        self._what = what
        self._option = option
        self._progress = progress
        self._check_stop = check_stop
        self._clock = clock
        self._pending: deque[Tick | Departure] = deque()
        self._tallies: Sequence[EpisodeTally] = ()
        self._done = (-1, 0)
        self._ended_at = clock()
        """Time of the last end of an episode."""
        self._pause_s = SILENCE_S
        self._next_line = self._ended_at + SILENCE_S

    def tally(self, name: str, ledger: Ledger, *, is_reported: bool = True) -> EpisodeTally:
        """A tally under the limit of this loop."""
        return EpisodeTally(name, ledger, EpisodeLimit(self._max_steps), is_reported)

    def next_tick(self) -> Tick:
        """Waits for the next tick; says now and then what is waited for. Raises BridgeError: a simulator failed."""
        while not self._pending:
            self._check_stop()
            self._log_if_silent()
            self._pending.extend(self.simulators.receive(_POLL_S))
        event = self._pending.popleft()
        if isinstance(event, Departure):
            raise SimulatorLost(event.reason)
        return event

    def play(
        self, play: Play, first: Tick | None = None, *, before: int = 0, wanted: int | None = None
    ) -> None:
        """Plays until everything is complete. The last tick is left unanswered.

        Args:
            play: what plays.
            first: a tick that waits for its answer already.
            before, wanted: ends that were reported before, and all that will be; None for those of ``play``.

        Raises:
            UserError: with a limit: nothing has ended for far longer than it allows, as agents are gone without an end.
            BridgeError: a simulator failed.
        """
        ticks = 0
        most_ticks = MAX_SILENT_TICKS
        while True:
            tick = first or self.next_tick()
            first = None
            actions = play.step(tick)
            self._tallies = [tally for tally in play.tallies if tally.is_reported]
            ticks = 0 if self._report(before, wanted) else ticks + 1
            if play.complete:
                return
            waited_for = [tally for tally in play.tallies if not tally.ledger.complete]
            if _is_idle(tick.simulator, waited_for):
                self.simulators.reset(tick.simulator)
                play.drop(tick.simulator)
            else:
                self.simulators.reply(tick.simulator, actions)
            if ticks == MAX_SILENT_TICKS:
                agents = sum(tally.limit.num_agents for tally in waited_for)
                most_ticks = ticks + agents * (self._max_steps or 0)  # where they act in turn
            if self._max_steps is not None and ticks > most_ticks and _lacks_ends(self._tallies):
                raise UserError(f"no {self._what} has ended for {ticks:,} ticks. {self._waits_for()}")

    def _report(self, before: int, wanted: int | None) -> bool:
        """Reports progress. Returns whether anything ended."""
        ended = before + sum(tally.ledger.num_ended for tally in self._tallies)
        done = (ended, wanted or sum(tally.ledger.wanted for tally in self._tallies))
        has_ended = ended != self._done[0]
        if has_ended:
            self._ended_at = self._clock()
        if done != self._done and self._tallies:
            self._progress(*done)
        self._done = done
        return has_ended

    def _log_if_silent(self) -> None:
        now = self._clock()
        silent_s = now - self._ended_at
        if silent_s < SILENCE_S or now < self._next_line:
            return
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)
        self._next_line = now + self._pause_s
        limit = "cuts long ones" if self._max_steps is None else f"cuts them at {self._max_steps:,} steps"
        text = f"No {self._what} has ended for {silent_s:.0f} s. {self._waits_for()} so far."
        if self._max_steps is None and self._done[0] <= 0:
            text += f" Perhaps {self._what}s of this environment have no end." if self._tallies else ""
        _logger.warning("%s", f"{text} {self._option} {limit}." if self._tallies else text)

    def _waits_for(self) -> str:
        return (
            "; ".join(str(each) for each in self._tallies if not each.ledger.complete)
            or "No agent has asked for an action"
        )


def _is_idle(simulator: int, tallies: Sequence[EpisodeTally]) -> bool:
    """Whether nothing that counts continues in a simulator, because of episodes that were cut."""
    limits = [tally.limit for tally in tallies]
    return any(each.has_cut(simulator) for each in limits) and all(each.is_idle(simulator) for each in limits)


def _lacks_ends(tallies: Sequence[EpisodeTally]) -> bool:
    """Whether counted ends are missing, and not only those of groups, which a ledger gives up by itself."""
    return not tallies or any(tally.ledger.num_ended < tally.ledger.wanted for tally in tallies)
