"""Files of replay buffers without a run."""

from __future__ import annotations

from pathlib import Path

from trainer_service.running.runs.files import Replacement
from trainer_service.running.runs.replay_file import Arrays, ReplayFile, ReplayStamp

_STAMP = ReplayStamp(step=0, checkpoint=0)


def save_replay_file(arrays: Arrays, path: Path, stamp: ReplayStamp = _STAMP) -> None:
    """Replaces the files of a replay buffer alone, without its checkpoint."""
    with Replacement() as files:
        ReplayFile(path).hold(arrays)(files, stamp)
