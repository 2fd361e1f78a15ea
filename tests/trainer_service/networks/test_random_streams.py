from __future__ import annotations

import logging

import pytest
import torch
from torch import Tensor

from trainer_service.networks.random_streams import random_stream, restore_streams
from trainer_service.ops import distributions as dist
from trainer_service.ops.q_learning import exploring, random_choices

ELSEWHERE = torch.device("meta")
"""A device without numbers: what is drawn there would leave the stream where it is."""


def of_a_gpu(seed: int, drawn: int) -> Tensor:
    """A state as torch has it on CUDA: a seed and how much was drawn."""
    return torch.tensor([seed, drawn]).view(torch.uint8)


def draws_after(state: Tensor) -> list[float]:
    stream = random_stream(1)
    restore_streams({"acting": stream}, {"acting": state})
    drawn: list[float] = torch.rand(4, generator=stream).tolist()
    return drawn


def test_a_stream_goes_on_from_its_state() -> None:
    stream = random_stream(7)
    torch.rand(3, generator=stream)
    state = stream.get_state()
    assert draws_after(state) == torch.rand(4, generator=stream).tolist()


def test_a_stream_of_another_device_begins_anew_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        after = [draws_after(of_a_gpu(*state)) for state in [(7, 0), (7, 4), (8, 0), (7, 0)]]
    assert after[0] == after[3]  # the same state twice
    assert after[0] != after[1] != after[2] != after[0]
    assert (
        torch.rand(4, generator=random_stream(1)).tolist() not in after
    )  # the run's first draws are not repeated
    assert len(caplog.messages) == 4
    assert "random streams (acting) are of another device" in caplog.messages[0]


def test_only_the_streams_that_begin_anew_are_named(caplog: pytest.LogCaptureFixture) -> None:
    streams = {name: random_stream(1) for name in ("acting", "shuffling", "drawing")}
    state = {name: of_a_gpu(1, 2) for name in streams} | {"shuffling": random_stream(3).get_state()}
    with caplog.at_level(logging.WARNING):
        restore_streams(streams, state)
    (said,) = caplog.messages
    assert "(acting, drawing)" in said


def test_a_missing_stream_is_an_error() -> None:
    with pytest.raises(KeyError, match="acting"):
        restore_streams({"acting": random_stream(1)}, {})


DRAWS = {
    "normal": dist.standard_normal,
    "exponential": dist.standard_exponential,
    "uniform": lambda like, stream: dist.uniform(like, -1.0, 1.0, stream),
    "categorical": lambda like, stream: dist.sample_categorical(like, (2, 1), stream),
    "allowed choices": lambda like, stream: random_choices(like > 0, (2, 1), stream),
    "now and then": lambda like, stream: exploring(like[:, :2].long(), like > 0, 0.5, stream, (2, 1)),
}


@pytest.mark.parametrize("name", DRAWS)
def test_what_is_drawn_on_the_cpu_comes_to_the_device_of_the_networks(name: str) -> None:
    streams = [random_stream(1), random_stream(1)]
    here, there = (
        DRAWS[name](torch.ones((5, 3), device=device), stream)
        for device, stream in zip(("cpu", ELSEWHERE), streams, strict=True)
    )
    assert (there.device, there.shape, there.dtype) == (ELSEWHERE, here.shape, here.dtype)
    # Runs on both devices draw the same: afterwards their streams stand at the same place, and not at the beginning.
    assert torch.equal(streams[0].get_state(), streams[1].get_state())
    assert not torch.equal(streams[0].get_state(), random_stream(1).get_state())


def test_draws_are_laid_out_as_what_they_are_for() -> None:
    like = torch.empty(3, 5).t()
    assert dist.standard_normal(like, random_stream(1)).stride() == like.stride()
