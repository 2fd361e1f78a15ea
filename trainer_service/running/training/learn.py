"""The training loop."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from trainer_service.running.curriculum import LessonChange
from trainer_service.running.training.run import Run

_logger = logging.getLogger(__name__)


def learn(run: Run) -> None:
    """Collects and learns until every behavior has used its step budget, a stop rule holds, or a stop is requested.

    Raises:
        UserError: a launched simulator that does not fit the configuration, a behavior that diverged, or a callback
            that failed.
        BridgeError: the simulators are gone and will not come back.
    """
    source, behaviors, timers = run.source, run.behaviors, run.timers
    while not run.stop.requested:
        source.collect()
        # Learning comes before acting, so that no action of a new rollout is of the old policy: a run that
        # is resumed here continues exactly as if it had never stopped. It costs a simulator one idle tick.
        for behavior in behaviors.values():
            if behavior.ready_to_update():
                run.callbacks.on_update_start(behavior.name)
                with timers("update"):
                    metrics = behavior.update()
                run.callbacks.on_update_end(behavior.name, metrics)
        if run.curriculum.watched_behaviors:
            changes = run.curriculum.advance(behaviors.drain_progress())
            if changes:
                _apply_lessons(run, changes)
        if behaviors.advance_turns():
            source.restart()
        if run.evaluator is not None:
            with timers("evaluate"):
                evaluated = run.evaluator.maybe_evaluate(behaviors)
            if evaluated:
                run.recorder.autosave(behaviors.values())
                run.callbacks.on_evaluations(evaluated)
        for behavior in behaviors.values():
            run.recorder.write_due(behavior)
        if run.stop.take_save_request() and run.recorder.autosave(behaviors.values()):
            _logger.info("Saved on SIGUSR1. The run continues.")
        run.progress.update(behaviors)
        if behaviors.finished or run.stop_rules.met(behaviors.awaited):
            return
        behaviors.log_unfinished()
        source.act()


def _apply_lessons(run: Run, changes: Sequence[LessonChange]) -> None:
    """Sends new lessons to the simulators.

    They are saved before they are sent: a run that is killed right after continues in them, with these weights.
    """
    run.recorder.autosave(run.behaviors.values())
    run.source.send_parameters()
    for change in changes:
        _logger.info("%s", run.curriculum.describe(change.parameter))
    if any(change.require_reset for change in changes):
        run.source.restart()
