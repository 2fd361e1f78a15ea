"""Gradient steps of soft actor-critic by the compiled kernel: see sac_step.h."""

from __future__ import annotations

from collections.abc import Sequence
from ctypes import byref, c_double, c_int64
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer_service.learning.kernels.compiled.library import (
    Columns,
    CompiledLibrary,
    Layer,
    Learned,
    Norm,
    Rates,
    Soft,
    Stack,
    Transitions,
    pointer,
)
from trainer_service.learning.kernels.mlp_layout import StackLayout
from trainer_service.learning.networks.flat import FlatOptimizer
from unity_bridge.specs import ActionSpec


class SoftBatch(NamedTuple):
    """B transitions, as in a learner's minibatch, and the noise of actions that are drawn in their states, [B, C].

    choices: int64 [B, branches], counted from the start of all K. allowed, next_allowed: bool [B, K], None where
    everything is allowed. noise: None where policy and temperatures are not to learn from them.
    """

    observations: Sequence[Tensor]
    next_observations: Sequence[Tensor]
    actions: Tensor
    choices: Tensor
    allowed: Tensor | None
    next_allowed: Tensor | None
    rewards: Tensor
    terminated: Tensor
    weights: Tensor | None
    next_noise: Tensor
    noise: Tensor | None


class CompiledSAC:
    """Gradient steps of critics, policy, temperatures and target critics in C.

    Parameters, gradients and Adam's state are in the optimizers' vectors, and may change in place between steps. The
    same inputs give the same bits.
    """

    def __init__(
        self,
        library: CompiledLibrary,
        policy: StackLayout,
        critics: StackLayout,
        action_spec: ActionSpec,
        optimizers: Sequence[FlatOptimizer],
        targets: Tensor | None,
        discounts: Tensor,
        ends: Tensor,
        tau: float,
    ) -> None:
        """optimizers: of policy, critics and ln α, all on the CPU.

        targets: the vector of the target critics; None for critics with batch normalization, which have none.

        discounts, ends: of the signals, and 1 for signals that are 0 after the end of an episode. [S]
        """
        self.name = f"by hand, in compiled code ({library.name})"
        self._step = library.sac_step
        self._adams = [optimizer.adam for optimizer in optimizers]
        self._kept = (targets, discounts, ends, critics)  # C has their addresses
        learned, sizes = [], [optimizer.parameters.vector.numel() for optimizer in optimizers]
        for optimizer, size in zip(optimizers, sizes, strict=True):
            own, adam = optimizer.parameters, optimizer.adam
            flat = own.vector, own.gradient, adam.mean, adam.square
            learned.append(Learned(*(pointer(each, torch.float32, size) for each in flat)))
        self._rates = (Rates * len(optimizers))()
        for rates, adam in zip(self._rates, self._adams, strict=True):
            rates.beta_1, rates.beta_2 = adam.betas
            rates.epsilon, rates.weight_decay, rates.max_norm = adam.epsilon, adam.weight_decay, -1.0
        signals, branches = len(discounts), action_spec.discrete_branches
        self._soft = Soft(
            _stack(policy, learned[0]), _stack(critics, learned[1]), *learned, self._rates,
            None if targets is None else pointer(targets, torch.float32, sizes[1]), _norms(critics),
            *sizes[:2], tau,
            *(pointer(each, torch.float32, signals) for each in (discounts, ends)),
            0, action_spec.continuous_size, signals,
            len(branches), sum(branches), (c_int64 * len(branches))(*branches),
        )  # fmt: skip

    def step(self, batch: SoftBatch, rate: float, max_norm: float | None) -> tuple[Tensor, Tensor]:
        """Makes a gradient step. max_norm: of the gradients of policy and critics; None for no limit.

        Returns means: both critics' losses and, where the policy learns, its loss, entropy, α, soft values by signal,
        [2] or [4 + parts + S]. And the mean |δ| of each row, [B]. Raises MemoryError, before any change, if memory runs
        out.
        """
        soft, rows = self._soft, len(batch.actions)
        for rates in self._rates:
            rates.learning_rate = rate
        for rates in self._rates[:2]:
            rates.max_norm = -1.0 if max_norm is None else max_norm
        learned = soft.policy_learned, soft.critics_learned, soft.alpha_learned
        for each, adam in zip(learned, self._adams, strict=True):
            each.steps = int(adam.steps)
        soft.sensors = len(batch.observations)
        seen, following = (
            [each.contiguous() for each in (*sensors, batch.actions)]
            for sensors in (batch.observations, batch.next_observations)
        )
        masks = [each if each is None else each.contiguous() for each in (batch.allowed, batch.next_allowed)]
        transitions = Transitions(
            rows,
            _columns(seen),
            _columns(following),
            pointer(batch.rewards, torch.float32, rows * soft.signals),
            pointer(batch.terminated, torch.bool, rows),
            None if batch.weights is None else pointer(batch.weights, torch.float32, rows),
            pointer(batch.next_noise, torch.float32, rows * soft.actions),
            None if batch.noise is None else pointer(batch.noise, torch.float32, rows * soft.actions),
            pointer(batch.choices, torch.int64, rows * soft.branches),
            *(None if each is None else pointer(each, torch.bool, rows * soft.choices) for each in masks),
            batch.noise is not None,
        )
        parts = soft.branches + (soft.actions > 0)
        means = (c_double * (2 if batch.noise is None else 4 + parts + soft.signals))()
        errors = torch.empty(rows, dtype=torch.float32, device="cpu")
        if not self._step(byref(soft), byref(transitions), means, errors.data_ptr()):
            raise MemoryError("no memory for a minibatch in the compiled kernel")
        for each, adam in zip(learned, self._adams, strict=True):
            adam.steps.fill_(each.steps)
        return torch.tensor(list(means), dtype=torch.float32, device="cpu"), errors


def _columns(parts: Sequence[Tensor]) -> Any:
    columns = [Columns(pointer(part, torch.float32, part.numel()), part.shape[1]) for part in parts]
    return (Columns * len(columns))(*columns)


def _stack(layout: StackLayout, learned: Learned) -> Stack:
    layers = [
        Layer(each.weight, each.bias, each.inputs, each.outputs) for each in (*layout.body, *layout.heads)
    ]
    return Stack(
        layout.networks, len(layout.body), len(layout.heads), layout.relu, layout.networks > 1,
        (Layer * len(layers))(*layers), learned.parameters, learned.gradient,
    )  # fmt: skip


def _norms(layout: StackLayout) -> Any:
    if not layout.norms:
        return None
    norms = []
    for layer, norm in zip((*layout.body, *layout.heads), layout.norms, strict=True):
        mean, variance, batches = norm.moments
        count = layout.networks * layer.inputs
        running = (pointer(each, torch.float32, count) for each in (mean, variance))
        norms.append(Norm(norm.weight, norm.bias, *running, pointer(batches, torch.int64, 1)))
    return (Norm * len(norms))(*norms)
