from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainer_service.learning.networks.random_streams import random_stream, restore_streams, seeded
from trainer_service.ops import distributions as dist
from trainer_service.ops.q_learning import exploring, random_choices

ELSEWHERE = torch.device("meta")
"""A device without numbers: what is drawn there would leave the stream where it is."""


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


def test_seeding_leaves_the_programs_own_stream_where_it_was() -> None:
    before = torch.get_rng_state()
    drawn = []
    for _ in range(2):
        with seeded(3):
            drawn.append(torch.rand(4).tolist())
    assert drawn[0] == drawn[1]
    assert torch.equal(torch.get_rng_state(), before)


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
