"""The process group of learner ranks: sums over all of them by torch.distributed, and what rank 0 tells the others.

Gloo adds up what lies in the memory of CPUs, NCCL what lies in that of GPUs. What crosses beside numbers is what
``runs.tensor_file`` writes of tensors and plain values, and reads, which executes nothing.
"""

from __future__ import annotations

import io
import os
import re
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import Store, TCPStore  # type: ignore[attr-defined]  # torch has no types here

from trainer_service.errors import LearnerRankLost
from trainer_service.networks.shard import Shard
from trainer_service.runs.tensor_file import read_values_from, write_values
from unity_bridge.untrusted_text import first_line

COLLECTIVE_TIMEOUT = timedelta(seconds=60)
"""How long a rank may let the others wait in the middle of an update."""
_START_TIMEOUT_S = 180.0
"""Seconds in which all ranks must have loaded torch and called."""
_WAIT_TIMEOUT = timedelta(days=365)
"""How long ranks wait for the next update. Where rank 0 ends, its connections close and they notice at once."""
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Meeting:
    """The place where learner ranks find each other, and what they have in common."""

    host: str
    port: int
    world: int
    """Learner ranks."""

    device: str
    """``cpu`` or ``cuda``: the kind of device that all of them compute on."""

    one_machine: bool = True
    """Whether all are on one machine, and so need no network but its own."""


def open_meeting(
    world: int, device: torch.device, *, host: str = _LOOPBACK, one_machine: bool = True
) -> tuple[Meeting, TCPStore]:
    """Opens a place where learner ranks meet, on a port that the system chooses; rank 0 does so.

    The store listens on this address alone: whoever reaches it could keep the ranks from finding each other.
    """
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address[:2], family=family) as listener:
        port: int = listener.getsockname()[1]
        store = TCPStore(
            host, port, None, True, COLLECTIVE_TIMEOUT, False, master_listen_fd=os.dup(listener.fileno())
        )
    return Meeting(host, port, world, device.type, one_machine), store


def join_meeting(meeting: Meeting) -> TCPStore:
    """Connects to the place that rank 0 opened. Raises LearnerRankLost where there is nobody."""
    try:
        return TCPStore(meeting.host, meeting.port, None, False, COLLECTIVE_TIMEOUT)
    except RuntimeError as error:
        raise LearnerRankLost(f"learner rank 0 cannot be reached: {_first_line(error)}") from None


class LearnerGroup(Shard):
    """One of several learner ranks, connected to all others."""

    def __init__(
        self,
        meeting: Meeting,
        store: Store,
        rank: int,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """Waits until all ranks are there. check: called meanwhile, to raise what explains why one is not.

        Raises:
            LearnerRankLost: a rank did not come in time.
        """
        self.rank, self.world = rank, meeting.world
        _choose_network(meeting)
        store.set(f"here/{rank}", "1")
        _wait_for_all(store, meeting.world, check)
        backend = "cpu:gloo,cuda:nccl" if meeting.device == "cuda" else "gloo"
        self._attempt(
            lambda: dist.init_process_group(
                backend, store=store, rank=rank, world_size=meeting.world, timeout=COLLECTIVE_TIMEOUT
            )
        )
        self._waiting = self._attempt(lambda: dist.new_group(backend="gloo", timeout=_WAIT_TIMEOUT))
        self.broken = False
        """Whether a rank was lost, so that nothing can be computed together any more."""

    def add_up(self, tensor: Tensor) -> Tensor:
        """Adds a tensor up over all ranks, in place, to the same bits on each. Returns it.

        Raises:
            LearnerRankLost: another rank ended, or did not come within ``COLLECTIVE_TIMEOUT``.
        """
        self._attempt(lambda: dist.all_reduce(tensor))
        return tensor

    def send(self, message: Mapping[str, Any]) -> None:
        """Tells all other ranks something. message: tensors and plain values. Raises LearnerRankLost."""
        file = io.BytesIO()
        write_values(message, file)
        content = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
        self._attempt(lambda: dist.broadcast(torch.tensor([len(content)]), src=0, group=self._waiting))
        self._attempt(lambda: dist.broadcast(content, src=0))

    def receive(self) -> Any:
        """Waits for what rank 0 says next, however long that takes.

        Raises:
            LearnerRankLost: rank 0 ended.
            TensorFileError: it is not what ``send`` sent.
        """
        size = torch.zeros(1, dtype=torch.int64)
        self._attempt(lambda: dist.broadcast(size, src=0, group=self._waiting))
        content = torch.empty(int(size), dtype=torch.uint8)
        self._attempt(lambda: dist.broadcast(content, src=0))
        return read_values_from(content.numpy().tobytes())

    def close(self) -> None:
        """Ends the connections."""
        if dist.is_initialized():
            dist.destroy_process_group()

    def _attempt(self, exchange: Callable[[], Any]) -> Any:
        try:
            return exchange()
        except RuntimeError as error:
            self.broken = True
            raise LearnerRankLost(f"a learner rank does not answer any more: {_first_line(error)}") from None


def _wait_for_all(store: Store, world: int, check: Callable[[], None]) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while missing := [rank for rank in range(world) if not store.check([f"here/{rank}"])]:
        check()
        if time.monotonic() > deadline:
            raise LearnerRankLost(
                f"expected {world} learner ranks within {_START_TIMEOUT_S:.0f} s; missing: "
                + ", ".join(map(str, missing))
            )
        time.sleep(0.05)


def _choose_network(meeting: Meeting) -> None:
    """Keeps ranks of one machine off its network, unless the user has chosen, and lets NCCL raise instead of abort."""
    if meeting.one_machine:
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    # What NCCL does without: it ends the process where another rank is lost, and nothing is saved.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")


def _first_line(error: Exception) -> str:
    """What an error of torch says, without the place in its sources that it begins with."""
    return re.sub(r"^\[\S+\] ", "", first_line(error))
