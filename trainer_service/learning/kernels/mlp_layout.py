"""Offsets of the layers of MLPs in the vectors of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainer_service.learning.networks.critics.normalization import BatchNorms
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder, Trunk
from trainer_service.learning.networks.encoders.layers import LinearBody
from trainer_service.learning.networks.encoders.memory import LSTM, Memory
from trainer_service.learning.networks.flat import FlatParameters
from trainer_service.learning.networks.policies.action_heads import ActionHeads
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.learning.networks.policies.soft_actor import (
    SoftActor,
    SoftCritics,
    SquashedHeads,
    TwinLinear,
)
from trainer_service.learning.networks.products import Linear


@dataclass(frozen=True, slots=True)
class LinearLayer:
    """A linear layer y = W x + b, as offsets of its numbers in the vector."""

    weight: int
    """Offset of W, row by row: [outputs, inputs]."""

    bias: int
    """Offset of b: [outputs]."""

    inputs: int
    outputs: int


@dataclass(frozen=True, slots=True)
class LSTMLayer:
    """An LSTM with H memory and H output numbers; ``networks.encoders.memory`` has its equations."""

    from_features: LinearLayer
    """W x + b, the gates i, f, g, o concatenated, 4 H numbers."""

    from_memory: LinearLayer
    """U h + b', the same gates."""


@dataclass(frozen=True, slots=True)
class NormLayer:
    """Batch normalization of the inputs of a linear layer, of F features and N networks."""

    weight: int
    """Offset of the weights in the vector: [N, F]."""

    bias: int
    """Offset of the biases: [N, F]."""

    moments: tuple[Tensor, Tensor, Tensor]
    """Running means and variances, [N, 1, F], and the number of batches, int64. They are not in the vector."""


@dataclass(frozen=True, slots=True)
class StackLayout:
    """A body of dense layers and linear heads on it, as offsets into ``FlatParameters.vector``."""

    body: tuple[LinearLayer, ...]
    heads: tuple[LinearLayer, ...]
    """With several networks each layer is the first one's. The others' weights follow it, and so do their biases."""

    relu: bool
    """Whether ReLU follows the body's layers; otherwise Swish does."""

    networks: int = 1
    """Number of networks. The weights of several are [inputs, outputs]."""

    norms: tuple[NormLayer, ...] = ()
    """Batch normalization before each layer of the body and before the head; empty for none."""


@dataclass(frozen=True, slots=True)
class MlpLayout:
    """An MLP policy as offsets into ``FlatParameters.vector``, float32: vectors in, MLP bodies, linear heads.

    Observations x, [B, inputs], are the concatenated, normalized sensors. A body is x ← silu(W x + b), layer after
    layer; with memory an LSTM follows. The inputs of the action heads are the actor's features. The inputs of the
    value heads are the critic's features, or the actor's with a shared critic.
    """

    size: int
    """Number of parameters in the vector. The layers cover all of them, each once."""

    sensors: tuple[int, ...]
    """Size of each sensor, in the order of the observations."""

    actor: tuple[LinearLayer, ...]
    """Layers of the actor's body, at least one."""

    critic: tuple[LinearLayer, ...] | None
    """Layers of the critic's body; None with a shared critic."""

    lstms: tuple[LSTMLayer, ...]
    """The LSTM of the actor's body, then that of the critic's body if there is one; empty without memory."""

    mean: LinearLayer | None
    """Means of the C continuous actions; None without continuous actions."""

    log_sigma: int | None
    """Offset of ln σ of the continuous actions, [C], which no observation affects. None without continuous actions."""

    logits: LinearLayer | None
    """Logits of the K choices before masking, branches concatenated; None without branches."""

    branches: tuple[int, ...]
    """Choices of each branch; their sum is K. Empty without branches."""

    value: LinearLayer
    """Values of all reward signals."""

    @property
    def inputs(self) -> int:
        """Number of an agent's observations."""
        return sum(self.sensors)

    @property
    def widest(self) -> int:
        """Outputs of the widest layer."""
        return max(layer.outputs for layer in self.layers)

    @property
    def layers(self) -> tuple[LinearLayer, ...]:
        """All linear layers, including those of memory."""
        heads = [head for head in (self.mean, self.logits, self.value) if head is not None]
        memory = [part for lstm in self.lstms for part in (lstm.from_features, lstm.from_memory)]
        return (*self.actor, *(self.critic or ()), *memory, *heads)


def layout_of(network: nn.Module, parameters: FlatParameters) -> MlpLayout | None:
    """Returns the layout of an MLP policy; None for any other network.

    An MLP policy is an ``ActorCritic`` with vector sensors, bodies of linear layers and Swish, optional LSTMs, and
    heads for actions and values. Pictures, entities, GRUs, goals that generate weights, layer normalization, other
    activations and subclasses have no layout. The same holds for parameters that are frozen, not float32, or not in
    the vector.

    parameters: exactly this network's.
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


def soft_layouts(
    policy: SoftActor, critics: SoftCritics, vectors: Sequence[FlatParameters]
) -> tuple[StackLayout, StackLayout] | None:
    """Returns the layouts of a ``SoftActor`` and its ``SoftCritics``; None for any other networks.

    Sensors are vectors, layers linear with Swish or ReLU. vectors: the networks' parameters.
    """
    kinds = type(policy), type(critics), type(policy.actions)
    if kinds != (SoftActor, SoftCritics, SquashedHeads) or critics.memory_size:
        return None
    actions, activation, encoder = policy.actions, critics.activation, critics.encoders[0]
    if (
        activation not in ("swish", "relu")
        or type(encoder) is not ObservationEncoder
        or not encoder.vector_sizes
    ):
        return None
    own, theirs = (_Vector(each.vector) for each in vectors)
    try:
        body = _body(policy.actor, own, activation)
        present = (actions.mean, actions.log_sigma, actions.logits)
        heads = tuple(own.linear(each) for each in present if each is not None)
        twins = tuple(map(theirs.linear, critics.body)), (theirs.linear(critics.q),)
        norms = tuple(map(theirs.norm, critics.norms))
    except _NoLayoutError:
        return None
    # Other parts of a body have parameters too.
    if [own.covered, theirs.covered] != [each.vector.numel() for each in vectors]:
        return None
    relu = activation == "relu"
    return StackLayout(body, heads, relu), StackLayout(*twins, relu, len(critics.q.weight), norms)


class _NoLayoutError(Exception):
    """The network has a part that no layout describes."""


class _Vector:
    """The vector of all parameters, and the number of them found in layers."""

    def __init__(self, vector: Tensor) -> None:
        self._vector = vector
        self.covered = 0

    def offset(self, parameter: Tensor) -> int:
        """Returns a parameter's offset in the vector."""
        there = parameter.untyped_storage().data_ptr() == self._vector.untyped_storage().data_ptr()
        learned = parameter.requires_grad and parameter.dtype == torch.float32
        if not (there and learned and parameter.is_contiguous()):
            raise _NoLayoutError
        self.covered += parameter.numel()
        return int(parameter.storage_offset())

    def linear(self, layer: nn.Module | None) -> LinearLayer:
        """Returns a layer's offsets in the vector."""
        if type(layer) is TwinLinear:
            return LinearLayer(self.offset(layer.weight), self.offset(layer.bias), *layer.weight.shape[1:])
        if type(layer) is not Linear or layer.bias is None:
            raise _NoLayoutError
        return LinearLayer(
            self.offset(layer.weight), self.offset(layer.bias), layer.in_features, layer.out_features
        )

    def norm(self, norm: nn.Module) -> NormLayer:
        """Returns the offsets of batch normalization in the vector, and its moments."""
        if type(norm) is not BatchNorms:
            raise _NoLayoutError
        moments = norm.mean, norm.variance, norm.batches
        return NormLayer(self.offset(norm.weight), self.offset(norm.bias), moments)


def _body(trunk: Trunk, vector: _Vector, activation: str = "swish") -> tuple[LinearLayer, ...]:
    """Returns the layers of a trunk's body, if the trunk has no other parts except memory."""
    if type(trunk) is not Trunk or type(trunk.encoder) is not ObservationEncoder:
        raise _NoLayoutError
    if (
        type(trunk.body) is not LinearBody
        or trunk.body.activation != activation
        or not trunk.encoder.vector_sizes
    ):
        raise _NoLayoutError
    return tuple(vector.linear(layer) for layer in trunk.body.layers)


def _lstm(memory: Memory, vector: _Vector) -> LSTMLayer:
    """Returns an LSTM's offsets in the vector."""
    if type(memory) is not LSTM or type(memory.lstm) is not nn.LSTM:
        raise _NoLayoutError
    from_features, from_memory, bias, second_bias = map(vector.offset, memory.lstm.all_weights[0])
    inputs, size = memory.lstm.input_size, memory.output_size
    return LSTMLayer(
        LinearLayer(from_features, bias, inputs, 4 * size),
        LinearLayer(from_memory, second_bias, size, 4 * size),
    )
