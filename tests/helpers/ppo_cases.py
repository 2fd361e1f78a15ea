"""MLP policies, random rows to learn from, and PPO's epochs on them: by a kernel, and as the papers have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainer_service.config.network import MemorySettings, NetworkSettings
from trainer_service.learning.kernels.compiled.library import CompiledLibrary, UnavailableError, load
from trainer_service.learning.kernels.compiled.ppo import CompiledPPO
from trainer_service.learning.kernels.mlp_layout import MlpLayout, layout_of
from trainer_service.learning.kernels.ppo_epoch import Minibatch, PPOEpoch
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.shard import Shard
from trainer_service.ops import distributions as dist
from trainer_service.ops.losses import clipped_surrogate_loss, clipped_value_loss
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

KernelKind = Callable[[MlpLayout, FlatOptimizer], CompiledPPO]
"""Makes a kernel for a network."""


def compiled_libraries() -> list[CompiledLibrary]:
    """The compiled kernel, once for each instruction set that this processor has; empty where none was built."""
    try:
        return list(load().values())
    except UnavailableError:
        return []


def compiled(library: CompiledLibrary) -> KernelKind:
    """What makes kernels of one of them."""
    return lambda layout, optimizer: CompiledPPO(library, layout, optimizer)


def off_edges(moved: Tensor, edges: Sequence[float | Tensor]) -> Tensor:
    """Differences that stand off the edges of clipping, where rounding alone decides whether there is a gradient."""
    for edge in edges:
        moved = torch.where((moved - edge).abs() < 1e-4, moved + 1e-3, moved)
    return moved


def loss_of_the_paper(
    mean: Tensor,
    log_sigma: Tensor,
    logits: Tensor,
    values: Tensor,
    batch: PPOBatch,
    steps: PPOSteps,
    branches: Sequence[int],
) -> tuple[Tensor, Tensor]:
    """``ppo_loss`` by nothing but the paper's terms, for autograd to differentiate; and its parts."""
    log_prob, entropy = torch.zeros_like(batch.advantage), values.new_zeros(())
    if mean.shape[1]:
        log_prob = dist.gaussian_log_prob(batch.continuous_actions, mean, log_sigma)
        entropy = dist.gaussian_entropy(log_sigma)
    if logits.shape[1]:
        log_choices = dist.masked_log_softmax(logits, batch.allowed_actions, branches)
        log_prob = log_prob + dist.categorical_log_prob(log_choices, batch.discrete_actions)
        entropy = entropy + dist.categorical_entropy(log_choices).mean()
    policy_loss = clipped_surrogate_loss(
        log_prob, batch.old_log_prob, batch.advantage, clip_epsilon=steps.clip_epsilon
    )
    value_loss = clipped_value_loss(values, batch.old_value, batch.return_, clip_range=steps.value_clip_range)
    log_ratio = (log_prob - batch.old_log_prob).detach()
    ratio = log_ratio.exp()
    clip_fraction = ((ratio - 1.0).abs() > steps.clip_epsilon).to(ratio.dtype).mean()
    divergence = (ratio - 1.0 - log_ratio).mean()
    parts = torch.stack([policy_loss, value_loss, entropy, clip_fraction, divergence]).detach()
    return policy_loss + steps.value_coefficient * value_loss - steps.entropy_coefficient * entropy, parts


@dataclass(frozen=True)
class Case:
    """A network, a rollout of its own actions, and how it is learned from."""

    sensors: tuple[int, ...] = (3, 2)
    continuous: int = 2
    branches: tuple[int, ...] = (3, 2)
    hidden_units: int = 16
    num_layers: int = 2
    shared_critic: bool = False
    signals: int = 1
    rows: int = 50
    clip_epsilon: float = 0.2
    value_range: float = 0.3
    entropy: float = 0.01
    max_grad_norm: float | None = 0.5
    weight_decay: float = 0.0
    learning_rate: float = 3e-4
    memory_size: int = 0
    longest: int = 7
    """Steps of the longest sequence, with memory."""

    seed: int = 1

    def network(self) -> ActorCritic:
        torch.manual_seed(self.seed)
        sensors = tuple(ObservationSpec(f"sensor {size}", (size,)) for size in self.sensors)
        network = ActorCritic(
            BehaviorSpec(sensors, ActionSpec(self.continuous, self.branches)),
            NetworkSettings(
                hidden_units=self.hidden_units,
                num_layers=self.num_layers,
                memory=MemorySettings(memory_size=self.memory_size) if self.memory_size else None,
            ),
            value_heads=self.signals,
            shared_critic=self.shared_critic,
        )
        for parameter in network.parameters():  # heads as wide as after a while of learning
            parameter.data.add_(0.1 * torch.randn_like(parameter))
        return network

    def sequences(self) -> Sequences | None:
        """How all rows follow each other, with memory: sequences of 1 to ``longest`` steps."""
        if not self.memory_size:
            return None
        generator, lengths = torch.Generator().manual_seed(self.seed + 1), []
        while (left := self.rows - sum(lengths)) > 0:
            lengths.append(min(left, int(torch.randint(1, self.longest + 1, (), generator=generator))))
        trunks = 1 if self.shared_critic else 2
        memories = 0.5 * torch.randn(len(lengths), trunks * self.memory_size, generator=generator)
        return Sequences(memories, torch.arange(self.longest) < torch.tensor(lengths)[:, None])

    def epoch(self, minibatch: int, generator: torch.Generator) -> tuple[Tensor, list[Minibatch]]:
        """A random order of the rows, and minibatches of so many rows, or with memory of so many sequences."""
        sequences = self.sequences()
        if sequences is None:
            return torch.randperm(self.rows, generator=generator), self.spans(minibatch)
        lengths = sequences.filled.sum(dim=1)
        starts = lengths.cumsum(0) - lengths
        order, spans = [], []
        for chosen in torch.randperm(len(lengths), generator=generator).split(minibatch):
            first = len(order)
            for sequence in chosen.tolist():
                order += range(int(starts[sequence]), int(starts[sequence] + lengths[sequence]))
            together = Sequences(sequences.memories[chosen], sequences.filled[chosen])
            spans.append(Minibatch(slice(first, len(order)), 1.0, together))
        return torch.tensor(order), spans

    def rollout(self, network: ActorCritic) -> tuple[Tensor, PPOBatch]:
        """Observations and targets, with ratios and values on both sides of their ranges."""
        generator = torch.Generator().manual_seed(self.seed)

        def noise(*shape: int) -> Tensor:
            return torch.randn(shape, generator=generator)

        observations = noise(self.rows, sum(self.sensors))
        heads = network.actions
        allowed = torch.rand(self.rows, sum(self.branches), generator=generator) < 0.7
        allowed[:, dist.choice_offsets(self.branches)] = True
        with torch.no_grad():
            parameters, values = network.policy_and_values([observations], self.sequences())
            actions, choices, log_prob = heads.sample(parameters, allowed, generator)
        moved = off_edges(
            0.3 * noise(self.rows), [-math.log1p(self.clip_epsilon), -math.log1p(-self.clip_epsilon)]
        )
        ranges = self.steps().value_clip_range
        targets = PPOBatch(
            continuous_actions=actions,
            discrete_actions=choices + heads.offsets,
            allowed_actions=allowed,
            old_log_prob=log_prob + moved,
            advantage=noise(self.rows),
            old_value=values + off_edges(0.3 * noise(self.rows, self.signals), [ranges, -ranges]),
            return_=values + noise(self.rows, self.signals),
        )
        return observations, targets

    def steps(self) -> PPOSteps:
        return PPOSteps(
            learning_rate=self.learning_rate,
            clip_epsilon=self.clip_epsilon,
            value_clip_range=torch.linspace(self.value_range, 2 * self.value_range, self.signals),
            value_coefficient=0.5,
            entropy_coefficient=self.entropy,
            max_grad_norm=self.max_grad_norm,
        )

    def spans(self, minibatch: int) -> list[Minibatch]:
        starts = range(0, self.rows, minibatch)
        return [Minibatch(slice(start, min(start + minibatch, self.rows)), 1.0) for start in starts]


class Learner:
    """A network that learns from a case's rollout."""

    def __init__(self, case: Case, shard: Shard | None = None) -> None:
        self.case = case
        self.network = case.network()
        self.optimizer = FlatOptimizer(
            self.network.parameters(),
            weight_decay=case.weight_decay,
            **({} if shard is None else {"shard": shard}),
        )
        self.parameters = self.optimizer.parameters
        self.observations, self.targets = case.rollout(self.network)

    def kernel(self, kind: KernelKind) -> CompiledPPO:
        layout = layout_of(self.network, self.parameters)
        assert layout is not None
        return kind(layout, self.optimizer)

    def epoch(self, order: Tensor, spans: Sequence[Minibatch]) -> PPOEpoch:
        return PPOEpoch([self.observations], self.targets, order, spans, self.case.steps())

    def by_kernel(self, kind: KernelKind, order: Tensor, spans: Sequence[Minibatch]) -> Tensor:
        """An epoch; returns its losses."""
        losses, epoch = torch.zeros(5), self.epoch(order, spans)
        made = self.kernel(kind).epoch(epoch, losses, lambda number, of: None)
        assert made == len(spans)
        return losses

    def by_autograd(self, order: Tensor, spans: Sequence[Minibatch]) -> Tensor:
        """An epoch as the papers have it; returns its losses."""
        steps, losses = self.case.steps(), torch.zeros(5)
        for span in spans:
            rows = order[span.rows]
            batch = PPOBatch(*(column[rows] for column in self.targets))
            outputs, values = self.network.policy_and_values([self.observations[rows]], span.sequences)
            loss, parts = loss_of_the_paper(*outputs[:3], values, batch, steps, self.case.branches)
            losses += parts * span.share
            self.optimizer.minimize(loss, steps.learning_rate, steps.max_grad_norm, span.share)
        return losses
