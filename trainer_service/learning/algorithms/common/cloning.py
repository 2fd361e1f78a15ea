"""Behavioral cloning beside reinforcement learning: supervised steps of a policy towards demonstrated actions."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from trainer_service.config import BehavioralCloningSettings, TrainerSettings
from trainer_service.learning.algorithms.common.learner import Compute, Metrics
from trainer_service.learning.algorithms.common.schedules import FINAL_LEARNING_RATE, scheduled
from trainer_service.learning.imitation.demonstrations import (
    DemonstratedSteps,
    Demonstrations,
    DemonstrationStore,
)
from trainer_service.learning.networks.encoders.layers import in_chunks, rows_at_once
from trainer_service.learning.networks.flat import FlatAdam, FlatParameters
from trainer_service.learning.networks.policies.action_heads import ActionParameters
from trainer_service.learning.networks.policies.imitator import Imitator
from trainer_service.learning.networks.random_streams import random_stream, restore_streams
from trainer_service.learning.rollout.trajectories import StepRanges, split_into_sequences
from trainer_service.ops.distributions import choice_offsets, greedy_categorical, masked_log_softmax
from trainer_service.ops.imitation import cloning_loss, large_margin_loss
from unity_bridge.specs import BehaviorSpec

_EPOCHS = 3
_MARGIN = 0.8
"""Margin of a demonstrated choice's value over other choices, as in Hester et al. 2018 (arXiv:1704.03732)."""

Noise = Callable[[Tensor], Tensor]
"""Returns draws of standard deviation 1 in the shape of its argument."""

CloningLoss = Callable[[ActionParameters, DemonstratedSteps, Noise], Tensor]
"""Returns the differentiable loss of B agents' actions for demonstrated ones, a scalar."""


class ImitationScore(NamedTuple):
    """Means over demonstrated steps."""

    loss: float
    """The loss of the policy's likeliest actions. For continuous actions, the squared error of their means."""

    accuracy: float | None
    """The share of discrete actions that are the policy's likeliest. None without discrete actions."""


class ClonedHeads(Protocol):
    """Action heads that compute the error of continuous actions."""

    branches: Sequence[int]

    def squared_error(self, parameters: ActionParameters, target: Tensor, noise: Noise) -> Tensor | None: ...


def action_loss(heads: ClonedHeads) -> CloningLoss:
    """The loss of policies: the squared error of continuous actions, and the cross-entropy of discrete ones."""

    def loss(parameters: ActionParameters, steps: DemonstratedSteps, noise: Noise) -> Tensor:
        branches, choices = heads.branches, steps.discrete_actions
        error = heads.squared_error(parameters, steps.executed_actions, noise)
        log_choices = masked_log_softmax(parameters.logits, None, branches) if branches else None
        return cloning_loss(error, log_choices, _among_all(choices, branches))

    return loss


def margin_loss(branches: Sequence[int]) -> CloningLoss:
    """The loss of action values: demonstrated choices should have the largest value, by a margin."""

    def loss(parameters: ActionParameters, steps: DemonstratedSteps, noise: Noise) -> Tensor:
        choices = _among_all(steps.discrete_actions, branches)
        return large_margin_loss(parameters.logits, choices, branches, _MARGIN)

    return loss


def _likeliest(parameters: ActionParameters) -> ActionParameters:
    """Parameters with a zero deviation of continuous actions."""
    return parameters._replace(log_sigma=torch.full_like(parameters.log_sigma, -torch.inf))


def _among_all(choices: Tensor, branches: Sequence[int]) -> Tensor:
    """Choices counted from the first of all branches. int64 [B, branches]"""
    return choices + torch.tensor(choice_offsets(branches), dtype=torch.int64, device=choices.device)


def make_cloning(
    spec: BehaviorSpec,
    settings: TrainerSettings,
    compute: Compute,
    network: nn.Module,
    imitators: Callable[[], Sequence[Imitator]],
    loss: CloningLoss,
    parameters: FlatParameters,
    normalize: Callable[[Sequence[Tensor]], Sequence[Tensor]],
) -> BehavioralCloning | None:
    """Makes the behavioral cloning of the settings; None without it.

    spec: an agent's own sensors and actions. network: of the imitators. parameters: of the network, optionally with
    others. normalize: normalizes observations before the network.
    """
    wanted = settings.behavioral_cloning
    if wanted is None:
        return None
    return BehavioralCloning(
        spec, settings, wanted, compute, network, imitators(), loss, parameters, normalize
    )


class BehavioralCloning:
    """Supervised learning of demonstrated actions, with its own Adam.

    A policy with memory learns from sequences. Each starts with the policy's memory at that step, which is computed
    again for every pass over the demonstrations. Recordings do not identify the agents of a group. So if agents have
    separate actors or ids, all of them learn from all demonstrations.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        settings: TrainerSettings,
        wanted: BehavioralCloningSettings,
        compute: Compute,
        network: nn.Module,
        imitators: Sequence[Imitator],
        loss: CloningLoss,
        parameters: FlatParameters,
        normalize: Callable[[Sequence[Tensor]], Sequence[Tensor]],
    ) -> None:
        """All arguments as in ``make_cloning``."""
        self._settings = wanted
        hyper, memory = settings.hyperparameters, settings.network_settings.memory
        self._learning_rate = hyper.learning_rate * self._settings.strength
        self._max_grad_norm = hyper.max_grad_norm
        self._sequence_length = 1 if memory is None else memory.sequence_length
        self._sequences_per_batch = max(
            (self._settings.batch_size or hyper.batch_size) // self._sequence_length, 1
        )
        """Sequences of one gradient step. Without memory, each step is a sequence."""
        self._imitators = imitators
        self._loss = loss
        self._parameters = parameters
        self._normalize = normalize
        self._chunk = rows_at_once(network)
        self._branches = spec.action_spec.discrete_branches
        self._device = compute.device
        self._shard = compute.shard
        self._optimizer = FlatAdam(parameters)
        self._generator = random_stream(compute.seed + 3)
        self.demonstrations = DemonstrationStore(self._settings.demo_path, spec)
        self.leaves_deviation = False
        """Whether only the mean of continuous actions is learned. Then reinforcement learning controls the deviation,
        which explores; without rewards, the loss would make the deviation vanish."""
        self._memories: Tensor | None = None
        """Memories of all imitators before each sequence, concatenated. Shape [sequences, imitators · memory size]."""
        self._steps_since_refresh = 0
        """Learned steps since the memories were computed."""

    def update(self, step: int) -> Metrics:
        """Makes ``num_epoch`` passes over the demonstrations, or over the number of steps for one update.

        step: position in the schedule. After its end, nothing is learned.
        """
        rate = self._learning_rate_at(step)
        if self.has_faded_out(step) or not rate:
            return {}
        demonstrations = self.demonstrations.read()
        sequences = split_into_sequences(demonstrations.lengths, self._sequence_length)
        losses = [
            self._learn(demonstrations, sequences, minibatch, rate)
            for _ in range(self._settings.num_epoch or _EPOCHS)
            for minibatch in self._minibatches(len(sequences))
        ]
        return {"Losses/Pretraining Loss": float(self._shard.add_up(torch.stack(losses).mean()))}

    def has_faded_out(self, step: int) -> bool:
        """Whether the schedule of cloning has ended at this step, so that demonstrations are not needed."""
        return self._settings.has_faded_out(step)

    def _learning_rate_at(self, step: int) -> float:
        steps = self._settings.steps
        if not steps:
            return self._learning_rate
        return scheduled("linear", self._learning_rate, FINAL_LEARNING_RATE, step, steps)

    def _minibatches(self, sequences: int) -> Iterator[NDArray[np.int64]]:
        """Numbers of the sequences of each minibatch, in random order. The remainder is a smaller minibatch."""
        order = torch.randperm(sequences, generator=self._generator).numpy()
        if self._settings.samples_per_update:
            order = order[: max(self._settings.samples_per_update // self._sequence_length, 1)]
        for chunk in in_chunks(len(order), self._sequences_per_batch):
            yield order[chunk]

    def _learn(
        self, demonstrations: Demonstrations, sequences: StepRanges, chosen: NDArray[np.int64], rate: float
    ) -> Tensor:
        """Makes one gradient step. Returns the loss; with several learner ranks, this rank's addend of it."""
        memories = self._starting_memories(demonstrations, sequences)
        own, part = self._shard.part_of_sequences(sequences.lengths[chosen])
        noise = partial(self._shard.normal, part=part, generator=self._generator)
        steps, decided = self._decide(demonstrations, sequences, chosen[own], memories)
        if self.leaves_deviation:
            decided = [_likeliest(parameters) for parameters in decided]
        losses = [self._loss(parameters, steps, noise) for parameters in decided]
        loss = losses[0] if len(losses) == 1 else torch.stack(losses).mean()
        self._descend(loss, rate, part.share)
        self._steps_since_refresh += part.count
        return self._shard.weighted(loss.detach(), part.share)

    def _decide(
        self,
        demonstrations: Demonstrations,
        sequences: StepRanges,
        chosen: NDArray[np.int64],
        memories: Tensor | None,
    ) -> tuple[DemonstratedSteps, list[ActionParameters]]:
        """Returns the steps of some sequences, and each imitator's actions there. memories: before every sequence."""
        batch = sequences.select(chosen)
        steps = demonstrations.take(torch.from_numpy(batch.steps()), self._device)
        seen = self._normalize(steps.observations)
        decided: list[ActionParameters] = []
        for k, imitator in enumerate(self._imitators):
            features = imitator.encode(seen)
            if imitator.memory is not None and memories is not None:
                starts = memories.chunk(len(self._imitators), dim=1)[k][
                    torch.from_numpy(chosen).to(self._device)
                ]
                filled = torch.from_numpy(batch.filled()).to(self._device)
                features = imitator.memory.unroll(features, starts, filled)
            decided.append(imitator.decide(features))
        return steps, decided

    @torch.no_grad()
    def evaluate(self, demonstrations: Demonstrations) -> ImitationScore:
        """Scores the policy on demonstrations, without learning from them."""
        sequences = split_into_sequences(demonstrations.lengths, self._sequence_length)
        has_memory = self._imitators[0].memory is not None
        memories = self._recompute_memories(demonstrations, len(sequences)) if has_memory else None
        order, scores, weights = np.arange(len(sequences)), [], []
        for chunk in in_chunks(len(sequences), self._sequences_per_batch):
            steps, decided = self._decide(demonstrations, sequences, order[chunk], memories)
            each = [torch.stack(self._score(parameters, steps)) for parameters in decided]
            scores.append(torch.stack(each).mean(dim=0))
            weights.append(len(steps.terminated))
        loss, accuracy = np.average(torch.stack(scores).cpu().numpy(), axis=0, weights=weights).tolist()
        return ImitationScore(loss, accuracy if self._branches else None)

    def _score(self, parameters: ActionParameters, steps: DemonstratedSteps) -> tuple[Tensor, Tensor]:
        """Returns loss and accuracy of one imitator. Without discrete actions, the accuracy is arbitrary."""
        loss = self._loss(_likeliest(parameters), steps, torch.zeros_like)
        if not self._branches:
            return loss, torch.zeros_like(loss)
        chosen = greedy_categorical(parameters.logits, self._branches)
        return loss, (chosen == steps.discrete_actions).float().mean()

    def _descend(self, loss: Tensor, rate: float, share: float) -> None:
        self._parameters.gradient.zero_()
        loss.backward()  # type: ignore[no-untyped-call]  # torch has no types here
        self._parameters.reduce_gradient(share, self._max_grad_norm)
        # Parameters that the loss does not depend on have no gradient, and Adam does not change them.
        self._optimizer.step(rate)

    def _starting_memories(self, demonstrations: Demonstrations, sequences: StepRanges) -> Tensor | None:
        """Returns the policy's memories before each sequence, at most one pass old; None without memory."""
        if self._imitators[0].memory is None:
            return None
        # The demonstrations may have changed since the run was saved. Then the saved memories are useless.
        noted = 0 if self._memories is None else len(self._memories)
        if (
            self._memories is None
            or noted != len(sequences)
            or self._steps_since_refresh >= len(demonstrations)
        ):
            self._memories = self._recompute_memories(demonstrations, len(sequences))
            self._steps_since_refresh = 0
        return self._memories

    @torch.no_grad()
    def _recompute_memories(self, demonstrations: Demonstrations, sequences: int) -> Tensor:
        """Computes all imitators' memories before each sequence, from the starts of all episodes."""
        found = [self._memories_of(imitator, demonstrations, sequences) for imitator in self._imitators]
        return torch.cat(found, dim=1)

    def _memories_of(self, imitator: Imitator, demonstrations: Demonstrations, sequences: int) -> Tensor:
        """Computes one imitator's memories before each sequence, for all episodes at once."""
        memory = imitator.memory
        assert memory is not None  # checked before
        features = self._features(imitator, demonstrations)
        lengths = torch.from_numpy(demonstrations.lengths).to(self._device)
        starts = lengths.cumsum(0) - lengths
        cuts = (lengths + self._sequence_length - 1) // self._sequence_length
        first_sequences = cuts.cumsum(0) - cuts
        noted = features.new_zeros((sequences, memory.size))
        current = features.new_zeros((len(lengths), memory.size))
        for at in range(int(lengths.max())):
            alive = (lengths > at).nonzero().squeeze(1)
            if not at % self._sequence_length:
                noted[first_sequences[alive] + at // self._sequence_length] = current[alive]
            current[alive] = memory.step(features[starts[alive] + at], current[alive])[1]
        return noted

    def _features(self, imitator: Imitator, demonstrations: Demonstrations) -> Tensor:
        """Features before the memory at each step. Shape [S, hidden_units]."""
        chunks = in_chunks(len(demonstrations), self._chunk)
        everything = torch.arange(len(demonstrations))
        taken = (demonstrations.take(everything[chunk], self._device).observations for chunk in chunks)
        return torch.cat([imitator.encode(self._normalize(seen)) for seen in taken])

    def state_dict(self) -> dict[str, Any]:
        """Optimizer, random stream and memories: the whole state except the demonstrations."""
        return {
            "optimizer": self._optimizer.state_dict(),
            "drawing": self._generator.get_state(),
            "memories": self._memories,
            "learned_since": self._steps_since_refresh,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores ``state_dict``'s result. Raises KeyError or RuntimeError if it does not fit."""
        self._optimizer.load_state_dict(state["optimizer"])
        restore_streams({"drawing": self._generator}, state)
        memories = state["memories"]
        self._memories = None if memories is None else memories.to(self._device)
        self._steps_since_refresh = state["learned_since"]
