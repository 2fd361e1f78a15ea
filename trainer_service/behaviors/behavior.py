"""One behavior name: who acts for it, what it lives through, and what it learns from that."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.algorithms import ALGORITHMS, Compute, PolicyNetwork
from trainer_service.algorithms.common.checks import require_actions
from trainer_service.algorithms.common.frozen_policy import ActingPolicy
from trainer_service.algorithms.common.observation_selection import selector_for
from trainer_service.behaviors.opponents import OpponentPolicies
from trainer_service.behaviors.self_play import SelfPlay, TurnScheduler
from trainer_service.callbacks import CallbackList, EndedEpisodes
from trainer_service.config import TrainerSettings, changed_networks
from trainer_service.curriculum import Progress
from trainer_service.errors import UserError
from trainer_service.metrics import Statistics, Summary
from trainer_service.rollout.agent_indices import AgentIndexAllocator, GroupMembership, reported_agent_indices
from trainer_service.rollout.agents import MAX_AGENTS, Keys, TooManyAgents
from trainer_service.rollout.assembler import Observed, TrajectoryAssembler
from trainer_service.rollout.group_returns import GroupEpisodes, GroupReturns, game_results
from trainer_service.runs.checkpoint import MISFIT_ERRORS, Checkpoint, spec_mismatch
from trainer_service.runs.replay_file import load_replay_file
from unity_bridge.arrays import Rows
from unity_bridge.errors import WireError
from unity_bridge.side_channels import StatMessage
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch, join_observations
from unity_bridge.throttled_logger import ThrottledLogger

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class TeamSteps:
    """One tick of one simulator, for the agents of one team of the behavior."""

    simulator: int
    team: int
    batch: StepBatch


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """Agents that the next ``act`` decides for."""

    rows: Rows
    observations: tuple[Observation, ...]
    allowed_actions: NDArray[np.bool_]


class Behavior:
    """Joins a policy, its rollout and its algorithm, for every simulator and team that shares the name."""

    def __init__(
        self,
        name: str,
        spec: BehaviorSpec,
        settings: TrainerSettings,
        compute: Compute,
        *,
        learns: bool = True,
        callbacks: CallbackList | None = None,
        turn_scheduler: TurnScheduler | None = None,
    ) -> None:
        """Raises UserError where the settings cannot serve what the behavior sees and does.

        turn_scheduler: where it meets other behaviors under self-play; None where there are no others.
        """
        self.name = name
        self.spec = spec
        self.settings = settings
        self.step = 0
        """Agent steps: actions whose consequence is known. Under self-play those of learning teams."""
        self.diverged = False
        """The weights are no numbers any more, and must not replace a good checkpoint."""
        self._learns = learns
        self._callbacks = callbacks or CallbackList()
        self._deterministic = settings.network_settings.deterministic
        self._statistics = Statistics(name)
        self._waiting: list[tuple[int, int, _Waiting]] = []
        """With the simulator and the team."""
        self._next_summary = settings.summary_freq
        self._last_summary = (0, time.perf_counter())
        self._groups = GroupReturns()
        self._throttled = ThrottledLogger(_logger)
        self._returns_since_save = (0.0, 0)
        """Their sum, and how many there were."""
        self._returns_since_progress: list[float] = []
        try:
            require_actions(settings, spec.action_spec)
            self._selector = selector_for(spec, settings)
            self._algorithm = ALGORITHMS[settings.trainer_type](self._selector.spec, settings, compute)
        except ValueError as error:
            raise UserError(f"behavior '{name}': {error}") from None
        self.opponents: OpponentPolicies | None = None
        """What its teams act with, under self-play."""
        if settings.self_play is not None and learns:
            rules = SelfPlay(settings.self_play, turn_scheduler or TurnScheduler(), compute.seed)
            self.opponents = OpponentPolicies(rules, self._algorithm, compute)
        self._agent_indices = AgentIndexAllocator() if settings.hyperparameters.learns_by_group else None
        self._max_group_size = settings.hyperparameters.max_group_size
        self._assembler = TrajectoryAssembler(
            self._selector.spec,
            self._algorithm.horizon,
            self._algorithm.memory_size,
            by_group=self._agent_indices is not None,
        )

    def prepare(self) -> None:
        """Reads what it learns from besides experience, if that is so from here on. Raises UserError."""
        if not self._learns:
            return
        try:
            self._algorithm.prepare(self.step)
        except UserError as error:
            raise UserError(f"behavior '{self.name}': {error}") from None

    @property
    def training(self) -> bool:
        """Whether what is lived through is still learned from."""
        return self._learns and not self.finished

    @property
    def finished(self) -> bool:
        """The step budget is used up. Who only acts has none."""
        return self._learns and self.step >= self.settings.max_steps

    @property
    def steps_per_s(self) -> float:
        """Agent steps per second since the last summary."""
        before, then = self._last_summary
        return (self.step - before) / max(time.perf_counter() - then, 1e-9)

    def observe(self, steps: TeamSteps) -> None:
        """Takes in a tick: rewards and ends belong to the previous actions; the rest waits for ``act``.

        Raises:
            UserError: it does not fit the configuration.
            WireError: it is more than is taken from one simulator.
        """
        training = self.training
        if len(steps.batch) > 2 * MAX_AGENTS:
            # Before anything is done with them: each takes memory, and time.
            raise WireError(
                f"behavior '{self.name}': expected at most {MAX_AGENTS} agents in one simulator, got a message of "
                f"{len(steps.batch)} rows"
            )
        if not self._waiting:
            self._assembler.tidy()  # nobody's row is remembered anywhere
        batch, membership = self._select_observations(steps)
        try:
            observed = self._assembler.observe(steps.simulator, steps.team, batch, membership)
        except TooManyAgents as error:
            raise WireError(f"behavior '{self.name}': {error}") from None
        if observed.vanished is not None:
            self._forget_vanished(steps, observed.vanished)
        group_episodes = self._groups.observe(steps.simulator, steps.team, steps.batch)
        if self.opponents is None or self.opponents.rules.learns(steps.team):
            self._count_steps(observed, group_episodes, reported_agent_indices(steps.batch, membership))
            if self.opponents is not None:
                self._rate_games(self.opponents.rules, steps, observed, group_episodes)
            if observed.trajectories is not None and training:
                self._algorithm.record(self._callbacks.on_collection(self.name, observed.trajectories))
        else:
            self.opponents.rules.ghost_steps += observed.transitions
        first = batch.num_terminal
        waiting = _Waiting(
            observed.waiting,
            tuple(sensor[first:] for sensor in batch.observations),
            batch.allowed_actions[first:],
        )
        self._waiting.append((steps.simulator, steps.team, waiting))

    def _forget_vanished(self, steps: TeamSteps, vanished: Keys) -> None:
        """Agents are taken for gone. Their episodes did not end, so they are not among those that are counted."""
        self._groups.forget(steps.simulator, vanished)
        if self._agent_indices is not None:
            self._agent_indices.forget(steps.simulator, vanished)
        self._throttled.log(
            "vanished",
            f"'{self.name}': simulator {steps.simulator} has not mentioned {len(vanished)} agents for long, nor said "
            "that their episodes end; what they did is learned from, their returns are not counted",
        )

    def _select_observations(self, steps: TeamSteps) -> tuple[StepBatch, GroupMembership | None]:
        """A tick as the learner sees it, and each row's group and index in it where that matters."""
        if self._agent_indices is None:
            return self._selector.batch(steps.batch, None), None
        membership = self._agent_indices.assign(steps.simulator, steps.team, steps.batch)
        largest = int(membership.agent_indices.max(initial=-1)) + 1
        if self._max_group_size is not None and largest > self._max_group_size:
            raise UserError(
                f"behavior '{self.name}': a group of at least {largest} agents came, "
                f"{self._max_group_size} were expected: "
                "set hyperparameters.group_size"
            )
        return self._selector.batch(steps.batch, membership.agent_indices), membership

    def _count_steps(
        self, observed: Observed, groups: GroupEpisodes, agent_indices: NDArray[np.int64]
    ) -> None:
        """Steps and episodes that everybody hears of."""
        self.step += observed.transitions
        if observed.episodes is None and not len(groups):
            return
        returns, lengths, ended = np.empty(0), np.empty(0, np.int64), np.empty(0, np.intp)
        if observed.episodes is not None:
            returns, lengths, ended = (
                observed.episodes.returns,
                observed.episodes.lengths,
                observed.episodes.rows,
            )
            self._statistics.add_episodes(returns, lengths)
            total, count = self._returns_since_save
            self._returns_since_save = (total + float(returns.sum()), count + len(returns))
            self._returns_since_progress.extend(returns.tolist())
        if len(groups):
            self._statistics.add_group_episodes(groups.returns)
        self._callbacks.on_episode_end(
            self.name, EndedEpisodes(returns, lengths, agent_indices[ended], groups.returns)
        )

    def _rate_games(
        self, rules: SelfPlay, steps: TeamSteps, observed: Observed, groups: GroupEpisodes
    ) -> None:
        """Counts the games that ended, once per agent, or once per group."""
        if observed.episodes is None and not len(groups):
            return
        ended = np.empty(0, np.intp) if observed.episodes is None else observed.episodes.rows
        results = game_results(steps.batch, steps.team, ended, groups.keys)
        for rating in rules.rate(results.tolist()):
            self._statistics.add("Self-play/ELO", rating)

    def add_stat(self, stat: StatMessage) -> bool:
        """Takes what a simulator says of itself into the next summary. False where it has too many names."""
        return self._statistics.add_stat(stat)

    def add_replaced_values(self, count: int) -> None:
        """Takes into the next summary how many values of a tick could not be used."""
        self._statistics.add_replaced_values(count)

    def act(self) -> list[ActionBatch]:
        """Decides for all who wait, in one forward pass for each policy; one batch per observed tick, in order."""
        waiting, self._waiting = self._waiting, []
        if self.opponents is None:
            return self._sample_actions(self._algorithm, [part for _, _, part in waiting])
        actors = [self.opponents.policy(team) for _, team, _ in waiting]
        decided: dict[int, ActionBatch] = {}
        for actor in dict.fromkeys(actors):
            at = [i for i, each in enumerate(actors) if each is actor]
            decided |= zip(at, self._sample_actions(actor, [waiting[i][2] for i in at]), strict=True)
        return [decided[i] for i in range(len(waiting))]

    def _sample_actions(self, actor: ActingPolicy, waiting: list[_Waiting]) -> list[ActionBatch]:
        counts = [len(part.rows) for part in waiting]
        everyone = waiting[0] if len(waiting) == 1 else _concatenated(waiting)
        if len(everyone.rows) == 0:
            return [ActionBatch.zeros(0, self.spec.action_spec) for _ in waiting]
        decisions = actor.act(
            everyone.observations,
            everyone.allowed_actions,
            self._assembler.memories(everyone.rows),
            deterministic=self._deterministic,
        )
        self._assembler.acted(everyone.rows, everyone.observations, everyone.allowed_actions, decisions)
        continuous = self._algorithm.env_actions(decisions)
        discrete = decisions.discrete_actions.astype(np.int32)
        if len(waiting) == 1:
            return [ActionBatch(continuous, discrete)]
        cuts = np.cumsum(counts)[:-1]
        return [
            ActionBatch(*part)
            for part in zip(np.split(continuous, cuts), np.split(discrete, cuts), strict=True)
        ]

    def drop(self, simulator: int) -> None:
        """Forgets the unfinished segments of a simulator that left or begins anew, and who waits there."""
        self._assembler.drop(simulator)
        if self._agent_indices is not None:
            self._agent_indices.drop(simulator)
        self._groups.drop(simulator)
        self._waiting = [asked for asked in self._waiting if asked[0] != simulator]

    def ready_to_update(self) -> bool:
        """Enough was collected, and there is still something to learn."""
        return self._learns and self._algorithm.ready()

    def update(self) -> Mapping[str, float]:
        """Learns from what was collected. Returns losses and statistics by tag.

        Raises:
            UserError: the update left something that is no number; the behavior is ``diverged`` from now on.
        """
        metrics = self._algorithm.update(self.step)
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
        """A multiple of ``summary_freq`` was reached since the last summary."""
        return self.step >= self._next_summary

    def summarize(self, wall_s: float) -> Summary:
        """Everything since the last summary, placed at the multiple of ``summary_freq`` just reached."""
        frequency = self.settings.summary_freq
        at = self.step // frequency * frequency
        self._next_summary = at + frequency
        steps_per_s = self.steps_per_s
        learned = self._learns and self._last_summary[0] < self.settings.max_steps
        self._last_summary = (self.step, time.perf_counter())
        return self._statistics.drain(step=at, wall_s=wall_s, steps_per_s=steps_per_s, is_training=learned)

    def partial_summary(self, wall_s: float) -> Summary:
        """What the next summary would say, were it due now."""
        return self._statistics.so_far(
            step=self.step, wall_s=wall_s, steps_per_s=self.steps_per_s, is_training=self.training
        )

    @property
    def collected(self) -> tuple[int, int] | None:
        """Steps that wait for the next update, and how many it takes; None where that is not what updates wait for."""
        return self._algorithm.collected() if self.training else None

    def drain_mean_return(self) -> float | None:
        """Mean return of the episodes since the last call, for the list of checkpoints."""
        (total, count), self._returns_since_save = self._returns_since_save, (0.0, 0)
        return total / count if count else None

    def drain_progress(self) -> Progress | None:
        """What it did since the last call, for lessons that watch it; None for who does not learn."""
        returns, self._returns_since_progress = self._returns_since_progress, []
        return Progress(self.step / max(self.settings.max_steps, 1), returns) if self._learns else None

    def checkpoint(self) -> Checkpoint:
        """The behavior as it is now."""
        opponents = None if self.opponents is None else self.opponents.state_dict()
        return Checkpoint(
            self.name, self.step, self.spec, self.settings, self._algorithm.state_dict(), opponents
        )

    def replay_state(self) -> Mapping[str, NDArray[Any]] | None:
        """What is saved beside the checkpoint; None where nothing is."""
        return self._algorithm.replay_state()

    def policy_network(self) -> PolicyNetwork:
        """What decides now, to be exported."""
        network = self._algorithm.policy_network()
        network.input_sensors = self._selector.input_sensors
        return network

    @property
    def inputs(self) -> BehaviorSpec:
        """What a model of the policy takes: the sensors, and who is who where it needs to know."""
        return self._selector.inputs

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continues where the checkpoint was taken. Raises UserError where it is of another behavior."""
        self._check_fits(checkpoint)
        self._load(checkpoint, weights_only=False)
        self.step = checkpoint.step
        self._next_summary = (self.step // self.settings.summary_freq + 1) * self.settings.summary_freq
        self._last_summary = (self.step, time.perf_counter())

    def restore_replay(self, path: Path) -> None:
        """Continues with what was saved beside the checkpoint. Raises UserError where it is no good."""
        load_replay_file(path, self._algorithm.load_replay_state)

    def initialize(self, checkpoint: Checkpoint) -> None:
        """Starts from the weights of another run, at step 0. Raises UserError where they do not fit."""
        self._check_fits(checkpoint)
        self._load(checkpoint, weights_only=True)

    def _check_fits(self, checkpoint: Checkpoint) -> None:
        changed = spec_mismatch(checkpoint.spec, self.spec)
        if changed:
            raise UserError(f"behavior '{self.name}' is not what its checkpoint was trained for: {changed}")
        if checkpoint.settings.trainer_type != self.settings.trainer_type:
            raise UserError(
                f"behavior '{self.name}': the checkpoint is of trainer type "
                f"'{checkpoint.settings.trainer_type}', the configuration says '{self.settings.trainer_type}'"
            )

    def _load(self, checkpoint: Checkpoint, *, weights_only: bool) -> None:
        load = self._algorithm.load_weights if weights_only else self._algorithm.load_state_dict
        try:
            load(checkpoint.algorithm)
            if not weights_only and self.opponents is not None and checkpoint.self_play is not None:
                self.opponents.load_state_dict(checkpoint.self_play)
        except MISFIT_ERRORS as error:
            changed = changed_networks(checkpoint.settings, self.settings)
            raise UserError(
                f"behavior '{self.name}': the checkpoint does not fit the configured networks: "
                + (", ".join(changed) or " ".join(str(error).split())[:300])
            ) from None


def _concatenated(parts: Sequence[_Waiting]) -> _Waiting:
    return _Waiting(
        np.concatenate([part.rows for part in parts]),
        tuple(
            join_observations(sensors) for sensors in zip(*(part.observations for part in parts), strict=True)
        ),
        np.concatenate([part.allowed_actions for part in parts]),
    )
