"""The simulators of a process: connecting, resetting and leaving, and collecting their agents' experience.

A failing simulator does not affect other simulators.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable
from functools import partial
from typing import Protocol

import torch

from trainer_service.errors import OutOfMemory, UserError
from trainer_service.running.callbacks import CallbackError, SimulatorStep
from trainer_service.running.collection.channels import Channels
from trainer_service.running.collection.collector import Collector
from trainer_service.running.collection.heterogeneous_groups import HeterogeneousGroups
from trainer_service.running.collection.router import (
    BehaviorId,
    Deliver,
    Router,
    largest_group,
    parse_behavior_id,
)
from trainer_service.running.metrics.timers import Timers
from trainer_service.running.runs.files import SaveError
from unity_bridge.errors import WireError
from unity_bridge.server.bridge import Bridge, Departure, Tick
from unity_bridge.side_channels import StatMessage
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.untrusted_text import quoted

_logger = logging.getLogger(__name__)

MAX_DECLARED_AT_ONCE = 4
"""The most behaviors created in one turn of the loop. A simulator that declares more waits; others continue."""

_POLL_S = 0.5
"""Seconds that ``collect`` waits for simulators before its caller checks whether to stop."""

_DETAILS = re.compile(r"['\"(:0-9]")
"""The first character of a reason's details, which differ between cases."""


class NotYet(Exception):
    """The behavior does not exist yet, so the simulator that declared it must wait."""


_NOT_THE_SIMULATORS_FAULT = (CallbackError, SaveError, OutOfMemory, torch.OutOfMemoryError, NotYet)
"""Errors that no simulator caused."""


class Learners(Protocol):
    """The behaviors of a run, as used by simulators."""

    def declare(
        self, simulator: int, behavior_id: BehaviorId, spec: BehaviorSpec, group_size: int
    ) -> tuple[Collector, Deliver]:
        """Returns the collector of a simulator's behavior, and the receiver of its completed experience.

        Raises UserError if the behavior is not supported, and ``NotYet``.
        """
        ...

    def remove(self, simulator: int) -> None:
        """Forgets a simulator that left."""
        ...

    def add_stat(self, behavior: str, stat: StatMessage) -> bool:
        """Adds a simulator's statistic to a behavior. Returns False if there are too many names."""
        ...


class _Declaration:
    """A tick that declares behaviors, until all of them exist."""

    def __init__(self, tick: Tick) -> None:
        self.tick = tick
        self.left: list[tuple[str, BehaviorSpec]] = list(tick.new_specs.items())[::-1]


def simulator_step(tick: Tick, behavior_id: str, actions: ActionBatch) -> tuple[str, SimulatorStep]:
    """Returns a behavior's name, and its step for callbacks."""
    name, team = parse_behavior_id(behavior_id)
    return name, SimulatorStep(tick.simulator, team, tick.steps[behavior_id], actions)


class Simulators:
    """Simulators on a bridge, as a source of experience: call ``collect`` and ``act`` in turn."""

    def __init__(
        self,
        bridge: Bridge,
        router: Router,
        channels: Channels,
        learners: Learners,
        timers: Timers | None = None,
        groups: HeterogeneousGroups | None = None,
        on_step: Callable[[str, SimulatorStep], None] | None = None,
    ) -> None:
        """on_step: called with each behavior's name and step before its reply is sent; None for no call."""
        self._bridge = bridge
        self._groups = groups or None  # most runs have none
        self._router = router
        self._channels = channels
        self._learners = learners
        self._timers = timers or Timers()
        self._on_step = on_step
        self._ticks: list[Tick] = []
        """Observed ticks that wait for a reply."""
        self._outdated: set[int] = set()
        """Simulators with agents of a past lesson or turn. Their next tick is answered with a reset."""
        self._pending: list[_Declaration] = []
        self._handle_messages = partial(channels.handle, add_stat=learners.add_stat)
        self._throttled = ThrottledLogger(_logger)
        self.num_restarts = 0
        """Number of restarts of launched simulators."""

    @property
    def num_simulators(self) -> int:
        """Number of connected simulators."""
        return len(self._bridge.simulators)

    def collect(self) -> None:
        """Waits briefly for simulators, and delivers the experience that their agents completed.

        Raises:
            UserError: A launched simulator does not fit the configuration, or a callback failed.
            BridgeError: The simulators left and will not return.
        """
        with self._timers("receive"):
            ticks = self._handle_events(self._bridge.receive(0.0 if self._pending else _POLL_S))
        with self._timers("observe"):
            self._ticks = [tick for tick in ticks if self._attempt(tick, "observing", self._router.observe)]

    def act(self) -> None:
        """Replies to every simulator with waiting agents."""
        with self._timers("act"):
            replies = self._router.act()
        if self._on_step is not None:
            for tick in self._ticks:
                for behavior_id, chosen in replies.get(tick.simulator, {}).items():
                    self._on_step(*simulator_step(tick, behavior_id, chosen))
        with self._timers("reply"):
            for tick in self._ticks:
                if records := self._channels.outgoing(tick.simulator):
                    self._bridge.send(records, tick.simulator)
                actions = replies.get(tick.simulator, {})
                replied = actions if self._groups is None else self._groups.split(tick, actions)
                self._bridge.reply(tick.simulator, replied)
        self._ticks = []

    def send_parameters(self) -> None:
        """Sends environment parameters that have changed with the next replies."""
        self._channels.send_parameters(self._bridge)

    def restart(self) -> None:
        """Resets every simulator at its next tick. Simulators that wait for a reply are reset now."""
        self._outdated.update(self._bridge.simulators)
        self._ticks = self._reset_outdated(self._ticks)

    def _handle_events(self, events: Iterable[Tick | Departure]) -> list[Tick]:
        """Drops simulators that left, and declares new behaviors. Returns the ticks to observe."""
        made = self._router.declared
        waiting, self._pending = self._pending, []
        ticks = [each.tick for each in waiting if self._declare_all(each, made)]
        for event in events:
            if isinstance(event, Departure):
                self._handle_departure(event)
                # Its last tick is discarded: a successor may use the same number, and must not get old agents.
                ticks = [tick for tick in ticks if tick.simulator != event.simulator]
                self._pending = [each for each in self._pending if each.tick.simulator != event.simulator]
            elif (tick := self._merged(event)) is None:
                continue  # the simulator was refused
            elif not tick.new_specs or self._declare_all(_Declaration(tick), made):
                ticks.append(tick)
        heard = [
            tick
            for tick in ticks
            if not (tick.messages or tick.new_specs) or self._attempt(tick, "hearing", self._handle_messages)
        ]
        return self._reset_outdated(heard) if self._outdated else heard

    def _merged(self, tick: Tick) -> Tick | None:
        """Returns a tick with one behavior in place of each group's members; None if its simulator was refused."""
        if (groups := self._groups) is None:
            return tick
        merged: list[Tick] = []
        succeeded = self._attempt(tick, "reading", lambda tick: merged.append(groups.merge(tick)))
        return merged[0] if succeeded else None

    def _reset_outdated(self, ticks: list[Tick]) -> list[Tick]:
        """Resets the outdated simulators of the ticks. Returns the other ticks."""
        for tick in ticks:
            if tick.simulator in self._outdated:
                self._outdated.discard(tick.simulator)
                self._router.drop(tick.simulator)
                self._bridge.reset(tick.simulator, self._channels.outgoing(tick.simulator))
                ticks = [other for other in ticks if other is not tick]
        return ticks

    def _handle_departure(self, departure: Departure) -> None:
        if departure.restarted:
            self.num_restarts += 1
            _logger.warning("%s", departure.reason)  # as often as the restart budget permits
        else:
            why = departure.reason.partition(": ")[2]
            self._throttled.log(("departed", _DETAILS.split(why)[0]), departure.reason)
        self._drop(departure.simulator)

    def _drop(self, simulator: int) -> None:
        self._outdated.discard(simulator)
        if self._groups is not None:
            self._groups.drop(simulator)
        self._router.remove(simulator)
        self._learners.remove(simulator)
        self._channels.drop(simulator)

    def _declare_all(self, declaration: _Declaration, made_before: int) -> bool:
        """Declares the behaviors of a tick. Returns False if it has to wait or its simulator was refused."""
        tick = declaration.tick
        waiting: list[tuple[str, BehaviorSpec]] = []
        while declaration.left:
            if self._router.declared - made_before + len(waiting) >= MAX_DECLARED_AT_ONCE:
                declaration.left += waiting[::-1]
                self._pending.append(declaration)
                return False
            declare = partial(self._declare, *declaration.left[-1])
            try:
                if not self._attempt(tick, "declaring", declare):
                    return False
            except NotYet:
                # Other behaviors are declared together with it, so that all sides of a game are known at once.
                waiting.append(declaration.left.pop())
                continue
            declaration.left.pop()
        if waiting:
            declaration.left = waiting[::-1]
            self._pending.append(declaration)
        return not waiting

    def _declare(self, behavior_id: str, spec: BehaviorSpec, tick: Tick) -> None:
        declared = self._router.check(tick.simulator, behavior_id, spec)
        group_size = largest_group(tick.steps.get(behavior_id))
        route = self._learners.declare(tick.simulator, declared, spec, group_size)
        self._router.add(tick.simulator, behavior_id, *route)

    def _attempt(self, tick: Tick, doing: str, work: Callable[[Tick], None]) -> bool:
        """Calls ``work`` on a tick, and returns whether it succeeded. If not, refuses the simulator.

        A launched simulator that does not fit the configuration ends the run, since it would not fit after a restart
        either. An unexpected error of the trainer ends the run too: only protocol errors are the simulator's fault. An
        attached simulator is refused in both cases, since its message may be an attack.
        """
        number = tick.simulator
        try:
            work(tick)
            return True
        except _NOT_THE_SIMULATORS_FAULT:
            raise
        except (UserError, WireError) as error:
            if isinstance(error, UserError) and self._is_launched(number):
                raise
            reason = str(error)
            self._throttled.log("refused", f"Simulator {number} is refused: {reason}", level=logging.ERROR)
        except Exception as error:
            if self._is_launched(number):
                raise
            reason = (
                f"{doing} its message failed in the trainer: {type(error).__name__}: {quoted(str(error))}"
            )
            self._throttled.log(
                (doing, type(error).__name__), f"Simulator {number} is refused: {reason}", error=error
            )
        self._drop(number)
        self._bridge.reject(number, reason)
        return False

    def _is_launched(self, number: int) -> bool:
        info = self._bridge.simulators.get(number)
        return info is not None and info.launched
