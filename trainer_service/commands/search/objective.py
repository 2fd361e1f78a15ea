"""The objective of a sweep: the score of a run, and its value at each summary."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import fmean

from trainer_service.commands.common.curves import Curve
from trainer_service.commands.common.run_record import RunRecord, metric_of
from trainer_service.config import RunOptions
from trainer_service.errors import UserError
from unity_bridge.names import did_you_mean

_RATING = "elo"
_RETURNS = ("mean_group_return", "mean_return")
_EVALUATION = "evaluation/"


@dataclass(frozen=True, slots=True)
class Objective:
    """A metric of runs. Where a run has several behaviors, their mean counts."""

    name: str
    """The objective in messages."""

    metrics: tuple[str, ...]
    """Names of the metric, the first that a behavior has counts."""

    behavior: str | None
    """The behavior that counts; None for all."""

    interval: int
    """Agent steps between two values."""

    reports: int
    """The number of values that a whole run has."""

    def score(self, run: RunRecord) -> float:
        """The mean over the last tenth of the steps. Raises UserError where the run has no value."""
        if curves := self._curves(run):
            return fmean(curve.final for curve in curves)
        raise UserError(f"'{run.path}': {self._missing(run)}")

    def values(self, run: RunRecord) -> Iterator[tuple[int, float]]:
        """Yields the number of each summary, from 1 on, and the value there."""
        curves = self._curves(run)
        for at in range(min((len(curve.values) for curve in curves), default=0)):
            number = max(round(int(curves[0].steps[at]) / self.interval), 1)
            yield number, fmean(float(curve.values[at]) for curve in curves)

    def _curves(self, run: RunRecord) -> list[Curve]:
        found = [self._curve(own) for name, own in run.curves.items() if self.behavior in (None, name)]
        return [curve for curve in found if curve is not None]

    def _curve(self, curves: Mapping[str, Curve]) -> Curve | None:
        return next((curves[name] for name in self.metrics if name in curves), None)

    def _missing(self, run: RunRecord) -> str:
        if not run.curves:
            return "no summary was written: lower summary_freq, or raise max_steps"
        if self.behavior is not None and self.behavior not in run.curves:
            return f"no behavior '{self.behavior}'; the run has {', '.join(run.curves)}"
        known = sorted({name for own in run.curves.values() for name in own})
        wanted = " or ".join(self.metrics)
        return f"no value of {wanted}{did_you_mean(self.metrics[0], known)}; the run has {', '.join(known)}"


def objective_of(options: RunOptions, metric: str | None, behavior: str | None) -> Objective:
    """The objective of runs with these options.

    Args:
        options: of the runs.
        metric: a key of metrics.jsonl or a tag of TensorBoard. None: the rating under self-play, else the return of
            groups where there are groups, else the return; of evaluations where the runs have them.
        behavior: the one that counts; None for all.

    Raises:
        UserError: a run would end before its first value, or the behavior is unknown.
    """
    if behavior is not None and options.behaviors and behavior not in options.behaviors:
        hint = did_you_mean(behavior, options.behaviors)
        raise UserError(f"behavior '{behavior}': the configuration has {', '.join(options.behaviors)}{hint}")
    settings = [each for name, each in options.behaviors.items() if behavior in (None, name)]
    if not settings and options.default_settings is not None:
        settings = [options.default_settings]
    rated = metric is None and any(each.self_play is not None for each in settings)
    evaluation = options.evaluation if not rated and (metric or _EVALUATION).startswith(_EVALUATION) else None
    name: str
    names: tuple[str, ...]
    if metric is not None:
        name, names = metric, (metric, metric_of(metric))
    elif rated:
        name, names = _RATING, (_RATING,)
    elif evaluation is not None:
        name, names = "return of evaluations", tuple(_EVALUATION + each for each in _RETURNS)
    else:
        name, names = "return", _RETURNS
    key = "summary_freq" if evaluation is None else "evaluation.every_steps"
    interval = max(each.summary_freq for each in settings) if evaluation is None else evaluation.every_steps
    budget = min(each.max_steps for each in settings)
    if interval > budget:
        raise UserError(
            f"{key}: expected at most the max_steps of {budget:,}, got {interval:,}: a trial would end before its "
            "first value of the objective"
        )
    return Objective(name, tuple(dict.fromkeys(names)), behavior, interval, budget // interval)
