"""One behavior: a policy, what it collects in all simulators, and the algorithm that learns from it."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.algorithms import Compute, LearnerFactory, PolicyNetwork, make_learner
from trainer_service.algorithms.common.checks import require_actions
from trainer_service.algorithms.common.member_policy import ExportedNetwork, models_of
from trainer_service.algorithms.common.observation_selection import selector_for, with_sharing
from trainer_service.behaviors.self_play import SelfPlay, TurnScheduler
from trainer_service.behaviors.step_rate import StepRate
from trainer_service.callbacks import CallbackList, EndedEpisodes
from trainer_service.collection.behavior_tick import BehaviorTick
from trainer_service.collection.collector import Collector
from trainer_service.collection.opponents import FixedOpponent, OpponentPolicies, Weights
from trainer_service.collection.sample_batch import SampleBatch
from trainer_service.config import TrainerSettings, changed_activations, changed_networks
from trainer_service.curriculum import Progress
from trainer_service.errors import UserError
from trainer_service.metrics import MEMBER_REWARD, Statistics, Summary
from trainer_service.networks.threads import Threads
from trainer_service.runs.checkpoint import MISFIT_ERRORS, Checkpoint, spec_mismatch
from trainer_service.runs.replay_file import ReplayFile, ReplaySave, ReplayStamp
from unity_bridge.errors import PluginError
from unity_bridge.side_channels import StatMessage
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

_logger = logging.getLogger(__name__)


class Behavior:
    """A policy with its rollout and its algorithm, for every simulator and side that shares the behavior's name."""

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
    ) -> None:
        """Raises UserError where the settings cannot serve what the behavior sees and does.

        is_watched: whether somebody asks for its progress: only then are returns kept for that.
        turn_scheduler: where it meets other behaviors under self-play; None where there are no others.
        fixed_opponents: players in its pool of opponents that do not change.
        make_learner: from the behavior as its learner sees it.
        """
        settings = with_sharing(settings, spec)
        self.name = name
        self.spec = spec
        self.settings = settings
        self.step = 0
        """Agent steps: actions with a known reward and next state. Under self-play those of learning sides."""
        self.episodes = 0
        """Episodes of agents that ended. Under self-play those of learning sides."""
        self.longest_episode = 0
        """Decisions of the longest of these; where a run goes on, those of its mean episode are known at first."""
        self.updates = 0
        """Updates that this process has made."""
        self.seed = compute.seed
        """The seed that its random streams are derived from."""
        self.device = compute.device
        """Where its networks are."""
        self.precision = compute.precision
        """The precision in which its policy encodes pictures."""
        self.diverged = False
        """Whether the weights are not finite any more, and so must not replace a good checkpoint."""
        self._threads: Threads | None = None
        self._replay_file: ReplayFile | None = None
        self.learns = learns
        """Whether it learns until its budget is used up, or only acts."""
        self._is_watched = is_watched
        self._callbacks = callbacks or CallbackList()
        self._statistics = Statistics(name)
        self._next_summary = settings.summary_freq
        self._step_rate = StepRate()
        self._was_finished = self.finished
        """Whether it was finished at the last summary."""
        self._returns_since_save: dict[str, tuple[float, int]] = {}
        """Sum and number of the returns that count; of a heterogeneous group those of each member, by behavior."""
        self._returns_since_progress: list[float] = []
        self._agent_members = np.array(spec.agent_members, np.int64)
        """The number of the member that each agent index belongs to, in a heterogeneous group."""
        try:
            require_actions(settings, spec.action_spec)
            self._selector = selector_for(spec, settings)
            self.learner = make_learner(self._selector.spec, settings, compute)
        except ValueError as error:
            raise UserError(f"behavior '{name}': {error}") from None
        except PluginError as error:
            if error.__cause__ is not None:
                _logger.error("A plugin failed:", exc_info=error.__cause__)
            raise UserError(f"behavior '{name}': {error}") from None
        self.self_play: SelfPlay | None = None
        """Its part in self-play; None without."""
        self._opponents: OpponentPolicies | None = None
        if settings.self_play is not None and learns:
            scheduler = turn_scheduler or TurnScheduler()
            self.self_play = SelfPlay(settings.self_play, scheduler, compute.seed, fixed_opponents)
            self._opponents = OpponentPolicies(self.self_play, self.learner.actor, compute, spec)
            self._check_fixed(self._opponents, fixed_opponents)
        self.collector = Collector(
            name, settings, self._selector, self.learner.actor, self.learner.horizon, self._opponents
        )
        """The other half of the behavior, where its simulators are this process's own."""

    def _check_fixed(self, policies: OpponentPolicies, opponents: Sequence[FixedOpponent]) -> None:
        for each in opponents:
            try:
                policies.fixed_actor(each)
            except UserError as error:
                raise UserError(f"behavior '{self.name}': {error}") from None

    def prepare(self) -> None:
        """Reads what it learns from besides trajectories, such as demonstrations. Raises UserError."""
        if not self.learns:
            return
        try:
            self.learner.prepare(self.step)
        except UserError as error:
            raise UserError(f"behavior '{self.name}': {error}") from None

    @property
    def has_experience(self) -> bool:
        """Whether any step of its agents is known, in this run or the one that it goes on from."""
        return self.step > 0 or (self.self_play is not None and self.self_play.ghost_steps > 0)

    @property
    def training(self) -> bool:
        """Whether it still learns from trajectories."""
        return self.learns and not self.finished

    @property
    def finished(self) -> bool:
        """Whether the budget of steps, or that of episodes, is used up. A behavior that only acts has none."""
        most = self.settings.max_episodes
        used_up = self.step >= self.settings.max_steps or (most is not None and self.episodes >= most)
        return self.learns and used_up

    @property
    def steps_per_s(self) -> float:
        """Agent steps per second, as they are shown."""
        return self._step_rate.now(self.step, finished=self.finished)

    def observe(self, steps: BehaviorTick) -> None:
        """Collects a tick, and adds what it completed. Raises like ``Collector.observe``."""
        self.add(self.collector.observe(steps))

    def add(self, batch: SampleBatch) -> None:
        """Takes in what was collected: its steps and episodes count, its trajectories are learned from."""
        if batch.replaced_values:
            self._statistics.add_replaced_values(batch.replaced_values)
        if self.self_play is not None and not self.self_play.learns(batch.team):
            self.self_play.ghost_steps += batch.transitions
            return
        training = self.training  # before the steps count: those that use up the budget are learned from
        self.step += batch.transitions
        if batch.episodes is not None:
            self._report(batch.episodes)
        if self.self_play is not None and batch.results is not None:
            for rating in self.self_play.rate(batch.results.tolist()):
                self._statistics.add("Self-play/ELO", rating)
            for opponent in self.self_play.opponents_in_words() if len(batch.results) else ():
                self._statistics.add(f"Self-play/Win Rate/{opponent}", batch.results)
        if batch.trajectories is not None and training:
            self.learner.record(self._callbacks.on_collection(self.name, batch.trajectories))

    def _count_since_save(self, name: str, returns: NDArray[np.float64]) -> None:
        total, count = self._returns_since_save.get(name, (0.0, 0))
        self._returns_since_save[name] = (total + float(returns.sum()), count + len(returns))

    def _report(self, episodes: EndedEpisodes) -> None:
        """Adds ended episodes to what is reported."""
        returns = episodes.returns
        self.episodes += len(returns)
        if len(returns):
            self.longest_episode = max(self.longest_episode, int(episodes.lengths.max()))
            self._statistics.add_episodes(returns, episodes.lengths)
            for number, member in enumerate(self.spec.members):
                of_member = returns[self._agent_members[episodes.agent_indices] == number]
                if len(of_member):
                    self._count_since_save(member.behavior, of_member)
                    self._statistics.add(f"{MEMBER_REWARD}{member.behavior}", of_member)
        counted = episodes.counted_returns
        if len(counted):
            self._count_since_save(self.name, counted)
            if self._is_watched:
                self._returns_since_progress.extend(counted.tolist())
        if len(episodes.group_returns):
            self._statistics.add_group_episodes(episodes.group_returns)
        self._callbacks.on_episode_end(self.name, episodes)

    def add_stat(self, stat: StatMessage) -> bool:
        """Adds a simulator's statistic to the next summary. False where there are too many names already."""
        return self._statistics.add_stat(stat)

    def act(self) -> list[ActionBatch]:
        """Decides for all agents that wait; one batch per observed tick, in order."""
        return self.collector.act()

    def weights(self) -> Weights:
        """A copy of what the newest policy acts with."""
        return self.learner.actor.weights()

    def use_threads(self, threads: Threads) -> None:
        """Lets updates and large decisions have these threads of torch's from now on."""
        self._threads = self.collector.threads = threads

    def ready_to_update(self) -> bool:
        """Whether enough was collected for an update, and there is still something to learn."""
        return self.learns and self.learner.ready()

    def update(self) -> Mapping[str, float]:
        """Learns from what was collected. Returns losses and statistics by tag.

        Raises:
            UserError: the update left something that is no number; the behavior is ``diverged`` from now on.
        """
        with nullcontext() if self._threads is None else self._threads.for_update():
            metrics = self.learner.update(self.step)
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
        """A summary of everything since the last one, placed at the multiple of ``summary_freq`` just reached."""
        frequency = self.settings.summary_freq
        at = self.step // frequency * frequency
        self._next_summary = at + frequency
        learned = self.learns and not self._was_finished
        self._was_finished = self.finished
        steps_per_s = self._step_rate.summarize(self.step)
        return self._statistics.drain(step=at, wall_s=wall_s, steps_per_s=steps_per_s, is_training=learned)

    def partial_summary(self, wall_s: float) -> Summary:
        """The next summary as it would be if it were due now."""
        return self._statistics.so_far(
            step=self.step, wall_s=wall_s, steps_per_s=self.steps_per_s, is_training=self.training
        )

    @property
    def collected(self) -> tuple[int, int] | None:
        """Steps that wait for the next update, and how many it takes; None where updates do not wait for steps."""
        return self.learner.collected() if self.training else None

    def drain_mean_returns(self) -> dict[str, float]:
        """Mean returns of the episodes since the last call, for the lists of checkpoints: see ``models`` for names.

        Absent where none ended. Of a member of a heterogeneous group they are its agents' own, else those that count.
        """
        found, self._returns_since_save = self._returns_since_save, {}
        return {name: total / count for name, (total, count) in found.items()}

    def drain_progress(self) -> Progress | None:
        """Progress since the last call, for lessons that watch the behavior; None where it does not learn."""
        returns, self._returns_since_progress = self._returns_since_progress, []
        return Progress(self.step / max(self.settings.max_steps, 1), returns) if self.learns else None

    def acting_state(self) -> Mapping[str, Any]:
        """Everything that acting depends on but random streams: tensors and plain Python only, not copied."""
        return self.learner.actor.state_dict()

    def checkpoint(self) -> Checkpoint:
        """The behavior as it is now."""
        self_play = None
        if self.self_play is not None and self._opponents is not None:
            self_play = {"rules": self.self_play.state_dict(), **self._opponents.state_dict()}
        return Checkpoint(
            self.name,
            self.step,
            self.spec,
            self.settings,
            self.learner.state_dict(),
            self_play,
            self.episodes,
        )

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """Arrays that are saved beside the checkpoint; None where there are none."""
        return self.learner.replay_state()

    def hold_replay(self, path: Path) -> ReplaySave | None:
        """What writes the replay buffer as it is now beside the checkpoint; None where there is none."""
        if (arrays := self.replay_state()) is None:
            return None
        if self._replay_file is None or self._replay_file.path != path:
            self._replay_file = ReplayFile(path)
        return self._replay_file.hold(arrays)

    def models(self) -> dict[str, tuple[ExportedNetwork, BehaviorSpec]]:
        """Copies of the acting networks for export, with their inputs, by the behavior or the group's member."""
        hyper = self.settings.hyperparameters
        return models_of(self.policy_network(), self.name, self._selector, hyper)

    def policy_network(self) -> PolicyNetwork:
        """A copy of the network that acts, for all members of a team."""
        network = self.learner.actor.policy_network()
        network.input_sensors = self._selector.input_sensors
        return network

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continues from a checkpoint of this run. Raises UserError where it is of another behavior."""
        self._check_fits(checkpoint)
        self._load(checkpoint, weights_only=False)
        self.step = checkpoint.step
        self.episodes = checkpoint.episodes
        self.longest_episode = self.step // max(self.episodes, 1)
        self._was_finished = self.finished
        self._next_summary = (self.step // self.settings.summary_freq + 1) * self.settings.summary_freq
        self._step_rate.restart(self.step)

    def restore_replay(self, path: Path) -> ReplayStamp | None:
        """Restores the replay buffer that was saved beside the checkpoint. Raises UserError where it is damaged.

        Returns when it was saved; None where an earlier version did not write that down.
        """
        self._replay_file = ReplayFile(path)
        return self._replay_file.load(self.learner.load_replay_state)

    def initialize(self, checkpoint: Checkpoint) -> None:
        """Starts from the weights of another run, at step 0. Raises UserError where they do not fit."""
        self._check_fits(checkpoint)
        self._load(checkpoint, weights_only=True)

    def _check_fits(self, checkpoint: Checkpoint) -> None:
        changed = spec_mismatch(checkpoint.spec, self.spec)
        counts = [[each.num_agents for each in spec.members] for spec in (checkpoint.spec, self.spec)]
        if changed is None and counts[0] != counts[1]:
            names = ", ".join(f"'{member.behavior}'" for member in self.spec.members)
            changed = f"a group had at most {counts[0]} agents of {names}, now {counts[1]}"
        if changed:
            raise UserError(f"behavior '{self.name}' is not what its checkpoint was trained for: {changed}")
        if checkpoint.settings.trainer_type != self.settings.trainer_type:
            raise UserError(
                f"behavior '{self.name}': the checkpoint is of trainer type "
                f"'{checkpoint.settings.trainer_type}', the configuration says '{self.settings.trainer_type}'"
            )
        if changes := changed_activations(checkpoint.settings, self.settings):
            raise self._misfit(", ".join(changes))

    def _load(self, checkpoint: Checkpoint, *, weights_only: bool) -> None:
        load = self.learner.load_weights if weights_only else self.learner.load_state_dict
        try:
            load(checkpoint.algorithm)
            saved = None if weights_only else checkpoint.self_play
            if self.self_play is not None and self._opponents is not None and saved is not None:
                self.self_play.load_state_dict(saved["rules"])
                self._opponents.load_state_dict(saved)
        except MISFIT_ERRORS as error:
            changed = changed_networks(checkpoint.settings, self.settings)
            raise self._misfit(", ".join(changed) or " ".join(str(error).split())[:300]) from None

    def _misfit(self, why: str) -> UserError:
        return UserError(
            f"behavior '{self.name}': the checkpoint does not fit the configured networks: {why}"
        )
