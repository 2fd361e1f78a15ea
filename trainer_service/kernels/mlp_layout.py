"""Where an MLP policy's layers lie in the vector of its parameters."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer_service.networks.encoders.encoder import ObservationEncoder, Trunk
from trainer_service.networks.encoders.layers import LinearBody
from trainer_service.networks.encoders.memory import LSTM, Memory
from trainer_service.networks.flat import FlatParameters
from trainer_service.networks.policies.action_heads import ActionHeads
from trainer_service.networks.policies.actor_critic import ActorCritic
from trainer_service.networks.products import Linear


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A linear layer y = W x + b, by where its numbers begin in the vector."""

    weight: int
    """Of W, row by row: [outputs, inputs]."""

    bias: int
    """Of b: [outputs]."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class LSTMLayer:
    """An LSTM with H numbers of memory and as many of output; ``networks.encoders.memory`` has its equations."""

    from_features: LinearLayer
    """W x + b, to the gates i, f, g, o side by side, 4 H numbers."""

    from_memory: LinearLayer
    """U h + b', to the same."""


@dataclass(frozen=True, slots=True)
class MlpLayout:
    """An MLP policy as offsets into ``FlatParameters.vector``, float32: vectors in, MLP bodies, linear heads.

    Observations x, [B, inputs], are the sensors side by side, normalized already. A body is x ← silu(W x + b), layer
    after layer; with memory an LSTM follows. The heads of actions sit on what the actor's gives, the value heads on the
    critic's, or on the actor's where the critic is shared.
    """

    size: int
    """Numbers in the vector. The layers cover all of it, each number once."""

    sensors: tuple[int, ...]
    """Numbers of each sensor, in the order of the observations."""

    actor: tuple[LinearLayer, ...]
    """Its body, at least one layer."""

    critic: tuple[LinearLayer, ...] | None
    """Its body; None where it is the actor's."""

    lstms: tuple[LSTMLayer, ...]
    """On the actor's body, and on the critic's where it has one; empty without memory."""

    mean: LinearLayer | None
    """Means of the C continuous actions; None where there are none."""

    log_sigma: int | None
    """Where ln σ of the continuous actions begins, [C]; it depends on no observation. None where there are none."""

    logits: LinearLayer | None
    """Logits of the K choices, branches side by side, before masking; None where there are none."""

    branches: tuple[int, ...]
    """Choices of each branch; their sum is K. Empty where there are none."""

    value: LinearLayer
    """A value for each reward signal."""

    @property
    def inputs(self) -> int:
        """Numbers of an agent's observations in all."""
        return sum(self.sensors)

    @property
    def widest(self) -> int:
        """Outputs of the widest layer."""
        return max(layer.outputs for layer in self.layers)

    @property
    def layers(self) -> tuple[LinearLayer, ...]:
        """All linear layers, those of memory included."""
        heads = [head for head in (self.mean, self.logits, self.value) if head is not None]
        memory = [part for lstm in self.lstms for part in (lstm.from_features, lstm.from_memory)]
        return (*self.actor, *(self.critic or ()), *memory, *heads)


def layout_of(network: nn.Module, parameters: FlatParameters) -> MlpLayout | None:
    """The layout of an MLP policy; None for every other network.

    Another is whatever is not an ``ActorCritic`` of sensors that are vectors, bodies of linear layers and Swish, with
    LSTMs or without, and heads for actions and values: pictures, entities, GRUs, goals that generate weights, layer
    normalization, other activations, classes derived from these, parameters that are not learned, not float32, or not
    in the vector.

    parameters: of this network and nothing else.
    """
    if type(network) is not ActorCritic or type(network.actions) is not ActionHeads:
        return None
    vector, heads = _Vector(parameters.vector), network.actions
    try:
        layout = MlpLayout(
            size=parameters.vector.numel(),
            sensors=network.actor.encoder.vector_sizes,
            actor=_body(network.actor, vector),
            critic=None if network.critic is None else _body(network.critic, vector),
            lstms=tuple(
                _lstm(trunk.memory, vector)
                for trunk in (network.actor, network.critic)
                if trunk is not None and trunk.memory is not None
            ),
            mean=None if heads.mean is None else vector.linear(heads.mean),
            log_sigma=None if heads.log_sigma is None else vector.offset(heads.log_sigma),
            logits=None if heads.logits is None else vector.linear(heads.logits),
            branches=tuple(heads.branches),
            value=vector.linear(network.value),
        )
    except _NoLayoutError:
        return None
    return layout if vector.covered == layout.size else None


class _NoLayoutError(Exception):
    """Something that a layout has no words for."""


class _Vector:
    """The vector of all parameters, and how many of its numbers were found in layers."""

    def __init__(self, vector: Tensor) -> None:
        self._vector = vector
        self.covered = 0

    def offset(self, parameter: Tensor) -> int:
        """Where a parameter begins in the vector."""
        there = parameter.untyped_storage().data_ptr() == self._vector.untyped_storage().data_ptr()
        learned = parameter.requires_grad and parameter.dtype == torch.float32
        if not (there and learned and parameter.is_contiguous()):
            raise _NoLayoutError
        self.covered += parameter.numel()
        return int(parameter.storage_offset())

    def linear(self, layer: nn.Module) -> LinearLayer:
        """Where a layer's numbers begin."""
        if type(layer) is not Linear or layer.bias is None:
            raise _NoLayoutError
        return LinearLayer(
            self.offset(layer.weight), self.offset(layer.bias), layer.in_features, layer.out_features
        )


def _body(trunk: Trunk, vector: _Vector) -> tuple[LinearLayer, ...]:
    """The layers of a trunk's body, where these and perhaps memory are all that it consists of."""
    if type(trunk) is not Trunk or type(trunk.encoder) is not ObservationEncoder:
        raise _NoLayoutError
    if (
        type(trunk.body) is not LinearBody
        or trunk.body.activation != "swish"
        or not trunk.encoder.vector_sizes
    ):
        raise _NoLayoutError
    return tuple(vector.linear(layer) for layer in trunk.body.layers)


def _lstm(memory: Memory, vector: _Vector) -> LSTMLayer:
    """Where the numbers of an LSTM begin."""
    if type(memory) is not LSTM or type(memory.lstm) is not nn.LSTM:
        raise _NoLayoutError
    from_features, from_memory, bias, second_bias = map(vector.offset, memory.lstm.all_weights[0])
    inputs, size = memory.lstm.input_size, memory.output_size
    return LSTMLayer(
        LinearLayer(from_features, bias, inputs, 4 * size),
        LinearLayer(from_memory, second_bias, size, 4 * size),
    )
