"""Learner ranks from the side of rank 0: their processes, and the learners that they share."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from typing import Self

import torch

from trainer_service.config import RunOptions, TrainerSettings
from trainer_service.distributed.learners.group import LearnerGroup, Meeting, open_meeting
from trainer_service.distributed.learners.replicated_learner import ReplicatedLearner, introduce_learner
from trainer_service.distributed.learners.torchrun import publish
from trainer_service.errors import ConfigError, LearnerRankLost
from trainer_service.learning.algorithms import make_learner
from trainer_service.learning.algorithms.common.learner import Compute, Learner
from trainer_service.running.training.learner_ranks import LaunchedRank, launched_rank, num_learners
from unity_bridge.programs.child_process import ignoring_schedulers
from unity_bridge.specs import BehaviorSpec

WORTHWHILE_ROWS = 1024
"""Rows of a minibatch for each rank, below which the sums over ranks cost more time than the division saves."""
_GOODBYE_S = 5.0
"""Seconds that processes have to end by themselves."""
_REASON_S = 2.0
"""Seconds after which a lost process has an exit code."""

_logger = logging.getLogger(__name__)


class LearnerRanks:
    """The learner ranks of a run, with this process as rank 0. A context that ends the other ranks."""

    def __init__(
        self,
        group: LearnerGroup,
        processes: Sequence[subprocess.Popen[bytes]] = (),
        on_this_machine: int | None = None,
    ) -> None:
        """processes: ranks 1, 2 … that this process started. on_this_machine: number of ranks; None for all."""
        self.on_this_machine = group.world if on_this_machine is None else on_this_machine
        """Number of ranks that share this machine's cores."""
        self.group = group
        self.processes = processes
        self._learners = 0

    def make(self, name: str, spec: BehaviorSpec, settings: TrainerSettings, compute: Compute) -> Learner:
        """Makes the learner of a behavior on every rank. spec: as the learner observes it.

        Raises:
            ValueError: The trainer does not support the behavior, or ranks cannot share its updates.
            LearnerRankLost: A rank ended.
        """
        world = self.group.world
        if settings.trainer_type == "random":
            raise ValueError(
                f"random learns nothing that {world} learner ranks could share: expected num_learners 1"
            )
        if (rows := settings.hyperparameters.batch_size // world) < WORTHWHILE_ROWS:
            _logger.warning(
                "'%s': batch_size %d gives each of %d learner ranks %d rows of a minibatch; below about %d the sums "
                "over ranks cost more than dividing the work saves. batch_size %d would make sense, or num_learners 1.",
                name, settings.hyperparameters.batch_size, world, rows, WORTHWHILE_ROWS, WORTHWHILE_ROWS * world,
            )  # fmt: skip
        shared = replace(compute, shard=self.group)
        algorithm = make_learner(spec, settings, shared)
        introduce_learner(self.group, name, spec, settings, compute)
        self._learners += 1
        return ReplicatedLearner(algorithm, self.group, self._learners - 1, self.explain)

    def set_threads(self, threads: int) -> None:
        """Sets torch's threads on every rank to one number. Different numbers would change the bits of sums."""
        torch.set_num_threads(threads)
        self.group.send({"what": "threads", "threads": threads})

    def explain(self, error: LearnerRankLost) -> LearnerRankLost:
        """Returns the error with the exit of the process that ended."""
        deadline = time.monotonic() + _REASON_S
        while self.processes and time.monotonic() < deadline:
            for rank, process in enumerate(self.processes, start=1):
                if (code := process.poll()) is not None:
                    how = f"signal {-code}" if code < 0 else f"exit code {code}"
                    return LearnerRankLost(
                        f"learner rank {rank} ended ({how}). What was learned before this update is kept; "
                        "--resume continues from there"
                    )
            time.sleep(0.05)
        return LearnerRankLost(
            f"{error}. What was learned before this update is kept; --resume continues from there"
        )

    def close(self) -> None:
        """Ends the other ranks, even busy ones."""
        if not self.group.broken:
            with suppress(LearnerRankLost):
                self.group.send({"what": "end"})
        end_processes(self.processes)
        self.group.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self.group.broken |= kind is not None
        self.close()


@contextmanager
def learner_ranks(options: RunOptions, device: torch.device) -> Iterator[LearnerRanks]:
    """Yields the learner ranks of a run with several ranks. This process is rank 0.

    Raises:
        ConfigError: Ranks cannot share the device, or there are too few devices.
        LearnerRankLost: A rank could not start.
    """
    world = num_learners(options)
    launched = launched_rank()
    _require_devices(device, world if launched is None else launched.local_world)
    _logger.info("Starting %d learner ranks on '%s'.", world, device.type)
    with start_ranks(world, device) if launched is None else meet_launched(launched, device) as ranks:
        yield ranks


def start_ranks(world: int, device: torch.device) -> LearnerRanks:
    """Starts ranks 1, 2 … of ``world`` as processes of this machine.

    Raises:
        LearnerRankLost: A rank could not start.
    """
    meeting, store = open_meeting(world, device)
    processes = [_start(meeting, rank) for rank in range(1, world)]

    def check() -> None:
        for rank, process in enumerate(processes, start=1):
            if process.poll() is not None:
                raise LearnerRankLost(f"learner rank {rank} could not start (exit code {process.returncode})")

    try:
        return LearnerRanks(LearnerGroup(meeting, store, 0, check), processes)
    except BaseException:
        end_processes(processes)
        raise


def meet_launched(launched: LaunchedRank, device: torch.device) -> LearnerRanks:
    """Connects to the other ranks that torchrun started. Raises LearnerRankLost if a rank does not connect."""
    host = "127.0.0.1" if launched.one_machine else launched.master
    meeting, store = open_meeting(launched.world, device, host=host, one_machine=launched.one_machine)
    _published = publish(meeting, launched)
    return LearnerRanks(LearnerGroup(meeting, store, 0), on_this_machine=launched.local_world)


def end_processes(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    """Waits briefly for processes to end by themselves, since their input is closed. Then kills them."""
    for process in processes:
        with suppress(OSError):
            assert process.stdin is not None
            process.stdin.close()
    deadline = time.monotonic() + _GOODBYE_S
    for process in processes:
        try:
            process.wait(max(deadline - time.monotonic(), 0.0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _require_devices(device: torch.device, ranks: int) -> None:
    if device.type not in ("cpu", "cuda") or device.index not in (None, 0):
        raise ConfigError(
            f"torch_settings.device: learner ranks compute on 'cpu', or on 'cuda' with a GPU for each; got '{device}'"
        )
    if device.type == "cuda" and (there := torch.cuda.device_count()) < ranks:
        raise ConfigError(
            f"distributed.num_learners: {ranks} learner ranks of this machine need a GPU each, it has {there}: "
            f"expected at most {there}, or torch_settings.device 'cpu'"
        )


def _start(meeting: Meeting, rank: int) -> subprocess.Popen[bytes]:
    """Starts a rank. Its standard input gives it the meeting, and ends together with rank 0."""
    with ignoring_schedulers():
        process = subprocess.Popen(
            [sys.executable, "-m", "trainer_service.distributed.learners.rank"],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # rank 0 handles Ctrl-C
            env={**os.environ, "TORCH_CPP_LOG_LEVEL": os.environ.get("TORCH_CPP_LOG_LEVEL", "FATAL")},
        )
    assert process.stdin is not None
    with suppress(OSError):  # it has ended already, which is noticed later
        process.stdin.write(json.dumps({"rank": rank, **asdict(meeting)}).encode() + b"\n")
        process.stdin.flush()
    return process
