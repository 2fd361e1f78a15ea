"""The loop."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from trainer_service.behaviors import Behaviors
from trainer_service.callbacks import Hooks
from trainer_service.channels import Channels
from trainer_service.console import Console
from trainer_service.curriculum import Curriculum, LessonChange
from trainer_service.errors import UserError
from trainer_service.examiner import Examiner
from trainer_service.recorder import Recorder
from trainer_service.timers import Timers
from unity_bridge.server import Bridge, Departure, Tick

_logger = logging.getLogger(__name__)
_PATIENCE_S = 0.5
"""How long the loop waits for simulators before it looks whether it shall stop."""


class StopRequest(Protocol):
    """Says whether somebody asked the run to end."""

    @property
    def requested(self) -> bool: ...


def learn(
    bridge: Bridge,
    behaviors: Behaviors,
    curriculum: Curriculum,
    channels: Channels,
    recorder: Recorder,
    console: Console,
    timers: Timers,
    stop: StopRequest,
    examiner: Examiner | None = None,
    hooks: Hooks | None = None,
) -> None:
    """Serves simulators until every behavior has used its step budget, or somebody asks to stop.

    Raises:
        UserError: a behavior without settings, one that diverged, or a callback that failed.
        BridgeError: the simulators are gone and will not come back.
    """
    hooks = hooks or Hooks()
    desk = _Desk(bridge, behaviors, channels, recorder)
    while not stop.requested:
        with timers("receive"):
            ticks = desk.admit(bridge.receive(_PATIENCE_S))
        with timers("observe"):
            behaviors.observe(ticks)
        # Learning comes before acting, so that no action of a new rollout is of the old policy: a run that
        # is resumed here goes on exactly as if it had never stopped. It costs a simulator one idle tick.
        for behavior in behaviors.values():
            if behavior.ready_to_update():
                hooks.update_starts(behavior.name)
                with timers("update"):
                    metrics = behavior.update()
                hooks.update_ended(behavior.name, metrics)
        if changes := curriculum.advance(behaviors.drain_progress()):
            ticks = desk.teach(changes, curriculum, ticks)
        if behaviors.take_turns():
            ticks = desk.restart(ticks)
        if examiner is not None:
            with timers("evaluate"):
                evaluated = examiner.examine(behaviors)
            if evaluated:
                recorder.renew(behaviors.values())
                hooks.evaluated(evaluated)
        for behavior in behaviors.values():
            recorder.report(behavior)
            console.progress(behavior.name, behavior.step, behavior.settings.max_steps, behavior.steps_per_s)
        if behaviors.finished:
            return
        with timers("act"):
            replies = behaviors.act()
        with timers("reply"):
            for tick in ticks:
                if records := channels.outgoing(tick.simulator):
                    bridge.send(records, tick.simulator)
                bridge.reply(tick.simulator, replies.get(tick.simulator, {}))


@dataclass(slots=True)
class _Desk:
    """Where simulators come, go, and begin anew."""

    bridge: Bridge
    behaviors: Behaviors
    channels: Channels
    recorder: Recorder
    outdated: set[int] = field(default_factory=set)
    """Simulators whose agents live in a lesson or a turn that is over: their next tick is answered with a reset."""

    def admit(self, events: Iterable[Tick | Departure]) -> list[Tick]:
        """Says goodbye to simulators that left, makes behaviors that are new; returns the ticks to observe."""
        ticks: list[Tick] = []
        for event in events:
            if isinstance(event, Departure):
                _logger.warning("%s", event.reason)
                self._dismiss(event.simulator)
                # Its last words came too late: a successor may use the same number, and must find no old agents.
                ticks = [tick for tick in ticks if tick.simulator != event.simulator]
            elif not event.new_specs or self._declare(event):
                self.channels.hear(event, self.behaviors)
                ticks.append(event)
        return self._begin_anew(ticks)

    def teach(self, changes: Sequence[LessonChange], curriculum: Curriculum, ticks: list[Tick]) -> list[Tick]:
        """Tells simulators of new lessons; returns the ticks that still want actions.

        Saved before it is told: a run that is killed right after goes on in these lessons, with these weights.
        """
        self.recorder.renew(self.behaviors.values())
        self.bridge.send(self.channels.parameters())
        for change in changes:
            _logger.info("%s", curriculum.describe(change.parameter))
        if any(change.require_reset for change in changes):
            return self.restart(ticks)
        return ticks

    def restart(self, ticks: list[Tick]) -> list[Tick]:
        """Lets every simulator begin anew, at its next tick; returns the ticks that still want actions: none."""
        self.outdated.update(self.bridge.simulators)
        return self._begin_anew(ticks)

    def _begin_anew(self, ticks: list[Tick]) -> list[Tick]:
        """Resets the outdated simulators among the ticks; returns the other ticks."""
        for tick in ticks:
            if tick.simulator in self.outdated:
                self.outdated.discard(tick.simulator)
                self.behaviors.drop(tick.simulator)
                self.bridge.reset(tick.simulator, self.channels.outgoing(tick.simulator))
                ticks = [other for other in ticks if other is not tick]
        return ticks

    def _dismiss(self, simulator: int) -> None:
        self.outdated.discard(simulator)
        self.behaviors.drop(simulator)
        self.channels.drop(simulator)

    def _declare(self, tick: Tick) -> bool:
        """Makes the behaviors that a tick declares. False where its simulator had to be refused."""
        for behavior_id, spec in tick.new_specs.items():
            known = set(self.behaviors)
            try:
                self.behaviors.declare(behavior_id, spec, tick.steps.get(behavior_id))
            except UserError as error:
                if not known:
                    raise
                # Others are training already: what one simulator says wrong must not end their run.
                self.bridge.reject(tick.simulator, str(error))
                return False
            for name in set(self.behaviors) - known:
                self.recorder.watch(self.behaviors[name])
                self.channels.announce(self.behaviors[name], self.bridge)
                _logger.info("Connected new brain: %s", behavior_id)
        return True
