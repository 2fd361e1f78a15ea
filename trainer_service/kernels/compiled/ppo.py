"""PPO's updates by the compiled kernel: many minibatches per call, outside of Python and of its lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_double, c_int64
from typing import NamedTuple

import torch
from torch import Tensor

from trainer_service.kernels.compiled.library import CompiledLibrary, Layer, Learned, Network, Rates, Rows
from trainer_service.kernels.mlp_layout import LinearLayer, MlpLayout
from trainer_service.kernels.ppo_kernel import MinibatchSpan, PPOSteps
from trainer_service.networks.flat import FlatOptimizer
from trainer_service.ops.losses import PPOBatch

_PRODUCTS_PER_CALL = 1e9
"""Multiplications until ``progress`` is told again: a tenth of a second on a slow core."""


class CompiledPPO:
    """A ``PPOKernel`` in C: see ppo_update.c. Its methods raise MemoryError where there is too little memory."""

    def __init__(self, library: CompiledLibrary, layout: MlpLayout, optimizer: FlatOptimizer) -> None:
        """optimizer: of all parameters of the network that ``layout`` describes, on the CPU.

        Raises ValueError where the bodies of actor and critic are not alike.
        """
        if layout.critic is not None and _sizes(layout.critic) != _sizes(layout.actor):
            raise ValueError("actor and critic have other layers")
        self.name = f"compiled code ({library.name})"
        self._library = library
        self._layout = layout
        self._parameters = optimizer.parameters
        self._adam = optimizer.adam
        self._network = _network(layout)

    def epoch(
        self,
        observations: Tensor,
        targets: PPOBatch,
        order: Tensor,
        minibatches: Sequence[MinibatchSpan],
        steps: PPOSteps,
        progress: Callable[[int], None],
    ) -> Tensor:
        """See ``PPOKernel.epoch``."""
        data = _Data.of(observations, targets)
        if self._parameters.shard.world > 1:
            return self._shared_epoch(data, order, minibatches, steps, progress)
        losses, rates = (c_double * 5)(), self._rates(steps)
        for run in _runs(minibatches, self._minibatches_per_call(minibatches)):
            progress(run.number)
            learned = self._learned()
            done = self._library.steps(
                self._network, data.rows(), order.data_ptr(), run.first, run.last, run.batch_size, rates,
                byref(learned), losses,
            )  # fmt: skip
            _check(done)
            self._adam.steps.fill_(learned.steps)
        return torch.tensor(list(losses), dtype=torch.float32)

    def _shared_epoch(
        self,
        data: _Data,
        order: Tensor,
        minibatches: Sequence[MinibatchSpan],
        steps: PPOSteps,
        progress: Callable[[int], None],
    ) -> Tensor:
        """An epoch whose gradients are added up over learner ranks, minibatch by minibatch."""
        losses = torch.zeros(5)
        for number, span in enumerate(minibatches):
            progress(number)
            losses += span.share * self.gradient(data.observations, data.targets, order[span.rows], steps)
            self._parameters.reduce_gradient(span.share)
            if steps.max_grad_norm is not None:
                self._parameters.clip_gradient(steps.max_grad_norm)
            self._adam.step(steps.learning_rate)
        return losses

    def gradient(self, observations: Tensor, targets: PPOBatch, order: Tensor, steps: PPOSteps) -> Tensor:
        """Writes the gradient of one minibatch to ``FlatParameters.gradient``; returns the losses, float32 [5].

        order: the minibatch's rows.
        """
        data, losses, order = _Data.of(observations, targets), (c_double * 5)(), order.contiguous()
        learned = Learned(
            parameters=self._parameters.vector.data_ptr(), gradient=self._parameters.gradient.data_ptr()
        )
        rates, count = self._rates(steps), len(order)
        _check(
            self._library.steps(
                self._network, data.rows(), order.data_ptr(), 0, count, count, rates, byref(learned), losses
            )
        )
        return torch.tensor(list(losses), dtype=torch.float32)

    def values(self, observations: Tensor) -> Tensor:
        """See ``PPOKernel.values``."""
        observations = observations.contiguous()
        values = torch.empty((len(observations), self._layout.value.outputs))
        vector = self._parameters.vector.data_ptr()
        _check(
            self._library.values(
                self._network, vector, observations.data_ptr(), len(observations), values.data_ptr()
            )
        )
        return values

    def _minibatches_per_call(self, minibatches: Sequence[MinibatchSpan]) -> int:
        largest = max(span.rows.stop - span.rows.start for span in minibatches)
        return 1 + int(_PRODUCTS_PER_CALL / (3 * self._layout.size * largest))

    def _rates(self, steps: PPOSteps) -> Rates:
        signals = self._layout.value.outputs
        return Rates(
            clip_epsilon=steps.clip_epsilon,
            value_coefficient=steps.value_coefficient,
            entropy_coefficient=steps.entropy_coefficient,
            max_norm=-1.0 if steps.max_grad_norm is None else steps.max_grad_norm,
            learning_rate=steps.learning_rate,
            beta_1=self._adam.betas[0],
            beta_2=self._adam.betas[1],
            epsilon=self._adam.epsilon,
            weight_decay=self._adam.weight_decay,
            value_clip_range=(c_double * signals)(*steps.value_clip_range.tolist()),
        )

    def _learned(self) -> Learned:
        return Learned(
            parameters=self._parameters.vector.data_ptr(),
            gradient=self._parameters.gradient.data_ptr(),
            mean=self._adam.mean.data_ptr(),
            square=self._adam.square.data_ptr(),
            steps=int(self._adam.steps),
        )


class _Data(NamedTuple):
    """What an epoch learns from, as C can read it: without gaps."""

    observations: Tensor
    targets: PPOBatch

    @classmethod
    def of(cls, observations: Tensor, targets: PPOBatch) -> _Data:
        return cls(observations.contiguous(), PPOBatch(*(column.contiguous() for column in targets)))

    def rows(self) -> Rows:
        """Where the columns begin. Valid while this is there."""
        return Rows(self.observations.data_ptr(), *(column.data_ptr() for column in self.targets))


class _Run(NamedTuple):
    """Minibatches of equal size, the last one perhaps smaller, that follow each other without a gap."""

    number: int
    """Of the first of them."""

    first: int
    last: int
    batch_size: int


def _runs(minibatches: Sequence[MinibatchSpan], most: int) -> Iterator[_Run]:
    """All minibatches in runs of at most ``most``."""
    number = 0
    while number < len(minibatches):
        rows = minibatches[number].rows
        run = _Run(number, rows.start, rows.stop, rows.stop - rows.start)
        number += 1
        while number < len(minibatches) and number - run.number < most:
            rows = minibatches[number].rows
            full = run.last - run.first == (number - run.number) * run.batch_size
            if not full or rows.start != run.last or rows.stop - rows.start > run.batch_size:
                break
            run = run._replace(last=rows.stop)
            number += 1
        yield run


def _check(done: int) -> None:
    if not done:
        raise MemoryError("no memory for a block of rows in the compiled kernel")


def _network(layout: MlpLayout) -> Network:
    return Network(
        parameters=layout.size,
        depth=len(layout.actor),
        actor=_layers(layout.actor),
        critic=None if layout.critic is None else _layers(layout.critic),
        heads=(Layer * 3)(_layer(layout.mean), _layer(layout.logits), _layer(layout.value)),
        log_sigma=layout.log_sigma or 0,
        branches=len(layout.branches),
        choices=(c_int64 * len(layout.branches))(*layout.branches),
    )


def _sizes(layers: Sequence[LinearLayer]) -> list[tuple[int, int]]:
    return [(layer.inputs, layer.outputs) for layer in layers]


def _layers(layers: Sequence[LinearLayer]) -> object:
    return (Layer * len(layers))(*map(_layer, layers))


def _layer(layer: LinearLayer | None) -> Layer:
    """A layer that is absent has no outputs."""
    return Layer() if layer is None else Layer(layer.weight, layer.bias, layer.inputs, layer.outputs)
