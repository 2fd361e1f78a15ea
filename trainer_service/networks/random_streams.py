"""Random streams on the CPU, for networks on any device.

So checkpoints can move between devices, and a seed gives the same action noise and order of minibatches on each
device. Draws are copied to the device that uses them.
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
    """Seeds the random initialization of networks. Torch's global random state is restored afterwards."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def random_stream(seed: int) -> torch.Generator:
    """Makes a stream with this seed, on the CPU."""
    return torch.Generator().manual_seed(seed)


def restore_streams(streams: Mapping[str, torch.Generator], state: Mapping[str, Any]) -> None:
    """Restores streams from their states, by name.

    The state of another device's generator, which earlier versions saved on a GPU, cannot be restored. Then the stream
    starts anew, with a warning and a seed that is computed from the state.

    Args:
        streams: by name.
        state: ``get_state()`` of each, by the same names; other entries are ignored.

    Raises:
        KeyError: A state is missing.
        RuntimeError, TypeError: A state is invalid.
    """
    renewed = [name for name, stream in streams.items() if not _restored(stream, state[name].cpu())]
    if renewed:
        _logger.warning(
            "The checkpoint's random streams (%s) are of another device: they begin anew. The run goes on, but not bit "
            "for bit as it would have there.",
            ", ".join(renewed),
        )


def _restored(stream: torch.Generator, state: Tensor) -> bool:
    """Restores the stream, and returns whether that was possible. If not, the stream starts anew."""
    if len(state) == len(stream.get_state()):
        stream.set_state(state)
        return True
    stream.manual_seed(zlib.crc32(state.numpy().tobytes()))
    return False
