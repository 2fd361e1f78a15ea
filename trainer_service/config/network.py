"""The shape of a network: the ``network_settings`` of a behavior or of a reward signal."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator

from trainer_service.config.section import Section
from trainer_service.config.values import Count, Flag, PositiveCount, expected

EncoderType = Literal["simple", "nature_cnn", "resnet", "match3", "fully_connected"]


class MemorySettings(Section):
    """A recurrent layer after the body. An empty mapping switches it on with these defaults."""

    type: Literal["lstm", "gru"] = "lstm"
    """Kind of the layer. ``gru`` is an addition: policies of ML-Agents all have an LSTM."""

    sequence_length: PositiveCount = 64
    """Steps that the gradient reaches back; at most batch_size."""

    memory_size: PositiveCount = 128
    """Floats carried from step to step, even: half hidden and half cell state, or all hidden state of a GRU."""

    @field_validator("memory_size")
    @classmethod
    def _has_two_halves(cls, size: int) -> int:
        if size % 2:
            raise expected("an even number", size)
        return size


class NetworkSettings(Section):
    """Encoders, body and memory of one network."""

    normalize: Flag = False
    """Whether vector observations are scaled by their running mean and variance."""

    hidden_units: PositiveCount = 128
    """Width of each layer of the body."""

    num_layers: Count = 2
    """Layers of the body; 0 builds one all the same."""

    layer_norm: Flag = False
    """Whether the body is that of MAPPO's authors: layer normalization of its inputs and after each layer, ReLU and
    orthogonal weights, instead of ML-Agents' Swish; with qmix, the mixer is normalized too. Not with sac, with
    learners that communicate, nor with goals that generate weights. Not in ML-Agents."""

    keep_scale: Flag = False
    """With ``layer_norm``: whether the constants 1 and −1 are normalized among the inputs, so that where these lie and
    how large they are is not lost. Not in ML-Agents."""

    vis_encode_type: EncoderType = "simple"
    """Encoder of picture observations."""

    goal_conditioning_type: Literal["hyper", "none"] = "hyper"
    """How goal observations act: ``hyper`` lets them generate weights, ``none`` treats them as any input."""

    deterministic: Flag = False
    """Whether the policy takes its most likely action instead of drawing one."""

    memory: MemorySettings | None = None
    """Null for a policy without memory."""
