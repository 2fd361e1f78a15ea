"""The study of a sweep: Optuna draws values, compares trials, and keeps all of it in a journal.

Only this module imports Optuna. It is imported after ``require_optuna``.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import optuna
from optuna.importance import PedAnovaImportanceEvaluator, get_param_importances
from optuna.pruners import BasePruner, HyperbandPruner, MedianPruner, NopPruner
from optuna.samplers import BaseSampler, RandomSampler, TPESampler
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import Trial, TrialState

from trainer_service.commands.search.space import Parameter, Space, label
from trainer_service.commands.search.trial_record import Direction, Pruner, SamplerName, State, TrialRecord
from trainer_service.errors import UserError
from trainer_service.running.metrics.jsonl import JsonLines, read_lines
from trainer_service.running.runs.files import SaveError, object_in

_VALUES, _STEPS, _MESSAGE = "values", "steps", "message"
"""Attributes of trials in the journal."""
_WARMUP_SHARE = 1 / 3
"""Share of a trial's summaries before the median prunes it."""
_SEEDS = 2**32


def _sampler(name: SamplerName, seed: int) -> BaseSampler:
    return TPESampler(seed=seed) if name == "tpe" else RandomSampler(seed=seed)


def _pruner(name: Pruner, reports: int) -> BasePruner:
    """A pruner. reports: the number of values that a whole trial reports."""
    if name == "median":
        return MedianPruner(n_warmup_steps=int(reports * _WARMUP_SHARE))
    return HyperbandPruner(max_resource=max(reports, 1)) if name == "hyperband" else NopPruner()


class SweepStudy:
    """The trials of a sweep. Every change is in the journal before a method returns, and survives a kill.

    One process at a time may have it open.
    """

    def __init__(
        self,
        journal: Path | None,
        space: Space,
        *,
        direction: Direction,
        sampler: SamplerName,
        pruner: Pruner,
        reports: int,
        seed: int,
    ) -> None:
        """Opens the study, which is made if it is missing.

        Args:
            journal: its file; None keeps it in memory.
            space: the parameters.
            direction: of the objective.
            sampler, pruner: as in ``SweepSettings``.
            reports: the number of values that a whole trial reports.
            seed: of the sampler. Draws depend on it, on the trial's number and on the trials before.
        """
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._space = space
        self._sampler, self._seed = sampler, seed
        self._study: optuna.Study = optuna.create_study(
            storage=None if journal is None else _storage(journal),
            study_name="sweep",
            direction=direction,
            pruner=_pruner(pruner, reports),
            load_if_exists=True,
        )

    def ask(self) -> TrialRecord:
        """Begins a trial."""
        number = len(self._study.get_trials(deepcopy=False))
        # A seed for each trial: a sampler that started again in a resumed sweep would draw the same values again.
        self._study.sampler = _sampler(self._sampler, (self._seed * 1_000_003 + number) % _SEEDS)
        trial = self._study.ask()
        self._draw(trial)
        return _record(self._frozen(trial.number))

    def trials(self) -> list[TrialRecord]:
        """All trials, by number."""
        return list(map(_record, self._study.get_trials(deepcopy=False)))

    def interrupted(self) -> list[TrialRecord]:
        """Returns the trials that an earlier process left running. Draws values that they do not have yet."""
        left = [each for each in self._study.get_trials(deepcopy=False) if not each.state.is_finished()]
        for trial in left:
            self._draw(self._trial(trial.number))
        return [_record(self._frozen(trial.number)) for trial in left]

    def report(self, number: int, at: int, value: float) -> bool:
        """Reports the value of a running trial at its summary number ``at``. Returns whether to prune the trial."""
        trial = self._trial(number)
        if at not in self._frozen(number).intermediate_values:
            trial.report(value, at)
        return bool(trial.should_prune())

    def complete(self, number: int, score: float, steps: int) -> None:
        """Ends a trial with its score."""
        self._end(number, "COMPLETE", steps, score)

    def prune(self, number: int, steps: int) -> None:
        """Ends a trial that is worse than others."""
        self._end(number, "PRUNED", steps)

    def fail(self, number: int, steps: int, message: str) -> None:
        """Ends a trial that has no score."""
        self._trial(number).set_user_attr(_MESSAGE, message)
        self._end(number, "FAIL", steps)

    @property
    def best(self) -> TrialRecord | None:
        """The complete trial with the best score; None before the first."""
        try:
            return _record(self._study.best_trial)
        except ValueError:
            return None

    def importances(self) -> dict[str, float]:
        """The share of each parameter in the differences of scores, largest first.

        By PED-ANOVA. Empty for fewer than two complete trials, or where all have one score.
        """
        scores = {trial.score for trial in self.trials() if trial.state == "complete"}
        if len(scores) < 2:
            return {}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the evaluator is new in Optuna; others need scikit-learn
            try:
                return dict(get_param_importances(self._study, evaluator=PedAnovaImportanceEvaluator()))
            except (ValueError, RuntimeError):  # no parameter has two values
                return {}

    def _draw(self, trial: Trial) -> None:
        """Draws the values of a trial. Values that it has already stay."""
        values = self._space.draw(lambda path, parameter: _suggested(trial, path, parameter))
        trial.set_user_attr(_VALUES, values)

    def _trial(self, number: int) -> Trial:
        return Trial(self._study, self._frozen(number)._trial_id)

    def _frozen(self, number: int) -> Any:
        return self._study.get_trials(deepcopy=False)[number]

    def _end(self, number: int, state: str, steps: int, score: float | None = None) -> None:
        self._trial(number).set_user_attr(_STEPS, steps)
        self._study.tell(number, score, state=TrialState[state])


def _record(frozen: Any) -> TrialRecord:
    """The record of a trial of Optuna."""
    states: Mapping[str, State] = {"COMPLETE": "complete", "PRUNED": "pruned", "FAIL": "failed"}
    return TrialRecord(
        number=frozen.number,
        state=states.get(frozen.state.name, "running"),
        values=frozen.user_attrs.get(_VALUES, {}),
        score=frozen.value,
        steps=frozen.user_attrs.get(_STEPS, 0),
        message=frozen.user_attrs.get(_MESSAGE, ""),
    )


def _storage(journal: Path) -> Any:
    """The storage in a file. The remains of a killed process, half a line or a lock, are removed."""
    journal = journal.absolute()  # the lock is a link to it, from its own folder
    for number, line in enumerate(read_lines(journal), 1):
        if object_in(line) is None and line.endswith(b"\n"):
            raise UserError(f"{journal}:{number}: expected a JSON object, an entry of a sweep's journal")
    JsonLines(journal)
    lock = journal.with_name(f"{journal.name}.lock")
    try:
        lock.unlink(missing_ok=True)
    except OSError as error:
        raise SaveError(lock, error) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # experimental in some versions
        try:
            return JournalStorage(JournalFileBackend(str(journal)))
        except Exception as error:  # whatever Optuna raises for entries that make no sense
            why = f"{type(error).__name__}: {error}"
            raise UserError(f"'{journal}' is damaged. Optuna cannot read it: {why:.200}") from error


def _suggested(trial: Trial, path: str, parameter: Parameter) -> Any:
    """The value of a parameter in a trial."""
    if parameter.low is not None and parameter.high is not None:
        if parameter.int:
            step = int(parameter.step or 1)
            low, high = int(parameter.low), int(parameter.high)
            return trial.suggest_int(path, low, high - (high - low) % step, step=step, log=parameter.log)
        high = parameter.number(parameter.high)
        drawn = trial.suggest_float(path, parameter.low, high, step=parameter.step, log=parameter.log)
        return parameter.number(drawn)
    if parameter.choices is None:
        return parameter.fixed
    labels: Sequence[str] = [label(choice) for choice in parameter.choices]
    return parameter.choices[labels.index(trial.suggest_categorical(path, labels))]
