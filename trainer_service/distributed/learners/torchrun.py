"""Learner ranks that torchrun started: which of them this process is, and how they find rank 0.

torchrun restarts all ranks when one ends, and tells each which start it is: nobody meets the ranks of the last one.
"""

from __future__ import annotations

import json
import os
import signal
from contextlib import suppress
from dataclasses import asdict
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from trainer_service.training.learner_ranks import Launched

if TYPE_CHECKING:
    from trainer_service.distributed.learners.group import Meeting

_TIMEOUT = timedelta(seconds=180)
"""How long ranks wait for rank 0, which reads configuration and checkpoints first."""
_PLACE = "trainer_service/learner_ranks"


def publish(meeting: Meeting, launched: Launched) -> Any:
    """Tells the other ranks where they meet. Returns what must stay alive until they are there."""
    store = _rendezvous(launched)
    store.set(_place(launched), json.dumps(asdict(meeting)))
    return store


def serve_launched() -> int:
    """Serves rank 0 of the ranks that torchrun started. Returns the exit code. Prints nothing."""
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # before torch is loaded
    from trainer_service.distributed.learners.group import Meeting
    from trainer_service.distributed.learners.rank import serve_rank

    _ignore("SIGINT", "SIGUSR1", "SIGUSR2")
    launched = Launched.of(os.environ)
    store = _rendezvous(launched)
    try:
        store.wait([_place(launched)], _TIMEOUT)
        meeting = Meeting(**json.loads(store.get(_place(launched))))
    except RuntimeError:
        return 0  # rank 0 had nothing to learn, or could not start, and has said so
    return serve_rank(
        meeting, launched.rank, launched.local_rank, when_met=lambda: _ignore("SIGTERM", "SIGHUP")
    )


def _place(launched: Launched) -> str:
    """The name under which rank 0 says where ranks meet: what an earlier start said is there still."""
    return f"{_PLACE}/{launched.restarts}"


def _ignore(*names: str) -> None:
    """Leaves signals that all ranks get, from a terminal, a scheduler or torchrun, to rank 0: where it ends, this one
    does."""
    for name in names:
        with suppress(AttributeError, ValueError):  # Windows has no SIGHUP
            signal.signal(getattr(signal, name), signal.SIG_IGN)


def _rendezvous(launched: Launched) -> Any:
    from torch.distributed.rendezvous import rendezvous

    store, _, _ = next(rendezvous("env://", launched.rank, launched.world, timeout=_TIMEOUT))
    return store
