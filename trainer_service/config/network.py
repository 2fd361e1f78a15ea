"""The shape of a network: the ``network_settings`` of a behavior or of a reward signal."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ValidationInfo, field_validator

from trainer_service.config.section import NameIn, Remark, Section, require_choice
from trainer_service.config.values import Count, Flag, PositiveCount, expected
from unity_bridge.plugins import PluginGroup

ENCODER_TYPES = ("simple", "nature_cnn", "resnet", "match3", "fully_connected")
"""The built-in encoders of pictures."""

ENCODER_PLUGINS = PluginGroup("picture encoder", "trainer_service.encoders", frozenset(ENCODER_TYPES))
"""Encoders of other distributions: each a maker of a module from a shape and a number of features."""


OBSERVATION_ENCODER_PLUGINS = PluginGroup("observation encoder", "trainer_service.observation_encoders")
"""Encoders of all sensors together, of other distributions: each a maker of a module from the sensors' shapes."""


def _known_observation_encoder(value: Any) -> str | None:
    if value is None:
        return None
    offered = OBSERVATION_ENCODER_PLUGINS.offered()
    if not offered:
        raise expected("null, because no installed distribution offers an observation encoder", value)
    return require_choice("observation encoder", value, offered)


EncoderType = Annotated[str, NameIn(ENCODER_PLUGINS, ENCODER_TYPES)]
"""The name of an encoder. That of a plugin is known by the distribution's metadata: nothing is imported here."""


Activation = Literal["swish", "relu", "tanh"]
"""The name of a function that follows a layer."""


WIDEST = 2**15
"""Units of the widest layer: what is wider was never meant, and fails only when a simulator is there."""

DEEPEST = 1000
"""Layers of one body."""

MOST_WEIGHTS = 2**31
"""Weights of all layers of one body, which are 8 GiB."""


class MemorySettings(Section):
    """A recurrent layer after the body. An empty mapping switches it on with these defaults."""

    type: Literal["lstm", "gru"] = "lstm"
    """Kind of the layer. ``gru`` is an addition: policies of ML-Agents all have an LSTM."""

    sequence_length: PositiveCount = 64
    """Steps that the gradient reaches back; at most batch_size."""

    memory_size: PositiveCount = 128
    """Floats carried from step to step, even: half hidden and half cell state, or all hidden state of a GRU. At most
    32768."""

    @field_validator("memory_size")
    @classmethod
    def _has_two_halves(cls, size: int) -> int:
        if size % 2:
            raise expected("an even number", size)
        if size > WIDEST:
            raise expected(f"at most {WIDEST}", size)
        return size


class NetworkSettings(Section):
    """Encoders, body and memory of one network."""

    normalize: Flag = False
    """Whether vector observations are scaled by their running mean and variance."""

    hidden_units: PositiveCount = 128
    """Width of each layer of the body, at most 32768."""

    num_layers: Count = 2
    """Layers of the body; 0 builds one all the same. At most 1000, and 2^31 weights together."""

    activation: Activation = "swish"
    """Activation after each layer of the body. With ``swish`` weights begin as in ML-Agents, with ``relu`` and
    ``tanh`` as in PyTorch, whose first weights Stable-Baselines3's SAC has as well. Not with ``layer_norm``, which has
    ReLU, with goals that generate weights, nor with learners that communicate. Not in ML-Agents."""

    layer_norm: Flag = False
    """Whether the body is that of MAPPO's authors: layer normalization of its inputs and after each layer, ReLU and
    orthogonal weights, instead of ML-Agents' Swish; with qmix, the mixer is normalized too. Not with sac, crossq, with
    learners that communicate, nor with goals that generate weights. Not in ML-Agents."""

    keep_scale: Flag = True
    """With ``layer_norm``: whether the constants 1 and −1 are normalized among the inputs, so that where these lie and
    how large they are is not lost. Without them an agent takes what it sees for as far away as what is twice as far,
    unless its index is among the inputs (``agent_ids``): that is a constant, too. Not in ML-Agents."""

    vis_encode_type: EncoderType = "simple"
    """Encoder of picture observations."""

    encoder: Annotated[str | None, BeforeValidator(_known_observation_encoder)] = None
    """Encoder of all sensors together, by the name of a plugin; null: vectors pass unchanged, ``vis_encode_type``
    encodes pictures. Not for learners of groups. Not in ML-Agents."""

    encoder_kwargs: dict[str, Any] | None = None
    """Keyword arguments of ``encoder``."""

    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """How goal observations act: ``hyper`` lets them generate weights, ``none`` treats them as any input. Always
    ``none`` for maddpg, for learners that communicate and, among value learners of groups, with ``share: none``."""

    deterministic: Flag = False
    """Whether the policy takes its most likely action instead of drawing one. Without effect on the training of trainer
    types whose policies draw none: those learn from a replay buffer, all but ``sac`` and ``crossq``, and explore."""

    memory: MemorySettings | None = None
    """Null for a policy without memory."""

    @field_validator("hidden_units")
    @classmethod
    def _can_be_made(cls, width: int) -> int:
        if width > WIDEST:
            raise expected(f"at most {WIDEST}, which is 4 GiB of weights a layer", width)
        return width

    @field_validator("num_layers")
    @classmethod
    def _can_all_be_made(cls, layers: int, info: ValidationInfo) -> int:
        width = info.data.get("hidden_units", 1)
        most = min(MOST_WEIGHTS // width**2, DEEPEST)
        if layers > most:
            raise expected(f"at most {most} beside hidden_units: {width}", layers)
        return layers

    def remarks(self) -> Iterator[Remark]:
        """Yields settings that are accepted but have no effect or another one."""
        if not self.keep_scale and not self.layer_norm:
            yield Remark(("keep_scale",), "has no effect without layer_norm")
        if self.encoder_kwargs and self.encoder is None:
            yield Remark(("encoder_kwargs",), "has no effect without encoder")

    @field_validator("layer_norm")
    @classmethod
    def _has_no_other_activation(cls, layer_norm: bool, info: ValidationInfo) -> bool:
        activation = info.data.get("activation", "swish")
        if layer_norm and activation != "swish":
            raise expected(f"false beside activation: {activation}, as it has ReLU", layer_norm)
        return layer_norm
