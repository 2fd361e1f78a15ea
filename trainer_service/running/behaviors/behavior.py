"""A behavior: its policy, its collector in all simulators, and its learning algorithm."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute, LearnerFactory, make_learner
from trainer_service.learning.algorithms.common.checks import require_actions
from trainer_service.learning.algorithms.common.observation_selection import with_sharing
from trainer_service.learning.networks.threads import Threads
from trainer_service.running.behaviors.returns import Returns
from trainer_service.running.behaviors.self_play import SelfPlay, TurnScheduler
from trainer_service.running.behaviors.step_rate import StepRate
from trainer_service.running.callbacks import CallbackList
from trainer_service.running.collection.collector import learner_and_collector
from trainer_service.running.collection.opponents import FixedOpponent
from trainer_service.running.collection.records import SampleBatch
from trainer_service.running.collection.router import EnvSteps
from trainer_service.running.metrics import Statistics, Summary
from trainer_service.running.runs.replay_file import ReplayFile
from unity_bridge.errors import PluginError
from unity_bridge.side_channels import StatMessage
from unity_bridge.specs import BehaviorSpec

_logger = logging.getLogger(__name__)


class Behavior:
    """A policy with its rollout and its algorithm, for all simulators and sides with the behavior's name."""

    def __init__(
        self,
        name: str,
        spec: BehaviorSpec,
        settings: TrainerSettings,
        compute: Compute,
        *,
        learns: bool = True,
        callbacks: CallbackList | None = None,
        is_watched: bool = True,
        turn_scheduler: TurnScheduler | None = None,
        fixed_opponents: Sequence[FixedOpponent] = (),
        make_learner: LearnerFactory = make_learner,
        env_steps: EnvSteps | None = None,
    ) -> None:
        """Raises UserError if the settings do not support the behavior's observations or actions.

        is_watched: whether lessons use its progress. Only then are returns kept for them.
        turn_scheduler: the turns of all behaviors under self-play; None if there are no others.
        fixed_opponents: the unchanging players in its pool of opponents.
        make_learner: makes the learner, from the behavior as the learner observes it.
        env_steps: the environment steps of the run.
        """
        settings = with_sharing(settings, spec)
        self.name = name
        self.spec = spec
        self.settings = settings
        self.step = 0
        """Agent steps: actions with a known reward and next state. Under self-play, only those of learning sides."""
        self.env_steps = env_steps or EnvSteps()
        """Environment steps of the run, which all behaviors share, and their budget."""
        self.episodes = 0
        """Ended episodes of agents. Under self-play, only those of learning sides."""
        self.longest_episode = 0
        """Decisions in the longest of these episodes. In a resumed run, it starts with the mean episode length."""
        self.updates = 0
        """Updates in this process."""
        self.compute = compute
        """Settings of its learner's computation: device, precision and the seed of random streams."""
        self.diverged = False
        """Whether the weights are not finite. They must not replace a good checkpoint."""
        self.threads: Threads | None = None
        """Torch's threads for its updates; None leaves them unchanged."""
        self.replay_file: ReplayFile | None = None
        """The file of its replay buffer, after the first save; see ``behaviors.saving``."""
        self.learns = learns
        """Whether it learns until its budget is used up. Otherwise it only acts."""
        self.returns = Returns(name, spec, is_watched=is_watched and learns)
        """Returns since the last checkpoint, and returns for lessons."""
        self._callbacks = callbacks or CallbackList()
        self._statistics = Statistics(name)
        self._step_rate = StepRate()
        self.self_play: SelfPlay | None = None
        """Its part in self-play; None without self-play."""
        if settings.self_play is not None and learns:
            scheduler = turn_scheduler or TurnScheduler()
            self.self_play = SelfPlay(settings.self_play, scheduler, compute.seed, fixed_opponents)
        with _naming(name, ValueError, PluginError):
            require_actions(settings, spec.action_spec)
            self.learner, self.collector = learner_and_collector(
                name, spec, settings, compute, self.self_play, make_learner=make_learner
            )
        with _naming(name, UserError):
            if (opponents := self.collector.opponents) is not None:
                for each in fixed_opponents:
                    opponents.fixed_actor(each)
        self.resume_at(0, 0)

    def resume_at(self, step: int, episodes: int) -> None:
        """Continues the counts of a resumed run."""
        self.step, self.episodes = step, episodes
        self.longest_episode = step // max(episodes, 1)
        self._was_finished = self.finished
        """Whether it was finished at the last summary."""
        self._next_summary = (step // self.settings.summary_freq + 1) * self.settings.summary_freq
        self._step_rate.restart(step)

    def prepare(self) -> None:
        """Reads its other inputs, such as demonstrations. Raises UserError."""
        if not self.learns:
            return
        with _naming(self.name, UserError):
            self.learner.prepare(self.step)

    @property
    def has_experience(self) -> bool:
        """Whether its agents have taken steps, in this run or the resumed one."""
        return self.step > 0 or (self.self_play is not None and self.self_play.ghost_steps > 0)

    @property
    def training(self) -> bool:
        """Whether it still learns from trajectories."""
        return self.learns and not self.finished

    @property
    def finished(self) -> bool:
        """Whether the budget of steps, of episodes or of the run's environment steps is used up.

        A behavior that only acts has no budget.
        """
        most = self.settings.max_episodes
        used_up = self.step >= self.settings.max_steps or (most is not None and self.episodes >= most)
        return self.learns and (used_up or self.env_steps.used_up)

    @property
    def steps_per_s(self) -> float:
        """Agent steps per second, for display."""
        return self._step_rate.now(self.step, finished=self.finished)

    def add(self, batch: SampleBatch) -> None:
        """Adds collected experience: counts its steps and episodes, and records trajectories for learning."""
        if batch.replaced_values:
            self._statistics.add_replaced_values(batch.replaced_values)
        if self.self_play is not None and not self.self_play.learns(batch.team):
            self.self_play.ghost_steps += batch.transitions
            return
        training = (
            self.training
        )  # before counting the steps, since those that use up the budget are learned from
        self.step += batch.transitions
        if batch.episodes is not None:
            self.episodes += len(batch.episodes.lengths)
            self.longest_episode = max(self.longest_episode, int(batch.episodes.lengths.max(initial=0)))
            self.returns.add(batch.episodes, self._statistics)
            self._callbacks.on_episode_end(self.name, batch.episodes)
        if self.self_play is not None and batch.results is not None:
            for rating in self.self_play.rate(batch.results.tolist()):
                self._statistics.add("Self-play/ELO", rating)
            for opponent in self.self_play.opponents_in_words() if len(batch.results) else ():
                self._statistics.add(f"Self-play/Win Rate/{opponent}", batch.results)
        if batch.trajectories is not None and training:
            self.learner.record(self._callbacks.on_collection(self.name, batch.trajectories))

    def add_stat(self, stat: StatMessage, *, is_own: bool = False) -> bool:
        """Adds a statistic to the next summary; see ``Statistics``. Returns False if there are too many names."""
        return self._statistics.add_stat(stat, is_own=is_own)

    def ready_to_update(self) -> bool:
        """Whether there is enough experience for an update."""
        return self.learns and self.learner.ready()

    def update(self) -> Mapping[str, float]:
        """Makes an update from the collected experience. Returns losses and statistics by tag.

        Raises:
            UserError: A loss or statistic is NaN or infinite. The behavior is ``diverged`` from now on.
        """
        if self.env_steps.budget is not None:
            self.learner.schedule_lead = max(
                0, int(self.env_steps.share * self.settings.max_steps) - self.step
            )
        with nullcontext() if self.threads is None else self.threads.for_update():
            metrics = self.learner.update(self.step + self.learner.schedule_lead)
        self.updates += 1
        broken = [tag for tag, value in metrics.items() if not math.isfinite(value)]
        if broken:
            self.diverged = True
            raise UserError(
                f"behavior '{self.name}' diverged at step {self.step}: {', '.join(broken)} became NaN or "
                "infinite. The last checkpoint is good; a smaller learning_rate (or max_grad_norm) usually helps."
            )
        for tag, value in metrics.items():
            self._statistics.add(tag, value)
        return metrics

    def summary_due(self) -> bool:
        """Whether a multiple of ``summary_freq`` was reached since the last summary."""
        return self.step >= self._next_summary

    def summarize(self, wall_s: float) -> Summary:
        """Returns the summary since the last one. Its step is the last multiple of ``summary_freq``."""
        frequency = self.settings.summary_freq
        at = self.step // frequency * frequency
        self._next_summary = at + frequency
        learned = self.learns and not self._was_finished
        self._was_finished = self.finished
        steps_per_s = self._step_rate.summarize(self.step)
        summary = self._statistics.drain(step=at, wall_s=wall_s, steps_per_s=steps_per_s, is_training=learned)
        return replace(summary, env_steps=self.env_steps.taken)

    def partial_summary(self, wall_s: float) -> Summary:
        """Returns the present state of the next summary."""
        return self._statistics.so_far(
            step=self.step, wall_s=wall_s, steps_per_s=self.steps_per_s, is_training=self.training
        )

    @property
    def collected(self) -> tuple[int, int] | None:
        """Steps collected for the next update, and the steps that it needs; None if updates do not wait for steps."""
        return self.learner.collected() if self.training else None


@contextmanager
def _naming(behavior: str, *kinds: type[Exception]) -> Iterator[None]:
    """Converts exceptions of these kinds to UserErrors that name the behavior."""
    try:
        yield
    except kinds as error:
        if isinstance(error, PluginError) and error.__cause__ is not None:
            _logger.error("A plugin failed:", exc_info=error.__cause__)
        raise UserError(f"behavior '{behavior}': {error}") from None
