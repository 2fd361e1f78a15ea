"""PPO's updates by the compiled kernel: many minibatches per call, without Python's lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from ctypes import byref, c_double, c_int64
from typing import Any, NamedTuple

import torch
from torch import Tensor

from trainer_service.learning.kernels.compiled.library import (
    CompiledLibrary,
    Layer,
    Learned,
    Lstm,
    Network,
    Rates,
    Rows,
    pointer,
)
from trainer_service.learning.kernels.compiled.time_order import TimeOrder, groups
from trainer_service.learning.kernels.mlp_layout import LinearLayer, MlpLayout
from trainer_service.learning.kernels.ppo_epoch import Minibatch, PPOEpoch
from trainer_service.learning.networks.encoders.layers import observations_as_floats
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.flat import FlatOptimizer
from trainer_service.ops.ppo_loss import PPOBatch, PPOSteps
from unity_bridge.programs.cores import usable_cores

_PRODUCTS_PER_CALL = 1e9
"""Multiplications between two calls of ``progress``: a tenth of a second on a slow core."""

_PRODUCTS_OF_TWO_THREADS = 2**22
"""Multiplications of a minibatch from which a second thread pays: they take one thread 60 µs."""

_MINIBATCHES_OF_TWO_THREADS = 16
"""Minibatches of that size from which a second thread pays for values too. Their products are a sixth of a gradient's,
and each call starts the thread."""

_ROWS_AT_ONCE = 512
"""Rows of a block of values with memory. The layers' outputs for so many rows fit into the processor's cache."""


class CompiledPPO:
    """PPO's epochs and values in C: see ppo_update.c. Its methods raise MemoryError if memory runs out.

    It serves one network and has no state of its own. Parameters are in ``FlatParameters.vector``, Adam's state is in
    ``FlatAdam``, and both may change in place between calls. The same inputs give the same bits. Sensors are vectors,
    [S, size] each.
    """

    def __init__(self, library: CompiledLibrary, layout: MlpLayout, optimizer: FlatOptimizer) -> None:
        """optimizer: of all parameters of the network that ``layout`` describes, on the CPU.

        Raises ValueError if the bodies of actor and critic have different layers.
        """
        if layout.critic is not None and _sizes(layout.critic) != _sizes(layout.actor):
            raise ValueError("actor and critic have other layers")
        self.name = f"by hand, in compiled code ({library.name})"
        self._library = library
        self._layout = layout
        self._parameters = optimizer.parameters
        self._adam = optimizer.adam
        self._network = _network(layout)
        divisible = layout.critic is not None and not layout.lstms and usable_cores() > 1
        fewest = _PRODUCTS_OF_TWO_THREADS / (3 * layout.size)
        self._rows_of_two_threads = fewest if divisible else float("inf")
        """Rows of a minibatch from which a second thread computes the critic's half."""
        numbers, signals = (0 if layer is None else layer.outputs for layer in (layout.mean, layout.value))
        self._columns = (
            (torch.float32, layout.inputs), (torch.float32, numbers), (torch.int64, len(layout.branches)),
            (torch.bool, sum(layout.branches)), *((torch.float32, width) for width in (1, 1, signals, signals)),
        )  # fmt: skip
        """The type and the width of each column of ``Rows``."""

    def epoch(self, epoch: PPOEpoch, losses: Tensor, progress: Callable[[int, int], None]) -> int:
        """Makes a gradient step for each minibatch, adding its losses to ``losses``, [5]. Returns the number of steps.

        progress: as in ``Compute``, called first and then about every tenth of a second. If it raises, the completed
        steps stay in effect.
        """
        if self._parameters.shard.world > 1:
            return self._shared_epoch(epoch, losses, progress)
        minibatches, columns = epoch.minibatches, _columns(epoch.observations, epoch.targets)
        sums, rates = (c_double * 5)(), self._rates(epoch.steps)
        largest = max(rows.stop - rows.start for rows, *_ in minibatches)
        most = 1 if self._layout.lstms else 1 + int(_PRODUCTS_PER_CALL / (3 * self._layout.size * largest))
        for run in _runs(minibatches, most):
            progress(epoch.completed + run.number, epoch.total)
            rows, sequences = epoch.order[run.first : run.last], minibatches[run.number].sequences
            learned = self._learned(self._adam.mean, self._adam.square)
            learned.steps = int(self._adam.steps)
            self._call_steps(columns, rows, run.batch_size, sequences, rates, learned, sums)
            self._adam.steps.fill_(learned.steps)
        losses += torch.tensor(list(sums), dtype=torch.float32, device="cpu")
        return len(minibatches)

    def _shared_epoch(self, epoch: PPOEpoch, losses: Tensor, progress: Callable[[int, int], None]) -> int:
        """An epoch whose gradients are summed over learner ranks, minibatch by minibatch."""
        lost, steps, observations = torch.zeros_like(losses), epoch.steps, [_side_by_side(epoch.observations)]
        for number, (own, share, sequences) in enumerate(epoch.minibatches):
            progress(epoch.completed + number, epoch.total)
            lost += share * self.gradient(observations, epoch.targets, epoch.order[own], steps, sequences)
            self._parameters.reduce_gradient(share, steps.max_grad_norm)
            self._adam.step(steps.learning_rate)
        losses += lost
        return len(epoch.minibatches)

    def gradient(
        self,
        observations: Sequence[Tensor],
        targets: PPOBatch,
        order: Tensor,
        steps: PPOSteps,
        sequences: Sequences | None = None,
    ) -> Tensor:
        """Writes the gradient of one minibatch to ``FlatParameters.gradient``; returns the losses, float32 [5].

        order: the minibatch's rows. sequences: their order in time, for networks with memory.
        """
        columns, losses = _columns(observations, targets), (c_double * 5)()
        learned = self._learned()
        self._call_steps(columns, order, len(order), sequences, self._rates(steps), learned, losses)
        return torch.tensor(list(losses), dtype=torch.float32, device="cpu")

    def _learned(self, *moments: Tensor) -> Learned:
        flat = (self._parameters.vector, self._parameters.gradient, *moments)
        return Learned(*(pointer(each, torch.float32, self._layout.size) for each in flat))

    def _call_steps(
        self,
        columns: Sequence[Tensor],
        order: Tensor,
        batch_size: int,
        sequences: Sequences | None,
        rates: Rates,
        learned: Learned,
        losses: Any,
    ) -> None:
        """Makes steps on the rows of ``order``. With memory, these rows are one minibatch. columns: of ``_columns``."""
        self._check_sequences(sequences)
        in_time = None if sequences is None else TimeOrder.of(sequences)
        order = order.contiguous() if in_time is None else order[in_time.rows]
        kinds, rows = zip(columns, self._columns, strict=True), len(columns[0])
        data = Rows(*(pointer(column, dtype, rows * width) for column, (dtype, width) in kinds))
        _check(
            self._library.steps(
                self._network, data, pointer(order, torch.int64, len(order)), len(order), batch_size,
                None if in_time is None else in_time.for_c(), rates, byref(learned), losses,
                2 if batch_size >= self._rows_of_two_threads else 1,
            )
        )  # fmt: skip

    def values(self, observations: Sequence[Tensor], sequences: Sequences | None = None) -> Tensor:
        """Returns the values of all reward signals, [S, signals]. sequences: the rows' order in time, with memory."""
        self._check_sequences(sequences)
        inputs = _side_by_side(observations)
        shape = len(inputs), self._layout.value.outputs
        values = torch.empty(shape, dtype=torch.float32, device="cpu")
        vector = self._learned().parameters
        for rows, group in [(slice(None), None)] if sequences is None else groups(sequences, _ROWS_AT_ONCE):
            in_time, part = None if group is None else TimeOrder.of(group), inputs[rows]
            order = None if in_time is None else pointer(in_time.rows, torch.int64, len(part))
            in_c = None if in_time is None else in_time.for_c()
            _check(
                self._library.values(
                    self._network, vector, pointer(part, torch.float32, len(part) * self._layout.inputs), order,
                    len(part), in_c, values[rows].data_ptr(),
                    2 if len(part) >= _MINIBATCHES_OF_TWO_THREADS * self._rows_of_two_threads else 1,
                )
            )  # fmt: skip
        return values

    def _check_sequences(self, sequences: Sequences | None) -> None:
        if (sequences is None) == bool(self._layout.lstms):
            raise ValueError("sequences belong to networks with memory, and to no others")

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


def _columns(observations: Sequence[Tensor], targets: PPOBatch) -> list[Tensor]:
    """Contiguous data of an epoch, in the order of ``Rows``."""
    return [_side_by_side(observations), *(column.contiguous() for column in targets)]


def _side_by_side(observations: Sequence[Tensor]) -> Tensor:
    """All sensors as one contiguous matrix, [S, inputs], float32."""
    sensors = observations_as_floats(observations)
    return (sensors[0] if len(sensors) == 1 else torch.cat(sensors, dim=1)).contiguous()


class _Run(NamedTuple):
    """Consecutive minibatches of equal size, except that the last one may be smaller."""

    number: int
    """Number of the first minibatch."""

    first: int
    last: int
    batch_size: int


def _runs(minibatches: Sequence[Minibatch], most: int) -> Iterator[_Run]:
    """Yields all minibatches in runs of at most ``most``."""
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
        lstms=_lstms(layout) if layout.lstms else None,
        log_sigma=layout.log_sigma or 0,
        branches=len(layout.branches),
        choices=(c_int64 * len(layout.branches))(*layout.branches),
    )


def _sizes(layers: Sequence[LinearLayer]) -> list[tuple[int, int]]:
    return [(layer.inputs, layer.outputs) for layer in layers]


def _layers(layers: Sequence[LinearLayer]) -> object:
    return (Layer * len(layers))(*map(_layer, layers))


def _lstms(layout: MlpLayout) -> object:
    return (Lstm * len(layout.lstms))(
        *(Lstm(_layer(each.from_features), _layer(each.from_memory)) for each in layout.lstms)
    )


def _layer(layer: LinearLayer | None) -> Layer:
    """Converts a layer to C. An absent layer has no outputs."""
    return Layer() if layer is None else Layer(layer.weight, layer.bias, layer.inputs, layer.outputs)
