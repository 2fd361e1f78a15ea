"""The rules of the section ``stop``: when a run has reached, or still reaches, nothing more."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from trainer_service.config.run.stop import StopSettings
from trainer_service.learning.rollout.episode_scores import mean_or_none
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.metrics import JsonLines, Summary, SummaryWriter, format_return, to_json
from trainer_service.running.runs.layout import RunLayout

LEAST_EPISODES = 100
"""Returns of training behind a score: the number over which Gymnasium's tasks count as solved."""

_logger = logging.getLogger(__name__)


class StopRules(SummaryWriter):
    """Looks at every new score of the behaviors, and at the clock.

    It is a summary writer, and so knows all scores: those of evaluations where the run has them, else the mean returns
    of training. A resumed run has those from before in mind, but is only ended by a new one.
    """

    def __init__(
        self,
        settings: StopSettings | None,
        layout: RunLayout | None = None,
        *,
        evaluates: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Starts the clock.

        Args:
            settings: the rules; None for none.
            layout: of the run's folder, where a resumed run finds its earlier scores.
            evaluates: whether scores are those of evaluations.
            clock: in seconds.
        """
        self._settings = settings
        self._target = None if settings is None else settings.target_return
        self.named = self._target if isinstance(self._target, dict) else {}
        """Targets of behaviors by their names."""
        self._layout = layout
        self._evaluates = evaluates
        self._clock = clock
        self._started_s = clock()
        self._scores: dict[str, _Scores] = {}
        self._has_news = False
        self.reason = ""
        """Why the run should end; empty as long as it should not."""

    def write(self, summary: Summary) -> None:
        """Takes the returns of training in."""
        if not self._evaluates and summary.is_training:
            self._add(to_json(summary))

    def write_evaluation(self, summary: Summary) -> None:
        """Takes the score of an evaluation in."""
        if self._evaluates:
            score = mean_or_none(summary.stats.counted)
            self._add({"behavior": summary.behavior, "step": summary.step, "score": score})

    def truncate_after(self, behavior: str, step: int) -> None:
        """Recalls the scores of a resumed behavior."""
        if self._layout is None or self._settings is None:
            return
        file = self._layout.evaluations if self._evaluates else self._layout.metrics
        for row in JsonLines(file).rows():
            if row.get("behavior") == behavior and row.get("step", 0) <= step:
                self._add(row)
        self._has_news = False

    def met(self, behaviors: Mapping[str, Behavior]) -> bool:
        """Whether the run should end; the reason is logged. Costs next to nothing: it may be called at every tick."""
        settings = self._settings
        if settings is None:
            return False
        reason = ""
        if settings.wall_clock is not None and self._clock() - self._started_s >= settings.wall_clock:
            reason = f"wall_clock, {settings.wall_clock:,.0f} s, is over"
        if settings.steps is not None and (most := _most_steps(behaviors)) >= settings.steps:
            reason = f"steps, {settings.steps:,}, are reached at step {most:,}"
        if self._has_news:
            self._has_news = False
            training = [name for name, each in behaviors.items() if each.training]
            reason = self._reached(behaviors, training) or self._stalled(training) or reason
        self.reason = reason
        if reason:
            _logger.info("The run ends by its rules (stop): %s.", reason)
        return bool(reason)

    def _add(self, row: Mapping[str, Any]) -> None:
        """Takes a line of evaluations.jsonl or metrics.jsonl in."""
        scores = self._scores.setdefault(row["behavior"], _Scores())
        score = row.get("score") if self._evaluates else scores.over_episodes(row)
        if score is not None:
            scores.add(row["step"], score)
            self._has_news = True

    def _reached(self, behaviors: Collection[str], training: list[str]) -> str:
        """Says which targets are reached if all are, of behaviors that there are; empty while one is not."""
        targets = {name: target for name, target in self.named.items() if name in behaviors}
        if isinstance(self._target, float):
            targets = dict.fromkeys(training, self._target)
        found = {name: self._scores.get(name, _Scores()) for name in targets}
        if not targets or any(of.newest is None or of.newest < targets[name] for name, of in found.items()):
            return ""
        words = [
            f"'{name}' has {format_return(of.newest or 0.0)} at step {of.step}" for name, of in found.items()
        ]
        return f"target_return is reached, {', '.join(words)}"

    def _stalled(self, training: list[str]) -> str:
        """Says since when there is no progress if no behavior makes any; empty while one does."""
        patience = None if self._settings is None else self._settings.no_progress
        if patience is None or not training:
            return ""
        found = {name: self._scores.get(name, _Scores()) for name in training}
        if any(of.newest is None or of.step - of.best_step < patience for of in found.values()):
            return ""
        words = [
            f"'{name}' had its best, {format_return(of.best)}, at step {of.best_step}"
            for name, of in found.items()
        ]
        return f"no_progress for {patience:,} steps, {', '.join(words)}"


def _most_steps(behaviors: Mapping[str, Behavior]) -> int:
    """Agent steps of the behavior that has most."""
    return max((behavior.step for behavior in behaviors.values()), default=0)


@dataclass(slots=True)
class _Scores:
    """The scores of a behavior so far."""

    newest: float | None = None
    step: int = 0
    best: float = float("-inf")
    best_step: int = 0
    recent: deque[tuple[int, float]] = field(default_factory=deque)
    """Episodes and mean return of the newest summaries."""

    def add(self, step: int, score: float) -> None:
        self.newest, self.step = score, step
        if score > self.best:
            self.best, self.best_step = score, step

    def over_episodes(self, row: Mapping[str, Any]) -> float | None:
        """The mean of the returns that count in the newest summaries with enough of them; None if there are too few."""
        # Lines of behaviors without groups have no score of their own.
        mean = row.get("score", row.get("mean_return"))
        count = row.get("scored_episodes", row.get("episodes"))
        if mean is None or not count:
            return None
        self.recent.append((count, mean))
        while sum(count for count, _ in list(self.recent)[1:]) >= LEAST_EPISODES:
            self.recent.popleft()
        total = sum(count for count, _ in self.recent)
        return sum(count * of for count, of in self.recent) / total if total >= LEAST_EPISODES else None
