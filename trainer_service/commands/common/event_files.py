"""Curves out of TensorBoard's event files: what runs of ML-Agents leave of their progress."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from trainer_service.commands.common.curves import Curve

_PATTERN = "events.out.tfevents.*"


class _Scalar(NamedTuple):
    tag: str
    step: int
    at_s: float
    """Since the file was begun."""
    value: float


def has_event_files(folder: Path) -> bool:
    """Whether there are any directly in a folder."""
    return any(folder.glob(_PATTERN))


def read_event_files(folder: Path) -> Mapping[str, Curve]:
    """Reads the curves of one behavior, by tag.

    A file is begun when its behavior shows up, which is where its clock starts. Each process of a resumed run has a
    file of its own: clocks continue where the earlier one ended, and what a file says of later steps is replaced by the
    next one. A file that is damaged counts up to where it is.
    """
    points: dict[str, list[tuple[int, float, float]]] = {}
    past = 0.0
    for path in sorted(folder.glob(_PATTERN)):  # by the time in their names
        replaced: set[str] = set()
        last_s = 0.0
        for scalar in _scalars(path):
            own = points.setdefault(scalar.tag, [])
            if scalar.tag not in replaced:
                replaced.add(scalar.tag)
                own[:] = [point for point in own if point[0] < scalar.step]
            own.append((scalar.step, past + scalar.at_s, scalar.value))
            last_s = max(last_s, scalar.at_s)
        past += last_s
    return {tag: Curve.of(own) for tag, own in points.items()}


def _scalars(path: Path) -> Iterator[_Scalar]:
    began_s: float | None = None
    for record in RawEventFileLoader(str(path)).Load():
        try:
            event = Event.FromString(record)
        except Exception:  # of protobuf's own kind: what was written is no event
            return
        began_s = event.wall_time if began_s is None else began_s
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value" and math.isfinite(value.simple_value):
                yield _Scalar(value.tag, event.step, max(event.wall_time - began_s, 0.0), value.simple_value)
