"""The loop."""

from __future__ import annotations

from typing import Protocol

from trainer_service.behaviors.registry import Behaviors
from trainer_service.callbacks import CallbackList
from trainer_service.curriculum import Curriculum
from trainer_service.evaluation.periodic import PeriodicEvaluator
from trainer_service.metrics.timers import Timers
from trainer_service.training.channels import Channels
from trainer_service.training.progress_log import ProgressLog
from trainer_service.training.recorder import Recorder
from trainer_service.training.simulator_lifecycle import SimulatorLifecycle
from unity_bridge.server.bridge import Bridge

_POLL_S = 0.5
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
    evaluator: PeriodicEvaluator | None = None,
    callbacks: CallbackList | None = None,
) -> None:
    """Serves simulators until every behavior has used its step budget, or somebody asks to stop.

    Raises:
        UserError: a launched simulator that does not fit the configuration, a behavior that diverged, or a callback
            that failed.
        BridgeError: the simulators are gone and will not come back.
    """
    callbacks = callbacks or CallbackList()
    simulators = SimulatorLifecycle(bridge, behaviors, channels, recorder)
    while not stop.requested:
        with timers("receive"):
            ticks = simulators.handle_events(
                bridge.receive(0.0 if simulators.has_pending_declarations else _POLL_S)
            )
        with timers("observe"):
            ticks = simulators.observe(ticks)
        # Learning comes before acting, so that no action of a new rollout is of the old policy: a run that
        # is resumed here goes on exactly as if it had never stopped. It costs a simulator one idle tick.
        for behavior in behaviors.values():
            if behavior.ready_to_update():
                callbacks.on_update_start(behavior.name)
                with timers("update"):
                    metrics = behavior.update()
                callbacks.on_update_end(behavior.name, metrics)
        if changes := curriculum.advance(behaviors.drain_progress()):
            ticks = simulators.apply_lessons(changes, curriculum, ticks)
        if behaviors.advance_turns():
            ticks = simulators.restart(ticks)
        if evaluator is not None:
            with timers("evaluate"):
                evaluated = evaluator.maybe_evaluate(behaviors)
            if evaluated:
                recorder.autosave(behaviors.values())
                callbacks.on_evaluations(evaluated)
        for behavior in behaviors.values():
            recorder.write_due(behavior)
        progress.update(behaviors)
        if behaviors.finished:
            return
        simulators.log_unfinished()
        with timers("act"):
            replies = behaviors.act()
        with timers("reply"):
            for tick in ticks:
                if records := channels.outgoing(tick.simulator):
                    bridge.send(records, tick.simulator)
                bridge.reply(tick.simulator, replies.get(tick.simulator, {}))
