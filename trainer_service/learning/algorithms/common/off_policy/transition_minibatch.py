"""Minibatches of learners for single agents: transitions or sequences of the replay buffer as tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.config.hyperparameters.off_policy import (
    REPLAY_PLUGINS,
    ReplayHyperparameters,
)
from trainer_service.learning.algorithms.common.acting import allowed_or_none, to_tensor
from trainer_service.learning.algorithms.common.checks import require_settings
from trainer_service.learning.algorithms.common.learner import Compute
from trainer_service.learning.algorithms.common.off_policy.demonstrated_rows import DemonstratedRows
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayParts
from trainer_service.learning.algorithms.common.off_policy.replay_rewards import ReplayRewards, as_transitions
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import ReplaySampler, make_sampler
from trainer_service.learning.imitation import DemonstrationStore
from trainer_service.learning.networks.encoders.layers import observations_as_floats
from trainer_service.learning.networks.encoders.memory import EncoderInput, Sequences
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.replay.hindsight import GoalTask, HindsightReplay
from trainer_service.learning.replay.sequence_replay import SequenceReplay
from trainer_service.learning.replay.transitions import Sample, SequencesOfSample, TransitionReplay
from trainer_service.learning.rewards import RewardSource
from trainer_service.plugins import make_part
from unity_bridge.specs import BehaviorSpec


class TransitionMinibatch(NamedTuple):
    """B transitions."""

    inputs: EncoderInput
    """Inputs of the networks for the decisions, with memory also earlier observations."""

    next_inputs: EncoderInput
    """The same for the next decisions."""

    continuous_actions: Tensor
    """[B, C]"""

    discrete_actions: Tensor
    """int64 [B, branches]"""

    allowed: Tensor
    """Action mask. bool [B, K]"""

    allowed_or_none: Tensor | None
    """``allowed``, or None if everything is allowed."""

    next_allowed_or_none: Tensor | None

    task_rewards: Tensor
    """The task's rewards times their strength. [B]"""

    rewards: Tensor
    """Current rewards of the sources times their strengths: the sum [B], or each source's [B, S]."""

    terminated: Tensor
    """[B]"""

    discounts: Tensor | float
    """Discounts of the next observations' values: γ, or γᵏ after k steps, [B]."""

    weights: Tensor | None
    """Importance weights of prioritized rows; None for uniform sampling. [B]"""


def transition_minibatch(
    sample: Sample,
    normalizer: ObservationNormalizer,
    rewards: ReplayRewards,
    replay: ReplaySampler[Sample],
    *,
    n_step: int,
    value_heads: bool,
) -> TransitionMinibatch:
    """Makes the newest sample's minibatch with the present normalizer and rewards. See ``transition_parts``."""
    device = rewards.device
    steps = as_transitions(sample, device)
    inputs, next_inputs = encoder_inputs(
        lambda observations: observations_as_floats(normalizer.forward(observations)),
        steps.observations,
        steps.next_observations,
        sample.sequences,
        n_step,
    )
    paid = task_rewards = rewards.task_strength * steps.task_rewards
    if value_heads:
        paid = rewards.of_sources(steps)
    elif rewards.models:
        paid = task_rewards + rewards.of_models(replay, sample.rows, len(task_rewards))
    return TransitionMinibatch(
        inputs=inputs,
        next_inputs=next_inputs,
        continuous_actions=steps.continuous_actions,
        discrete_actions=steps.discrete_actions,
        allowed=to_tensor(sample.allowed_actions, device),
        allowed_or_none=allowed_or_none(sample.allowed_actions, device),
        next_allowed_or_none=allowed_or_none(sample.next_allowed_actions, device),
        task_rewards=task_rewards,
        rewards=paid,
        terminated=steps.terminated,
        discounts=rewards.gamma if sample.discounts is None else to_tensor(sample.discounts, device),
        weights=None if sample.weights is None else to_tensor(sample.weights, device),
    )


def encoder_inputs(
    normalize: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    observations: Sequence[Tensor],
    next_observations: Sequence[Tensor],
    sequences: SequencesOfSample | None,
    n_step: int = 1,
) -> tuple[EncoderInput, EncoderInput]:
    """Returns the inputs of B decisions, and of the observations ``n_step`` decisions later.

    normalize: maps sensors [B, …] to the networks' inputs. With sequences, every step is computed once for both: the
    next observation of a step is that of a later step, or the sequence's final one.
    """
    if sequences is None:
        return EncoderInput(normalize(observations)), EncoderInput(normalize(next_observations))
    device = observations[0].device
    last = to_tensor(np.cumsum(sequences.lengths) - 1, device)
    layout = Layout.of(sequences.lengths, n_step)
    order = to_tensor(layout.order, device)
    seen = [
        torch.cat([steps, finals])[order]
        for steps, finals in zip(
            normalize(observations), normalize([sensor[last] for sensor in next_observations]), strict=True
        )
    ]
    in_time = Sequences(to_tensor(sequences.memories, device), to_tensor(layout.filled, device))
    return (
        EncoderInput(seen, in_time, to_tensor(layout.steps, device)),
        EncoderInput(seen, in_time, to_tensor(layout.following, device)),
    )


class Layout(NamedTuple):
    """N concatenated sequences of B steps, each followed by one place for its final observation."""

    order: NDArray[np.int64]
    """The entry at each position: a step's number, or B + n for the final observation of sequence n. Shape [B + N]."""

    steps: NDArray[np.int64]
    """Position of each step. Shape [B]."""

    following: NDArray[np.int64]
    """Position of the observation some steps later, or of the sequence's final one. Shape [B]."""

    filled: NDArray[np.bool_]
    """Whether a position exists, if every sequence gets a row of the longest length. Shape [N, longest + 1]."""

    @classmethod
    def of(cls, lengths: NDArray[np.int64], n_step: int = 1) -> Layout:
        """Makes the layout. lengths: steps of each sequence, [N]. n_step: steps to the following observation."""
        ends = np.cumsum(lengths)
        sequences, steps = len(lengths), int(ends[-1])
        positions = np.arange(steps) + np.repeat(np.arange(sequences), lengths)
        finals = ends + np.arange(sequences)
        order = np.empty(steps + sequences, np.int64)
        order[positions] = np.arange(steps)
        order[finals] = steps + np.arange(sequences)
        following = np.minimum(positions + n_step, np.repeat(finals, lengths))
        return cls(order, positions, following, np.arange(int(lengths.max()) + 1) <= lengths[:, None])


def transition_parts(
    spec: BehaviorSpec,
    settings: TrainerSettings,
    compute: Compute,
    sources: Sequence[RewardSource],
    normalizer: ObservationNormalizer,
    memory_size: int,
    *,
    value_heads: bool = False,
) -> ReplayParts[TransitionMinibatch]:
    """Makes replay buffer, rewards and minibatches of a learner for single agents.

    memory_size: floats of the networks' memories. value_heads: whether each signal has its own value.
    """
    hyper = require_settings(settings, ReplayHyperparameters)
    steps = hyper.target_steps
    rewards = ReplayRewards(sources, settings, compute, target_steps=steps)
    make = partial(
        _make_replay, spec, hyper, memory_size=memory_size, n_step=steps, gamma=rewards.gamma,
        goal_task=compute.goal_task,
    )  # fmt: skip
    shown = hyper.replay.demo_path
    demonstrations = shown and DemonstratedRows(
        DemonstrationStore(shown, spec),
        lambda capacity: make(capacity, None),
        count=hyper.demonstrated_rows,
        own_capacity=hyper.buffer_size,
        tells=compute.shard.rank == 0,
    )
    replay = make_sampler(
        make(hyper.buffer_size, hyper.replay.priority_exponent),
        hyper,
        settings.network_settings.memory,
        compute,
        # Saved buffers of learners with one value per signal have always had both schedules and one stream.
        learns_rewards=value_heads or bool(rewards.models),
        one_stream=value_heads,
        demonstrations=demonstrations or None,
    )
    minibatch = partial(
        transition_minibatch,
        normalizer=normalizer,
        rewards=rewards,
        replay=replay,
        n_step=steps,
        value_heads=value_heads,
    )
    return ReplayParts(replay, rewards, minibatch)


def _make_replay(
    spec: BehaviorSpec,
    hyper: ReplayHyperparameters,
    capacity: int,
    alpha: float | None,
    *,
    memory_size: int,
    n_step: int,
    gamma: float,
    goal_task: GoalTask | None,
) -> TransitionReplay:
    """Makes an empty replay of transitions, or of sequences for networks with memory. alpha: see ReplayBuffer."""
    replay = hyper.replay
    if hyper.relabels_goals:
        number, strategy = replay.n_sampled_goal, replay.goal_selection_strategy
        return HindsightReplay(spec, capacity, n_sampled_goal=number, strategy=strategy, task=goal_task)
    if replay.draws_single_transitions:
        arguments = replay.kwargs or {}
        return make_part(
            REPLAY_PLUGINS, replay.type, TransitionReplay, lambda make: make(spec, capacity, **arguments)
        )
    make = partial(SequenceReplay, memory_size=memory_size) if memory_size else TransitionReplay
    return make(spec, capacity, alpha=alpha, n_step=n_step, gamma=gamma)
