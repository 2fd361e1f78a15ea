"""Learner ranks that torchrun started: the rank of this process, and its connection to rank 0.

torchrun restarts all ranks when one ends, and gives each the number of the start. So ranks of different starts never
connect.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_service.running.training.learner_ranks import LaunchedRank

if TYPE_CHECKING:
    from trainer_service.distributed.learners.group import Meeting

_TIMEOUT = timedelta(seconds=180)
"""The longest time that ranks wait for rank 0, which first reads configuration and checkpoints."""
_PLACE = "trainer_service/learner_ranks"


def publish(meeting: Meeting, launched: LaunchedRank) -> Any:
    """Publishes the meeting for the other ranks. Returns an object that must live until they are connected."""
    store = _rendezvous(launched)
    store.set(_place(launched), json.dumps(asdict(meeting)))
    return store


def serve_launched() -> int:
    """Serves rank 0 among the ranks that torchrun started. Returns the exit code. Prints nothing."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # before torch is loaded
    from trainer_service.distributed.learners.group import Meeting
    from trainer_service.distributed.learners.rank import serve_rank

    _ignore("SIGINT", "SIGUSR1", "SIGUSR2")
    launched = LaunchedRank.of(os.environ)
    store = _rendezvous(launched)
    try:
        store.wait([_place(launched)], _TIMEOUT)
        meeting = Meeting(**json.loads(store.get(_place(launched))))
    except RuntimeError:
        return 0  # rank 0 had nothing to learn, or reported why it could not start
    return serve_rank(
        meeting, launched.rank, launched.local_rank, when_met=lambda: _ignore("SIGTERM", "SIGHUP")
    )


def _place(launched: LaunchedRank) -> str:
    """Returns the key for the meeting's address. It includes the start, since the keys of earlier starts persist."""
    return f"{_PLACE}/{launched.restarts}"


def _ignore(*names: str) -> None:
    """Leaves signals from a terminal, a scheduler or torchrun to rank 0. This process ends with rank 0."""
    for name in names:
        with suppress(AttributeError, ValueError):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _rendezvous(launched: LaunchedRank) -> Any:
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", launched.rank, launched.world, timeout=_TIMEOUT))
    return store
