"""The process group of learner ranks: sums over all ranks by torch.distributed, and messages of rank 0.

Gloo sums tensors in CPU memory, NCCL tensors in GPU memory. Other messages are in the format of ``runs.tensor_file``:
tensors and plain values. Reading them executes no code.
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
from trainer_service.learning.networks.shard import Shard
from trainer_service.running.runs.tensor_file import read_values_from, write_values
from unity_bridge.untrusted_text import first_line

COLLECTIVE_TIMEOUT = timedelta(seconds=60)
"""The longest time that other ranks wait for a rank in the middle of an update."""
_START_TIMEOUT_S = 180.0
"""Seconds in which all ranks must load torch and connect."""
_WAIT_TIMEOUT = timedelta(days=365)
"""The longest time that ranks wait for the next update. If rank 0 ends, its connections close at once."""
_LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Meeting:
    """The address at which learner ranks connect, with their common settings."""

    host: str
    port: int
    world: int
    """Number of learner ranks."""

    device: str
    """``cpu`` or ``cuda``: the kind of device of all ranks."""

    one_machine: bool = True
    """Whether all ranks are on one machine, so that they need only its loopback network."""


def open_meeting(
    world: int, device: torch.device, *, host: str = _LOOPBACK, one_machine: bool = True
) -> tuple[Meeting, TCPStore]:
    """Opens a meeting of learner ranks on a port that the system chooses. Called by rank 0.

    The store listens on this address only, since a process that can connect to it could prevent the meeting.
    """
    family, _, _, _, address = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
    with socket.create_server(address[:2], family=family) as listener:
        port: int = listener.getsockname()[1]
        store = TCPStore(
            host, port, None, True, COLLECTIVE_TIMEOUT, False, master_listen_fd=os.dup(listener.fileno())
        )
    return Meeting(host, port, world, device.type, one_machine), store


def join_meeting(meeting: Meeting) -> TCPStore:
    """Connects to the meeting of rank 0. Raises LearnerRankLost if rank 0 does not answer."""
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
        """Waits until all ranks are connected. check: called while waiting; raises an error if a rank failed.

        Raises:
            LearnerRankLost: A rank did not connect in time.
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
        """Whether a rank was lost, so that no common computation is possible."""

    def add_up(self, tensor: Tensor) -> Tensor:
        """Sums a tensor over all ranks, in place, with the same bits on each rank. Returns it.

        Raises:
            LearnerRankLost: Another rank ended, or did not answer within ``COLLECTIVE_TIMEOUT``.
        """
        self._attempt(lambda: dist.all_reduce(tensor))
        return tensor

    def send(self, message: Mapping[str, Any]) -> None:
        """Sends a message to all other ranks. message: tensors and plain values. Raises LearnerRankLost."""
        file = io.BytesIO()
        write_values(message, file)
        content = torch.frombuffer(file.getbuffer(), dtype=torch.uint8)
        self._attempt(lambda: dist.broadcast(torch.tensor([len(content)]), src=0, group=self._waiting))
        self._attempt(lambda: dist.broadcast(content, src=0))

    def receive(self) -> Any:
        """Waits for the next message of rank 0, without a timeout.

        Raises:
            LearnerRankLost: Rank 0 ended.
            TensorFileError: The message is not in the format of ``send``.
        """
        size = torch.zeros(1, dtype=torch.int64)
        self._attempt(lambda: dist.broadcast(size, src=0, group=self._waiting))
        content = torch.empty(int(size), dtype=torch.uint8)
        self._attempt(lambda: dist.broadcast(content, src=0))
        return read_values_from(content.numpy().tobytes())

    def close(self) -> None:
        """Closes the connections."""
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
    """Restricts ranks of one machine to loopback, unless the user chose a network, and makes NCCL raise errors."""
    if meeting.one_machine:
        loopback = "lo0" if sys.platform == "darwin" else "lo"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", loopback)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", loopback)
    # By default NCCL ends the process if another rank is lost, and nothing is saved.
    os.environ.setdefault("TORCH_NCCL_BLOCKING_WAIT", "1")
    os.environ.setdefault("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0")


def _first_line(error: Exception) -> str:
    """Returns the message of a torch error, without the source location at its start."""
    return re.sub(r"^\[\S+\] ", "", first_line(error))
