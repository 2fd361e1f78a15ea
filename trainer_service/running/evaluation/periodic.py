"""Evaluations during a run: when they are due, where scores go, and which policy was the best."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path

import numpy as np

from trainer_service.config import EvaluationSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.member_policy import ExportModel
from trainer_service.learning.rollout.episode_scores import Evaluation, Score
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.callbacks import CallbackError, SimulatorStep
from trainer_service.running.curriculum import Curriculum
from trainer_service.running.evaluation.evaluate import PolicyActors, score
from trainer_service.running.evaluation.loop import EpisodeLoop, PlayStopped
from trainer_service.running.evaluation.simulator import EvaluationSimulator
from trainer_service.running.metrics import (
    EpisodeStats,
    JsonLines,
    Series,
    Summary,
    SummaryWriter,
    format_return,
)
from trainer_service.running.policy import Policy
from trainer_service.running.runs.checkpoint import Checkpoint, NotFiniteError, save_checkpoint
from trainer_service.running.runs.files import SaveError
from trainer_service.running.runs.folder import RunFolder
from unity_bridge.errors import BridgeError

_LEAST_LIMIT = 1000
"""Steps at which an episode may be cut, at least, where the configuration does not say."""

_MARGIN = 10
"""How many times longer than in training an episode may be."""

_logger = logging.getLogger(__name__)


def step_limit(behaviors: Iterable[Behavior]) -> int:
    """The steps after which an episode of an evaluation is cut, where the configuration does not say.

    It is ten times the longest training episode so far. While none has ended, ten times the steps so far, but no more
    than 10,000, for then perhaps none ever will: an evaluation must not take longer and longer.
    """
    longest = max(
        each.longest_episode if each.episodes else min(each.step, _LEAST_LIMIT) for each in behaviors
    )
    return max(_LEAST_LIMIT, _MARGIN * longest)


@dataclass(eq=False)
class PeriodicEvaluator:
    """Evaluator of a run's policies, whenever another ``every_steps`` agent steps were made.

    Every evaluation starts a simulator of its own, with the same seeds each time: scores can be compared, and a
    run that is resumed continues as if it had never stopped. Nothing random of the training is touched. An
    evaluation that fails costs a warning, not the run.
    """

    settings: EvaluationSettings
    """When and what to evaluate."""

    simulator: EvaluationSimulator
    folder: RunFolder
    """The run's folder, which is written to."""

    curriculum: Curriculum
    """The run's curriculum: policies play in its lessons."""

    _: KW_ONLY
    export_model: ExportModel | None = None
    """Writes the models of the best policies; None for no models."""

    writers: Sequence[SummaryWriter] = ()
    """Get scores and films."""

    progress: Callable[[int, int], None] = lambda done, wanted: None
    """Told at least twice a second how many episodes of how many are done."""

    stop_requested: Callable[[], bool] = lambda: False
    """Whether to give up an evaluation in progress."""

    on_step: Callable[[str, SimulatorStep], None] | None = None
    """As for ``score``."""

    def __post_init__(self) -> None:
        self._done = (0, 0)
        """Episodes of the evaluation in progress, and how many there will be."""
        self._log = JsonLines(self.folder.evaluations)
        self._started = time.perf_counter()
        self._next = 0
        self._best: dict[str, float] = {}
        """The best score of each behavior that showed up; −∞ without any."""
        self._improved: set[str] = set()
        self._has_told_of_cuts = False

    def maybe_evaluate(self, behaviors: Mapping[str, Behavior]) -> list[Evaluation]:
        """Evaluates where that is due. Returns an evaluation for each behavior; none where it is not due, or failed."""
        for behavior in behaviors.values():
            if behavior.name not in self._best:
                self._register(behavior)
        if not behaviors or max(behavior.step for behavior in behaviors.values()) < self._next:
            return []
        self._next = self._next_due_after(max(behavior.step for behavior in behaviors.values()))
        checkpoints = {name: checkpoint_of(each) for name, each in behaviors.items() if not each.diverged}
        policies = {
            name: Policy(checkpoint, seed=self.settings.seed) for name, checkpoint in checkpoints.items()
        }
        step = max(checkpoint.step for checkpoint in checkpoints.values()) if checkpoints else 0
        film = self.folder.film(step) if self.settings.film else None
        limit = self.settings.max_episode_steps or step_limit(behaviors.values())
        try:
            scores = self._play(policies, limit, film)
        except PlayStopped:
            _logger.info("The evaluation was given up.")
            return []
        except CallbackError:
            raise
        except (UserError, BridgeError) as error:
            _logger.warning("An evaluation failed: %s. The run continues.", error)
            return []
        if film is not None:
            self._show(film, [checkpoints[name] for name in scores])
        self._tell_of_cuts(scores, limit)
        return [self._record(checkpoints[name], score) for name, score in scores.items()]

    def finish(self) -> None:
        """Writes the model of each behavior's best policy into the folder of its weights."""
        if self.export_model is None:
            return
        for name in sorted(self._improved):
            try:
                for each, policy in Policy.load(self.folder.best(name)).parts().items():
                    path = self.folder.best(each).with_suffix(".onnx")
                    self.export_model(policy.network(), policy.inputs, path)
                    _logger.info("Exported %s", path)
            except UserError as error:
                _logger.warning("'%s': %s. Its best weights are safe; export them later.", name, error)

    def _play(self, policies: Mapping[str, Policy], limit: int, film: Path | None) -> Mapping[str, Score]:
        """Scores policies on a simulator of their own. Raises PlayStopped, UserError or BridgeError.

        limit: steps at which an episode is cut.
        film: where the simulator leaves a film of the best episode; None for none.
        """
        settings = self.settings
        self._done = (0, settings.episodes)
        words = () if film is None else ("--record", str(film.absolute()), "--record-best")
        simulator = replace(self.simulator, lessons=self.curriculum.numbers, film=words)
        with simulator.open() as bridge:
            loop = EpisodeLoop(
                bridge,
                limit,
                option="evaluation.max_episode_steps",
                progress=self._count,
                check_stop=self._check_stop,
            )
            actors = PolicyActors(policies, deterministic=not settings.stochastic)
            return score(loop, actors, episodes=settings.episodes, on_step=self.on_step)

    def _tell_of_cuts(self, scores: Mapping[str, Score], limit: int) -> None:
        """Warns, once in a run, that episodes were cut at the default limit."""
        cut = ", ".join(
            f"{score.num_cut} of {len(score.returns)} of '{name}'"
            for name, score in scores.items()
            if score.num_cut
        )
        if cut and not self._has_told_of_cuts and self.settings.max_episode_steps is None:
            self._has_told_of_cuts = True
            _logger.warning(
                "Episodes of the evaluation had not ended after %s steps and were cut there (%s): that is %d times the "
                "longest training episode so far, at least %s. evaluation.max_episode_steps sets another limit.",
                f"{limit:,}", cut, _MARGIN, f"{_LEAST_LIMIT:,}",
            )  # fmt: skip

    def _show(self, film: Path, checkpoints: Sequence[Checkpoint]) -> None:
        """Shows a film beside the scores of all policies that played in it."""
        try:
            for checkpoint in checkpoints:
                for writer in self.writers:
                    writer.write_film(checkpoint.behavior, checkpoint.step, film)
        except (OSError, SaveError) as error:
            _logger.warning("There is no film of the evaluation: %s. The run continues.", error)
        else:
            _logger.info("Filmed %s", film)

    def _count(self, *episodes: int) -> None:
        self._done = (episodes[0], episodes[1])

    def _check_stop(self) -> None:
        self.progress(*self._done)
        if self.stop_requested():
            raise PlayStopped

    def _register(self, behavior: Behavior) -> None:
        """Reads the earlier scores of a resumed run."""
        name = behavior.name
        self._log.truncate_after(name, behavior.step)
        scores = [row.get("score") for row in self._log.rows() if row.get("behavior") == name]
        self._best[name] = max((score for score in scores if score is not None), default=-np.inf)
        self._next = max(self._next, self._next_due_after(behavior.step))

    def _next_due_after(self, step: int) -> int:
        return (step // self.settings.every_steps + 1) * self.settings.every_steps

    def _record(self, checkpoint: Checkpoint, score: Score) -> Evaluation:
        name = checkpoint.behavior
        is_best = score.value is not None and score.value > self._best[name]
        wall_s = time.perf_counter() - self._started
        evaluation = Evaluation(name, checkpoint.step, wall_s, score, is_best)
        try:
            if score.value is not None and is_best:
                # Weights first: a line about them must not be written before they are safe.
                save_checkpoint(checkpoint, self.folder.best(name))
                self._best[name] = score.value
                self._improved.add(name)
            self._log.append(evaluation.to_json())
            for writer in self.writers:
                writer.write_evaluation(_summary(evaluation))
        except (SaveError, NotFiniteError) as error:
            _logger.warning("%s. The run continues.", error)
        _logger.info("%s", _log_line(evaluation))
        return evaluation


def _summary(evaluation: Evaluation) -> Summary:
    """An evaluation as writers get it."""
    score = evaluation.score
    columns = {
        "Evaluation/Cumulative Reward": score.returns,
        "Evaluation/Group Cumulative Reward": score.group_returns,
        "Evaluation/Episode Length": score.lengths,
    }
    columns |= {f"Evaluation/Cumulative Reward/{name}": of for name, of in score.member_returns.items()}
    series = {
        tag: Series.of_samples(np.array(values, np.float64)) for tag, values in columns.items() if values
    }
    return Summary(
        behavior=evaluation.behavior,
        step=evaluation.step,
        wall_s=evaluation.wall_s,
        steps_per_s=0.0,
        stats=EpisodeStats(counted_returns=score.counted),
        series=series,
    )


def _log_line(evaluation: Evaluation) -> str:
    result = evaluation.score.to_json()
    words = [f"{evaluation.behavior}. Evaluation at step {evaluation.step}"]
    if result["episodes"]:
        mean, deviation = result["mean_return"], result["std_return"]
        words.append(
            f"Mean Reward: {format_return(mean, deviation)}. Std of Reward: {format_return(deviation, mean)}"
        )
    if result["group_episodes"]:
        words.append(f"Mean Group Reward: {format_return(result['mean_group_return'])}")
    words += [
        f"{name}: {format_return(of['mean_return'])}"
        for name, of in result.get("members", {}).items()
        if of["episodes"]
    ]
    if evaluation.score.num_cut:
        words.append(f"{evaluation.score.num_cut} of {result['episodes']} episodes cut")
    return ". ".join([*words, "Best so far." if evaluation.is_best else "Not the best."])
