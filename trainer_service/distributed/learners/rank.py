"""A learner rank other than rank 0: a process that follows rank 0 and ends with it."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from trainer_service.distributed.learners.group import Meeting


def main() -> int:
    """Serves the rank 0 that started this process. Returns the exit code."""
    invitation = json.loads(sys.stdin.buffer.readline() or "{}")
    # Whatever this process is doing when rank 0 ends, even loading torch.
    threading.Thread(target=_end_with_rank_0, name="rank 0", daemon=True).start()
    from trainer_service.distributed.learners.group import Meeting

    rank = invitation.pop("rank")
    return serve_rank(Meeting(**invitation), rank, rank)


def serve_rank(
    meeting: Meeting, rank: int, local_rank: int, when_met: Callable[[], None] = lambda: None
) -> int:
    """Serves rank 0 until rank 0 ends. Returns the exit code: 1 if this rank failed, after printing one line.

    local_rank: the GPU of this machine for this rank. when_met: called when all ranks are connected.
    """
    import torch

    from trainer_service.distributed.learners.group import LearnerGroup, join_meeting
    from trainer_service.distributed.learners.replicated_learner import serve
    from trainer_service.errors import LearnerRankLost
    from trainer_service.learning.networks.allocator import keep_freed_memory

    keep_freed_memory()
    device = torch.device("cpu" if meeting.device == "cpu" else f"{meeting.device}:{local_rank}")
    torch.set_num_threads(1)
    try:
        if device.type == "cuda":
            torch.cuda.set_device(device)
        group = LearnerGroup(meeting, join_meeting(meeting), rank)
        when_met()
        serve(group, device)
        group.close()
    except LearnerRankLost:
        return 0  # rank 0 reports the error, or has ended
    except Exception as error:
        print(f"learner rank {rank}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        return 1
    return 0


def end_rank(code: int) -> NoReturn:
    """Ends the process of a rank at once.

    Otherwise threads of torch's process groups that still run while Python ends could abort the process.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_with_rank_0() -> None:
    """Waits until rank 0 closes the pipe or ends in any way."""
    # Not by sys.stdin: a thread that reads it prevents its closing at the end of this process.
    while os.read(0, 1):
        pass
    os._exit(0)


if __name__ == "__main__":
    end_rank(main())
