"""Recurrent layers. N sequences of at most L steps."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainer_service.config.network import MemorySettings
from trainer_service.learning.networks.encoders.gru_scan import gru_scan
from trainer_service.learning.networks.products import linear

# The weights are slices of one vector of all parameters (``networks/flat.py``). cuDNN needs its own order, and copies
# them at each call: this takes microseconds, and users cannot change it.
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk of memory")


class Sequences(NamedTuple):
    """The sequences of a batch's rows: the steps of each in time order, sequence after sequence."""

    memories: Tensor
    """Memories of actor and critic before the first step. Shape [N, memory size]."""

    filled: Tensor
    """Whether a step exists. The other steps pad shorter sequences at their end. bool [N, L]"""


class EncoderInput(NamedTuple):
    """Observations of B agents, with memory also the earlier observations."""

    observations: Sequence[Tensor]
    """Normalized, one tensor per sensor. Shapes [B, …], or [R, …] for all steps of the sequences."""

    sequences: Sequences | None = None
    """The sequences of the R steps; None without memory."""

    selected: Tensor | None = None
    """Indices of the selected steps among R. int64 [B]"""

    def select(self, features: Tensor) -> Tensor:
        """Returns the features of the selected steps. [R, F] to [B, F]"""
        return features if self.selected is None else features[self.selected]


class Memory(nn.Module):
    """A layer with a state from step to step: a vector of ``size`` floats, zeros at the start."""

    def __init__(self, size: int, output_size: int) -> None:
        super().__init__()
        self.size = size
        self.output_size = output_size

    def step(self, features: Tensor, memories: Tensor) -> tuple[Tensor, Tensor]:
        """One step of B agents: [B, inputs] and [B, size] to [B, output_size] and [B, size]."""
        raise NotImplementedError

    def scan(self, features: Tensor, memories: Tensor) -> Tensor:
        """Several steps: [N, L, inputs] and [N, size] to [N, L, output_size]."""
        raise NotImplementedError

    def unroll(self, features: Tensor, memories: Tensor, filled: Tensor) -> Tensor:
        """Unrolls concatenated sequences. [B, inputs], [N, size], bool [N, L] to [B, output_size].

        Padding is zeros after all real steps, and is removed from the outputs, so losses need no mask.
        """
        places = _places(filled, len(features))
        padded = features.new_zeros((*filled.shape, features.shape[1]))
        padded[places] = features
        outputs: Tensor = self.scan(padded, memories)[places]
        return outputs

    def unroll_each(self, features: Tensor, filled: Tensor) -> Tensor:
        """Unrolls n agents over the same steps, with zero memories at the start.

        [B, n, inputs] and bool [N, L] to [B, n, output_size].
        """
        rows, agents = features.shape[:2]
        start = features.new_zeros((agents * len(filled), self.size))
        outputs = self.unroll(features.transpose(0, 1).flatten(0, 1), start, filled.repeat(agents, 1))
        return outputs.view(agents, rows, -1).transpose(0, 1)


class LSTM(Memory):
    """Long short-term memory, Hochreiter & Schmidhuber 1997, with forget gates (Gers et al. 2000).

        i, f, o = σ(W x + U h + b + b'),  g = tanh(…),  c' = f c + i g,  h' = o tanh(c')

    A memory is [h | c], h being the output.
    """

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(size, size // 2)
        self.lstm = nn.LSTM(inputs, self.output_size, batch_first=True)
        _initialize(self.lstm, gates=4)
        # A small forget rate at the start helps to learn earlier which features to keep.
        _bias_gate(self.lstm, slice(self.output_size, 2 * self.output_size))

    def step(self, features: Tensor, memories: Tensor) -> tuple[Tensor, Tensor]:
        # Explicit, as below: torch's cell becomes operators that exported models may not have.
        size = self.output_size
        from_features, from_memories, bias_features, bias_memories = _weights(self.lstm)
        gates = linear(features, from_features, bias_features) + linear(
            memories[:, :size], from_memories, bias_memories
        )
        opened = torch.sigmoid(gates[:, : 2 * size])
        kept = opened[:, size:] * memories[:, size:]
        cell = kept + opened[:, :size] * torch.tanh(gates[:, 2 * size : 3 * size])
        hidden = torch.sigmoid(gates[:, 3 * size :]) * torch.tanh(cell)
        return hidden, torch.cat([hidden, cell], dim=1)

    def scan(self, features: Tensor, memories: Tensor) -> Tensor:
        hidden, cell = torch.tensor_split(memories.unsqueeze(0), 2, dim=2)
        outputs: Tensor
        outputs, _ = self.lstm.forward(features, (hidden.contiguous(), cell.contiguous()))
        return outputs


class GRU(Memory):
    """Gated recurrent unit, Cho et al. 2014 (arXiv:1406.1078), in the form of cuDNN.

        r, z = σ(W x + U h + b + b'),  n = tanh(W x + b + r (U h + b')),  h' = (1 − z) n + z h

    A memory is h, the output.
    """

    def __init__(self, inputs: int, size: int) -> None:
        super().__init__(size, size)
        self.gru = nn.GRU(inputs, size, batch_first=True)
        _initialize(self.gru, gates=3)
        _bias_gate(self.gru, slice(size, 2 * size))  # z, which keeps the memory like the LSTM's forget gate

    def step(self, features: Tensor, memories: Tensor) -> tuple[Tensor, Tensor]:
        from_features, from_memories, bias_features, bias_memories = _weights(self.gru)
        inputs = linear(features, from_features, bias_features)
        recurrent = linear(memories, from_memories, bias_memories)
        gates = torch.sigmoid(inputs[:, : 2 * self.size] + recurrent[:, : 2 * self.size])
        reset, update = gates[:, : self.size], gates[:, self.size :]
        candidate = torch.tanh(inputs[:, 2 * self.size :] + reset * recurrent[:, 2 * self.size :])
        hidden = candidate + update * (memories - candidate)
        return hidden, hidden

    def scan(self, features: Tensor, memories: Tensor) -> Tensor:
        outputs: Tensor
        if features.device.type == "cpu":
            from_features, from_memories, bias_features, bias_memories = _weights(self.gru)
            inputs = linear(features.transpose(0, 1), from_features, bias_features)
            outputs = gru_scan(inputs, memories, from_memories, bias_memories).transpose(0, 1)
        else:
            outputs, _ = self.gru.forward(features, memories.unsqueeze(0))
        return outputs


def make_memory(inputs: int, settings: MemorySettings) -> Memory:
    """Makes the layer of a configuration's ``memory``."""
    return {"lstm": LSTM, "gru": GRU}[settings.type](inputs, settings.memory_size)


def _places(filled: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Returns sequence and step of the ``count`` existing steps, in order. bool [N, L] to two of int64 [count].

    On a GPU they are computed by sums, since with ``nonzero`` the CPU would wait for the GPU's count.
    """
    if filled.device.type == "cpu":
        sequence, step = filled.nonzero(as_tuple=True)
        return sequence, step
    numbers = torch.arange(1, count + 1, device=filled.device)
    places = torch.searchsorted(filled.flatten().cumsum(dim=0), numbers)
    return places // filled.shape[1], places % filled.shape[1]


def _weights(layer: nn.LSTM | nn.GRU) -> Sequence[Tensor]:
    """Returns W, U, b and b' of all gates."""
    weights: Sequence[Tensor] = layer.all_weights[0]
    return weights


def _bias_gate(layer: nn.LSTM | nn.GRU, gate: slice) -> None:
    """Opens a gate, by 1 on each of its biases."""
    for bias in _weights(layer)[2:]:
        bias.data[gate] = 1.0


def _initialize(layer: nn.LSTM | nn.GRU, gates: int) -> None:
    """Initializes weights Xavier-uniform, separately for each gate, and biases with zero."""
    for name, parameter in layer.named_parameters():
        if name.startswith("bias"):
            nn.init.zeros_(parameter)
            continue
        for block in parameter.data.chunk(gates):
            nn.init.xavier_uniform_(block)
