"""Random streams: on the CPU, wherever the networks are.

So a checkpoint moves between devices, and a seed means the same actions' noise and the same order of minibatches on
each of them. What is drawn is copied to where it is used.
"""

from __future__ import annotations

import logging
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

_logger = logging.getLogger(__name__)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the random numbers that networks begin with; all others go on afterwards as if nothing had been drawn."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def random_stream(seed: int) -> torch.Generator:
    """A stream of that seed, on the CPU."""
    return torch.Generator().manual_seed(seed)


def restore_streams(streams: Mapping[str, torch.Generator], state: Mapping[str, Any]) -> None:
    """Lets streams go on from their states, by name.

    A state of another device's generator, as earlier versions saved them on a GPU, cannot be gone on from: that stream
    begins anew, with a warning, and as no other did, since a seed is made of the state.

    Args:
        streams: by name.
        state: ``get_state()`` of each, by the same names; others are left alone.

    Raises:
        KeyError: one is missing.
        RuntimeError, TypeError: one is no state.
    """
    renewed = [name for name, stream in streams.items() if not _restored(stream, state[name].cpu())]
    if renewed:
        _logger.warning(
            "The checkpoint's random streams (%s) are of another device: they begin anew. The run goes on, but not bit "
            "for bit as it would have there.",
            ", ".join(renewed),
        )


def _restored(stream: torch.Generator, state: Tensor) -> bool:
    """Whether the stream goes on from the state. If not it begins anew."""
    if len(state) == len(stream.get_state()):
        stream.set_state(state)
        return True
    stream.manual_seed(zlib.crc32(state.numpy().tobytes()))
    return False
