"""Random streams on the CPU, for networks on any device.

So checkpoints can move between devices, and a seed gives the same action noise and order of minibatches on each
device. Draws are copied to the device that uses them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

_ONE_AT_A_TIME = threading.RLock()


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seeds the random initialization of networks. Torch's global random state is restored afterwards.

    That state is of all threads: two runs of one program initialize their networks one after the other.
    """
    with _ONE_AT_A_TIME, torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def random_stream(seed: int) -> torch.Generator:
    """Makes a stream with this seed, on the CPU."""
    return torch.Generator().manual_seed(seed)


def restore_streams(streams: Mapping[str, torch.Generator], state: Mapping[str, Any]) -> None:
    """Restores streams from their states, by name.

    Args:
        streams: by name.
        state: ``get_state()`` of each, by the same names; other entries are ignored.

    Raises:
        KeyError: A state is missing.
        RuntimeError, TypeError: A state is invalid.
    """
    for name, stream in streams.items():
        stream.set_state(state[name])
