"""Precision of picture encoders: single, or bfloat16 on processors that are faster with it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, nn

from trainer_service.config.run_options import Precision

_chosen: ContextVar[Precision] = ContextVar(
    "precision of the picture encoders that are made", default="float32"
)


@contextmanager
def pictures_in(precision: Precision) -> Iterator[None]:
    """A context in which new networks encode their pictures in a precision."""
    token = _chosen.set(precision)
    try:
        yield
    finally:
        _chosen.reset(token)


def chosen_precision() -> Precision:
    """The precision of new networks: single outside of ``pictures_in``."""
    return _chosen.get()


def encode_pictures(encoder: nn.Module, pictures: Tensor, precision: Precision) -> Tensor:
    """Encodes pictures, with products of convolutions and the dense layer in that precision.

    Weights, gradients and features are single for every precision. [B, C, H, W] to [B, features].
    """
    if precision == "float32":
        features: Tensor = encoder(pictures)
        return features
    with torch.autocast(pictures.device.type, torch.bfloat16):
        features = encoder(pictures)
    return features.float()


def is_fast(precision: Precision, device: torch.device) -> bool:
    """Whether the device has instructions for products in that precision. Otherwise single precision is faster."""
    if precision == "float32":
        return True
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    return device.type != "cpu" or bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
