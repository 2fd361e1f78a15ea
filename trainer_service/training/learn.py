"""The training loop."""

from __future__ import annotations

from trainer_service.training.run import Run
from trainer_service.training.simulator_lifecycle import SimulatorLifecycle

_POLL_S = 0.5
"""How long the loop waits for simulators before it looks whether it shall stop."""


def learn(run: Run) -> None:
    """Serves simulators until every behavior has used its step budget, or a stop is requested.

    Raises:
        UserError: a launched simulator that does not fit the configuration, a behavior that diverged, or a callback
            that failed.
        BridgeError: the simulators are gone and will not come back.
    """
    bridge, behaviors, timers = run.bridge, run.behaviors, run.timers
    simulators = SimulatorLifecycle(run)
    while not run.stop.requested:
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
                run.callbacks.on_update_start(behavior.name)
                with timers("update"):
                    metrics = behavior.update()
                run.callbacks.on_update_end(behavior.name, metrics)
        if changes := run.curriculum.advance(behaviors.drain_progress()):
            ticks = simulators.apply_lessons(changes, ticks)
        if behaviors.advance_turns():
            ticks = simulators.restart(ticks)
        if run.evaluator is not None:
            with timers("evaluate"):
                evaluated = run.evaluator.maybe_evaluate(behaviors)
            if evaluated:
                run.recorder.autosave(behaviors.values())
                run.callbacks.on_evaluations(evaluated)
        for behavior in behaviors.values():
            run.recorder.write_due(behavior)
        run.progress.update(behaviors)
        if behaviors.finished:
            return
        simulators.log_unfinished()
        with timers("act"):
            replies = behaviors.act()
        with timers("reply"):
            for tick in ticks:
                if records := run.channels.outgoing(tick.simulator):
                    bridge.send(records, tick.simulator)
                bridge.reply(tick.simulator, replies.get(tick.simulator, {}))
