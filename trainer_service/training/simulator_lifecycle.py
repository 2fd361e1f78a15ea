"""The life of simulators in a run: they come, begin anew, and go. A failure of one costs no other anything."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import torch

from trainer_service.callbacks import CallbackError
from trainer_service.curriculum import LessonChange
from trainer_service.errors import UserError
from trainer_service.runs.files import SaveError
from trainer_service.training.run import Run
from unity_bridge.errors import WireError
from unity_bridge.server.bridge import Departure, Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.throttled_logger import ThrottledLogger
from unity_bridge.untrusted_text import quoted

_logger = logging.getLogger(__name__)

MAX_DECLARED_AT_ONCE = 4
"""Behaviors that one turn of the loop makes: a simulator that declares more waits, and the others go on meanwhile."""

_DETAILS = re.compile(r"['\"(:0-9]")
"""The first character of a reason that is about one case only."""

_NOT_THE_SIMULATORS_FAULT = (CallbackError, SaveError, torch.OutOfMemoryError)
"""Errors that no simulator is to blame for."""


class _Declaration:
    """A tick that declares behaviors, until all of them are there."""

    def __init__(self, tick: Tick) -> None:
        self.tick = tick
        self.left: list[tuple[str, BehaviorSpec]] = list(tick.new_specs.items())[::-1]


class SimulatorLifecycle:
    """Handler of what the bridge reports of simulators: departures, declared behaviors, and requests for actions."""

    def __init__(self, run: Run) -> None:
        self._bridge = run.bridge
        self._behaviors = run.behaviors
        self._channels = run.channels
        self._curriculum = run.curriculum
        self._recorder = run.recorder
        self._outdated: set[int] = set()
        """Simulators with agents in a lesson or a turn that is over: their next tick is answered with a reset."""
        self._pending: list[_Declaration] = []
        self._handle_messages = partial(run.channels.handle, behaviors=run.behaviors)
        self._throttled = ThrottledLogger(_logger)
        self._missing: list[str] = []

    @property
    def has_pending_declarations(self) -> bool:
        """Whether behaviors wait to be made."""
        return bool(self._pending)

    def handle_events(self, events: Iterable[Tick | Departure]) -> list[Tick]:
        """Drops simulators that left, makes behaviors that are new; returns the ticks to observe."""
        made = len(self._behaviors)
        waiting, self._pending = self._pending, []
        ticks = [each.tick for each in waiting if self._declare_all(each, made)]
        for event in events:
            if isinstance(event, Departure):
                self._handle_departure(event)
                # Its last words came too late: a successor may use the same number, and must find no old agents.
                ticks = [tick for tick in ticks if tick.simulator != event.simulator]
                self._pending = [each for each in self._pending if each.tick.simulator != event.simulator]
            elif not event.new_specs or self._declare_all(_Declaration(event), made):
                ticks.append(event)
        return self._reset_outdated(
            [tick for tick in ticks if self._attempt(tick, "hearing", self._handle_messages)]
        )

    def observe(self, ticks: list[Tick]) -> list[Tick]:
        """Hands ticks to their behaviors; returns those that get an answer, of simulators that did not fail."""
        return [tick for tick in ticks if self._attempt(tick, "observing", self._behaviors.observe)]

    def apply_lessons(self, changes: Sequence[LessonChange], ticks: list[Tick]) -> list[Tick]:
        """Sends new lessons to the simulators; returns the ticks that still want actions.

        They are saved before they are sent: a run that is killed right after goes on in them, with these weights.
        """
        self._recorder.autosave(self._behaviors.values())
        self._bridge.send(self._channels.parameters())
        for change in changes:
            _logger.info("%s", self._curriculum.describe(change.parameter))
        if any(change.require_reset for change in changes):
            return self.restart(ticks)
        return ticks

    def restart(self, ticks: list[Tick]) -> list[Tick]:
        """Resets every simulator at its next tick; returns the ticks that still want actions: none."""
        self._outdated.update(self._bridge.simulators)
        return self._reset_outdated(ticks)

    def log_unfinished(self) -> None:
        """Logs, once, which behaviors a run still waits for after others have used their step budgets."""
        if not any(behavior.finished for behavior in self._behaviors.values()):
            return
        unfinished = self._behaviors.unfinished
        if unfinished == self._missing:
            return
        self._missing = unfinished
        for name in unfinished:
            behavior = self._behaviors[name]
            _logger.info(
                "The run goes on for '%s', which is at step %d of %d%s.",
                name, behavior.step, behavior.settings.max_steps,
                "; no simulator has it any more" if self._behaviors.is_absent(name) else "",
            )  # fmt: skip

    def _reset_outdated(self, ticks: list[Tick]) -> list[Tick]:
        """Resets the outdated simulators among the ticks; returns the other ticks."""
        for tick in ticks:
            if tick.simulator in self._outdated:
                self._outdated.discard(tick.simulator)
                self._behaviors.drop(tick.simulator)
                self._bridge.reset(tick.simulator, self._channels.outgoing(tick.simulator))
                ticks = [other for other in ticks if other is not tick]
        return ticks

    def _handle_departure(self, departure: Departure) -> None:
        if departure.restarted:
            _logger.warning("%s", departure.reason)  # as often as its budget allows
        else:
            why = departure.reason.partition(": ")[2]
            self._throttled.log(("departed", _DETAILS.split(why)[0]), departure.reason)
        self._drop(departure.simulator)

    def _drop(self, simulator: int) -> None:
        self._outdated.discard(simulator)
        self._behaviors.remove_simulator(simulator)
        self._channels.drop(simulator)

    def _declare_all(self, declaration: _Declaration, made_before: int) -> bool:
        """Makes the behaviors that a tick declares. False where it has to wait, or its simulator had to be refused."""
        tick = declaration.tick
        while declaration.left:
            if len(self._behaviors) - made_before >= MAX_DECLARED_AT_ONCE:
                self._pending.append(declaration)
                return False
            declare = partial(self._declare, *declaration.left.pop())
            # Once others train, what one simulator declares does not end their run.
            if not self._attempt(tick, "declaring", declare, fatal=not self._behaviors):
                return False
        return True

    def _declare(self, behavior_id: str, spec: BehaviorSpec, tick: Tick) -> None:
        known = set(self._behaviors)
        self._behaviors.declare(tick.simulator, behavior_id, spec, tick.steps.get(behavior_id))
        for name in set(self._behaviors) - known:
            self._recorder.add(self._behaviors[name])
            self._channels.announce(self._behaviors[name], self._bridge)
            _logger.info("Connected new brain: %s", behavior_id)

    def _attempt(self, tick: Tick, doing: str, work: Callable[[Tick], None], *, fatal: bool = True) -> bool:
        """Whether work on a tick succeeded. Where it fails, the simulator is refused and all others go on.

        fatal: a launched simulator that does not fit the configuration ends the run, because it will never fit.
        """
        number = tick.simulator
        try:
            work(tick)
            return True
        except _NOT_THE_SIMULATORS_FAULT:
            raise
        except (UserError, WireError) as error:
            info = self._bridge.simulators.get(number)
            if fatal and isinstance(error, UserError) and info is not None and info.launched:
                raise
            reason = str(error)
            self._throttled.log("refused", f"Simulator {number} is refused: {reason}", level=logging.ERROR)
        except Exception as error:
            reason = (
                f"{doing} its message failed in the trainer: {type(error).__name__}: {quoted(str(error))}"
            )
            self._throttled.log(
                (doing, type(error).__name__), f"Simulator {number} is refused: {reason}", error=error
            )
        self._drop(number)
        self._bridge.reject(number, reason)
        return False
