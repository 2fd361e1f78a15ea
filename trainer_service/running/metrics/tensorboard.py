"""Event files for TensorBoard, with ML-Agents' tags."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto import tensor_pb2, types_pb2
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import HistogramProto, SummaryMetadata
from tensorboard.compat.proto.summary_pb2 import Summary as SummaryProto
from tensorboard.summary.writer.record_writer import RecordWriter

from trainer_service.running.metrics.summary import FILM_TAG, Summary, histogram
from trainer_service.running.metrics.writers import RunEnd, SummaryWriter
from trainer_service.running.runs.files import SaveError
from unity_bridge.arrays import Floats

_RGB = 3
"""TensorBoard's number of colours with three channels."""

_logger = logging.getLogger(__name__)


class TensorBoardWriter(SummaryWriter):
    """A writer of ML-Agents' tags to one event file per behavior.

    Uses TensorBoard's record format without torch's wrapper around it, which takes a second to import, and
    without TensorBoard's own thread, so that a full disk is noticed where it happens.
    """

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        """``folder_of`` gives the folder of a behavior; it is made when there is something to write."""
        self._folder_of = folder_of
        self._files: dict[str, _EventFile] = {}

    def write(self, summary: Summary) -> None:
        """Writes all statistics of the summary, with its step as x value."""
        tagged = summary.tagged()
        values = [SummaryProto.Value(tag=tag, simple_value=series.value) for tag, series in tagged.items()]
        values += [
            SummaryProto.Value(tag=f"{tag}_hist", histo=_histogram_proto(series.histogram_samples))
            for tag, series in tagged.items()
            if len(series.histogram_samples)
        ]
        self._file(summary.behavior).append(step=summary.step, summary=SummaryProto(value=values))

    def write_evaluation(self, summary: Summary) -> None:
        """Writes the scores beside the other statistics."""
        self.write(summary)

    def write_settings(self, behavior: str, text: str) -> None:
        """Shows the settings of a behavior on TensorBoard's text page."""
        code_block = "\n".join("\t" + line for line in text.splitlines())  # the page reads Markdown
        value = SummaryProto.Value(
            tag="Hyperparameters/text_summary",
            metadata=SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text")),
            tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[code_block.encode()]),
        )
        self._file(behavior).append(step=0, summary=SummaryProto(value=[value]))

    def write_film(self, behavior: str, step: int, film: Path) -> None:
        """Shows an animated GIF on TensorBoard's page of images, under XuanCe's tag of films of evaluations."""
        gif = film.read_bytes()
        width, height = struct.unpack_from("<HH", gif, 6)  # after the six letters of the version
        image = SummaryProto.Image(width=width, height=height, colorspace=_RGB, encoded_image_string=gif)
        value = SummaryProto.Value(tag=FILM_TAG, image=image)
        self._file(behavior).append(step=step, summary=SummaryProto(value=[value]))

    def truncate_after(self, behavior: str, step: int) -> None:
        """Tells TensorBoard to drop later steps of older event files."""
        self._file(behavior).append(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def forget(self, behavior: str) -> None:
        """Removes the event file of a behavior, and its folder if nothing else is in it."""
        if (file := self._files.pop(behavior, None)) is not None:
            file.remove()

    def close(self, end: RunEnd = "finished") -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()

    def _file(self, behavior: str) -> _EventFile:
        """Returns the event file of a behavior. Opens a new one if the old one was removed; that would lose events."""
        file = self._files.get(behavior)
        if file is not None and not file.path.exists():
            _logger.warning("'%s' was removed; what comes from here on goes into a new file.", file.path)
            file.close()
            file = None
        if file is None:
            file = self._files[behavior] = _EventFile(self._folder_of(behavior))
        return file


class _EventFile:
    """A new file of TensorBoard events, readable after every event."""

    _numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        # The name that TensorBoard looks for; the number keeps two files of one second apart.
        origin = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(self._numbers)}"
        self.path = folder / f"events.out.tfevents.{origin}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._records = RecordWriter(self.path.open("wb"))
        except OSError as error:
            raise SaveError(self.path, error) from error
        self.append(file_version="brain.Event:2")

    def append(self, **content: Any) -> None:
        """Adds one event; ``content`` are the fields of TensorBoard's Event message."""
        try:
            self._records.write(Event(wall_time=time.time(), **content).SerializeToString())
            self._records.flush()
        except OSError as error:
            raise SaveError(self.path, error) from error

    def close(self) -> None:
        """Closes the file. Raises SaveError if something could not be written."""
        try:
            self._records.close()
        except OSError as error:
            raise SaveError(self.path, error) from error

    def remove(self) -> None:
        """Closes and deletes the file, and its folder if it is empty then."""
        with contextlib.suppress(OSError):
            self._records.close()
        with contextlib.suppress(OSError):
            self.path.unlink()
            self.path.parent.rmdir()


def _histogram_proto(data: Floats) -> Any:
    counts, edges = histogram(data)
    return HistogramProto(
        min=data.min(),
        max=data.max(),
        num=len(data),
        sum=data.sum(),
        sum_squares=np.square(data).sum(),
        bucket_limit=edges,
        bucket=[
            0,
            *counts,
        ],  # a bucket ends at its limit, so nothing lies in the one that ends at the first edge
    )
