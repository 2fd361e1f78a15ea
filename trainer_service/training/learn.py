"""The loop."""

from __future__ import annotations

from typing import Protocol

from trainer_service.behaviors.registry import Behaviors
from trainer_service.callbacks import Hooks
from trainer_service.curriculum import Curriculum
from trainer_service.evaluation.periodic import Examiner
from trainer_service.metrics.timers import Timers
from trainer_service.training.channels import Channels
from trainer_service.training.progress_log import ProgressLog
from trainer_service.training.recorder import Recorder
from trainer_service.training.simulator_lifecycle import Desk
from unity_bridge.server.bridge import Bridge

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
    progress: ProgressLog,
    timers: Timers,
    stop: StopRequest,
    examiner: Examiner | None = None,
    hooks: Hooks | None = None,
) -> None:
    """Serves simulators until every behavior has used its step budget, or somebody asks to stop.

    Raises:
        UserError: a launched simulator that does not fit the configuration, a behavior that diverged, or a callback
            that failed.
        BridgeError: the simulators are gone and will not come back.
    """
    hooks = hooks or Hooks()
    desk = Desk(bridge, behaviors, channels, recorder)
    while not stop.requested:
        with timers("receive"):
            ticks = desk.admit(bridge.receive(0.0 if desk.is_declaring else _PATIENCE_S))
        with timers("observe"):
            ticks = desk.observe(ticks)
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
        if behaviors.advance_turns():
            ticks = desk.restart(ticks)
        if examiner is not None:
            with timers("evaluate"):
                evaluated = examiner.examine(behaviors)
            if evaluated:
                recorder.renew(behaviors.values())
                hooks.evaluated(evaluated)
        for behavior in behaviors.values():
            recorder.report(behavior)
        progress.look(behaviors)
        if behaviors.finished:
            return
        desk.say_who_is_missing()
        with timers("act"):
            replies = behaviors.act()
        with timers("reply"):
            for tick in ticks:
                if records := channels.outgoing(tick.simulator):
                    bridge.send(records, tick.simulator)
                bridge.reply(tick.simulator, replies.get(tick.simulator, {}))
