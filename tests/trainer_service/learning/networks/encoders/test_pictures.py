"""The five picture encoders: their layers, how they begin, and how small a picture they take."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn

from trainer_service.learning.networks.encoders import pictures as encoders
from trainer_service.learning.networks.encoders.pictures import MINIMUM_SIDE, picture_encoder
from unity_bridge.specs import ObservationSpec

ENCODERS = list(MINIMUM_SIDE)


def camera(channels: int, height: int, width: int) -> ObservationSpec:
    return ObservationSpec("camera", (channels, height, width))


@pytest.mark.parametrize("encoder", ENCODERS)
def test_the_smallest_picture_passes_and_a_smaller_one_is_refused(encoder) -> None:
    least = MINIMUM_SIDE[encoder]
    made = picture_encoder(camera(3, least, least), encoder, 8)
    assert made(torch.rand(2, 3, least, least)).shape == (2, 8)
    if least > 1:
        for height, width in ((least - 1, 90), (90, least - 1)):
            with pytest.raises(ValueError, match=f"'{encoder}' needs at least {least} both ways"):
                picture_encoder(camera(3, height, width), encoder, 8)


def test_a_refusal_says_what_would_fit() -> None:
    with pytest.raises(ValueError) as refused:  # noqa: PT011  # the whole message is compared below
        picture_encoder(camera(3, 16, 50), "nature_cnn", 8)
    assert str(refused.value) == (
        "sensor 'camera' shows pictures 50 wide and 16 high, but vis_encode_type 'nature_cnn' needs at least 36 "
        "both ways; these would fit: resnet, match3, fully_connected"
    )


@pytest.mark.parametrize("encoder", ENCODERS)
def test_convolutions_start_as_in_torch_and_the_dense_layer_wider(encoder) -> None:
    torch.manual_seed(2)
    made = picture_encoder(camera(3, 60, 60), encoder, 64)
    assert made.dense.weight.std().item() == pytest.approx(1.41 / math.sqrt(made.dense.in_features), rel=0.05)
    assert not made.dense.bias.any()
    for layer in (module for module in made.modules() if isinstance(module, nn.Conv2d)):
        bound = layer.weight[0].numel() ** -0.5
        assert 0.95 * bound < layer.weight.abs().max() <= bound
        assert 0.5 * bound < layer.bias.abs().max() <= bound


@pytest.mark.parametrize("encoder", ["nature_cnn", "resnet"])
def test_the_order_in_memory_changes_no_result(encoder, monkeypatch) -> None:
    torch.manual_seed(5)
    made = picture_encoder(camera(3, 40, 40), encoder, 6)
    shown = torch.rand(5, 3, 40, 40)
    orders, convolve = [], made.convolutions[0].forward

    def recorded(given):
        orders.append(given.is_contiguous(memory_format=torch.channels_last))
        return convolve(given)

    monkeypatch.setattr(made.convolutions[0], "forward", recorded)
    found = []
    for _ in range(2):
        made.zero_grad()
        features = made(shown)
        features.square().sum().backward()
        found.append([features.detach(), *(each.grad.clone() for each in made.parameters())])
        monkeypatch.setattr(encoders, "_channels_last", lambda shown: shown)
    torch.testing.assert_close(*found, atol=1e-5, rtol=1e-5)
    assert orders == [True, False]


def test_an_export_in_another_thread_changes_no_order_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.onnx, "is_in_onnx_export", lambda: True)  # true for all threads
    pictures = encoders._channels_last(torch.zeros(2, 3, 8, 8))
    assert pictures.is_contiguous(memory_format=torch.channels_last)
