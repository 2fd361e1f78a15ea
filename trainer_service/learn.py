"""The loop."""

from __future__ import annotations

import logging
from typing import Protocol

from trainer_service.behaviors import Behaviors
from trainer_service.console import Console
from trainer_service.errors import UserError
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
    recorder: Recorder,
    console: Console,
    timers: Timers,
    stop: StopRequest,
) -> None:
    """Serves simulators until every behavior has used its step budget, or somebody asks to stop.

    Raises:
        UserError: a behavior without settings, or one that diverged.
        BridgeError: the simulators are gone and will not come back.
    """
    while not stop.requested:
        with timers("receive"):
            ticks = _admit(bridge.receive(_PATIENCE_S), bridge, behaviors, recorder)
        with timers("observe"):
            behaviors.observe(ticks)
        # Learning comes before acting, so that no action of a new rollout is of the old policy: a run that
        # is resumed here goes on exactly as if it had never stopped. It costs a simulator one idle tick.
        for behavior in behaviors.values():
            if behavior.ready_to_update():
                with timers("update"):
                    behavior.update()
            recorder.report(behavior)
            console.progress(behavior.name, behavior.step, behavior.settings.max_steps, behavior.steps_per_s)
        if behaviors.finished:
            return
        with timers("act"):
            replies = behaviors.act()
        with timers("reply"):
            for tick in ticks:
                bridge.reply(tick.simulator, replies.get(tick.simulator, {}))


def _admit(
    events: list[Tick | Departure], bridge: Bridge, behaviors: Behaviors, recorder: Recorder
) -> list[Tick]:
    """Says goodbye to simulators that left, makes behaviors that are new; returns the ticks to answer."""
    ticks: list[Tick] = []
    for event in events:
        if isinstance(event, Departure):
            _logger.warning("%s", event.reason)
            behaviors.drop(event.simulator)
            # Its last words came too late: a successor may use the same number, and must find no old agents.
            ticks = [tick for tick in ticks if tick.simulator != event.simulator]
        elif not event.new_specs or _declare(event, bridge, behaviors, recorder):
            ticks.append(event)
    return ticks


def _declare(tick: Tick, bridge: Bridge, behaviors: Behaviors, recorder: Recorder) -> bool:
    """Makes the behaviors that a tick declares. False where its simulator had to be refused."""
    for behavior_id, spec in tick.new_specs.items():
        known = set(behaviors)
        try:
            behaviors.declare(behavior_id, spec)
        except UserError as error:
            if not known:
                raise
            # Others are training already: what one simulator says wrong must not end their run.
            bridge.reject(tick.simulator, str(error))
            return False
        for name in set(behaviors) - known:
            recorder.watch(behaviors[name])
            _logger.info("Connected new brain: %s", behavior_id)
    return True
