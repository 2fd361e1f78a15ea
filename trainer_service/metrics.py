"""What a run tells about its progress: statistics between two summaries, and the files that keep them."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainer_service.files import SaveError, write_atomic
from trainer_service.timers import Timers

Floats = NDArray[np.float64]

_CATEGORIES = ("Losses/", "Policy/", "Environment/", "Self-play/")
"""Parts of ML-Agents' tags that metrics.jsonl leaves out."""

_ELO = "Self-play/ELO"

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeStats:
    """The episodes that ended between two summaries. Means are None when there was none."""

    returns: Floats = field(default_factory=lambda: np.empty(0))
    """Sum of one agent's own rewards over its episode, before strengths and normalisation. Shape [E]."""

    lengths: Floats = field(default_factory=lambda: np.empty(0))
    """Decisions of that episode. Shape [E]."""

    group_returns: Floats = field(default_factory=lambda: np.empty(0))
    """The group's reward and its members' own, summed over its episode. Shape [G]; empty without groups."""

    def __post_init__(self) -> None:
        if self.returns.shape != self.lengths.shape:
            raise ValueError(f"{self.returns.shape} returns for {self.lengths.shape} episode lengths")

    @property
    def episodes(self) -> int:
        """How many agents' episodes ended."""
        return len(self.returns)

    @property
    def mean_return(self) -> float | None:
        """Mean over episodes."""
        return _mean(self.returns)

    @property
    def std_return(self) -> float | None:
        """Standard deviation of these very episodes (not an estimate for all others)."""
        return float(self.returns.std()) if len(self.returns) else None

    @property
    def mean_length(self) -> float | None:
        """Mean over episodes, in decisions."""
        return _mean(self.lengths)

    @property
    def mean_group_return(self) -> float | None:
        """Mean over group episodes."""
        return _mean(self.group_returns)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Summary:
    """One behavior between two multiples of ``summary_freq``."""

    behavior: str

    step: int
    """Agent steps of the behavior."""

    wall_s: float
    """Since the start of the run."""

    steps_per_s: float
    """Agent steps per second since the last summary."""

    is_training: bool = True
    """False in inference and after ``max_steps``."""

    stats: EpisodeStats = field(default_factory=EpisodeStats)

    scalars: Mapping[str, float] = field(default_factory=dict)
    """Means by ML-Agents' tags: ``Losses/Policy Loss``, ``Policy/Entropy`` …"""


class Statistics:
    """Collects what happens to one behavior, and hands it out as one summary."""

    def __init__(self, behavior: str) -> None:
        self._behavior = behavior
        self._clear()

    def add(self, tag: str, value: ArrayLike) -> None:
        """Adds one value or an array of them; the summary has the mean over all values since the last one."""
        total, count = self._sums.get(tag, (0.0, 0))
        if isinstance(value, float):
            self._sums[tag] = (total + value, count + 1)
        else:
            values = np.asarray(value, dtype=np.float64)
            self._sums[tag] = (total + float(values.sum()), count + values.size)

    def add_episodes(
        self, returns: ArrayLike, lengths: ArrayLike, group_returns: ArrayLike | None = None
    ) -> None:
        """Adds episodes that ended.

        Args:
            returns: one per agent, shape [E] or a single number.
            lengths: of the same episodes, in decisions.
            group_returns: one per group whose episode ended, shape [G] or a single number.
        """
        self._returns.append(_row(returns))
        self._lengths.append(_row(lengths))
        if group_returns is not None:
            self._group_returns.append(_row(group_returns))

    def drain(self, *, step: int, wall_s: float, steps_per_s: float, is_training: bool = True) -> Summary:
        """Returns everything since the last call, and starts anew."""
        means = {tag: total / count for tag, (total, count) in self._sums.items() if count}
        summary = Summary(
            behavior=self._behavior,
            step=step,
            wall_s=wall_s,
            steps_per_s=steps_per_s,
            is_training=is_training,
            stats=EpisodeStats(_joined(self._returns), _joined(self._lengths), _joined(self._group_returns)),
            scalars=means,
        )
        self._clear()
        return summary

    def _clear(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}
        self._returns: list[Floats] = []
        self._lengths: list[Floats] = []
        self._group_returns: list[Floats] = []


class SummaryWriter(Protocol):
    """Keeps or shows summaries."""

    def write(self, summary: Summary) -> None:
        """Takes one more summary. Raises SaveError."""

    def truncate_after(self, behavior: str, step: int) -> None:
        """Forgets what lies beyond ``step``: a run that resumes there will say it again. Raises SaveError."""

    def close(self) -> None:
        """Finishes; nothing is written afterwards."""


class JsonlWriter:
    """One JSON object per line: easy to grep, to plot, to follow with ``tail -f``.

    A reader sees whole lines only. The half line that a killed trainer left is removed at construction.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        lines = _lines(path)
        if lines and _parsed(lines[-1]) is None:
            self._replace(lines[:-1])
        elif lines and not lines[-1].endswith(b"\n"):
            self._replace([*lines[:-1], lines[-1] + b"\n"])

    def write(self, summary: Summary) -> None:
        """Appends a line."""
        line = json.dumps(to_json(summary), allow_nan=False) + "\n"
        size = self._path.stat().st_size if self._path.exists() else 0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(line.encode())
        except OSError as error:
            with contextlib.suppress(OSError):  # a full disk may have taken half of the line
                os.truncate(self._path, size)
            raise SaveError(self._path, error) from error

    def truncate_after(self, behavior: str, step: int) -> None:
        """Removes the lines of a behavior whose step is greater."""
        lines = _lines(self._path)
        kept = [line for line in lines if not _is_beyond(_parsed(line), behavior, step)]
        if len(kept) < len(lines):
            self._replace(kept)

    def close(self) -> None:
        """Nothing to do: every line is on its own."""

    def _replace(self, lines: list[bytes]) -> None:
        write_atomic(self._path, b"".join(lines))


class TensorBoardWriter:
    """ML-Agents' tags in one event file per behavior.

    Uses TensorBoard's record format without torch's wrapper around it, which takes a second to import, and
    without TensorBoard's own thread, so that a full disk is noticed where it happens.
    """

    def __init__(self, folder_of: Callable[[str], Path]) -> None:
        """``folder_of`` gives the folder of a behavior; it is made when there is something to write."""
        self._folder_of = folder_of
        self._files: dict[str, _EventFile] = {}

    def write(self, summary: Summary) -> None:
        """Writes all statistics of the summary, with its step as x value."""
        # Imported where used: 0.1 s that a start need not wait for.
        from tensorboard.compat.proto.summary_pb2 import Summary as SummaryProto

        values = [SummaryProto.Value(tag=tag, simple_value=value) for tag, value in _tags(summary).items()]
        values += [
            SummaryProto.Value(tag=f"{tag}_hist", histo=_histogram(data)) for tag, data in _samples(summary)
        ]
        self._file(summary.behavior).append(step=summary.step, summary=SummaryProto(value=values))

    def write_text(self, behavior: str, text: str) -> None:
        """Shows ``text``, such as the settings of the behavior, on TensorBoard's text page."""
        from tensorboard.compat.proto import summary_pb2, tensor_pb2, types_pb2

        code_block = "\n".join("\t" + line for line in text.splitlines())  # the page reads Markdown
        value = summary_pb2.Summary.Value(
            tag="Hyperparameters/text_summary",
            metadata=summary_pb2.SummaryMetadata(
                plugin_data=summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
            ),
            tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[code_block.encode()]),
        )
        self._file(behavior).append(step=0, summary=summary_pb2.Summary(value=[value]))

    def truncate_after(self, behavior: str, step: int) -> None:
        """Tells TensorBoard to drop what older event files say of greater steps."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._file(behavior).append(step=step + 1, session_log=SessionLog(status=SessionLog.START))

    def close(self) -> None:
        """Closes the files."""
        for file in self._files.values():
            file.close()

    def _file(self, behavior: str) -> _EventFile:
        if behavior not in self._files:
            self._files[behavior] = _EventFile(self._folder_of(behavior))
        return self._files[behavior]


class _EventFile:
    """A new file of TensorBoard events in ``folder``, which can be read after every event."""

    _numbers = itertools.count()

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary.writer.record_writer import RecordWriter

        # The name that TensorBoard looks for; the number keeps two files of one second apart.
        origin = f"{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.{next(self._numbers)}"
        self._path = folder / f"events.out.tfevents.{origin}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._records = RecordWriter(self._path.open("wb"))
        except OSError as error:
            raise SaveError(self._path, error) from error
        self.append(file_version="brain.Event:2")

    def append(self, **content: Any) -> None:
        """Adds one event; ``content`` are the fields of TensorBoard's Event message."""
        from tensorboard.compat.proto.event_pb2 import Event

        try:
            self._records.write(Event(wall_time=time.time(), **content).SerializeToString())
            self._records.flush()
        except OSError as error:
            raise SaveError(self._path, error) from error

    def close(self) -> None:
        """Closes the file. Raises SaveError if something could not be written."""
        try:
            self._records.close()
        except OSError as error:
            raise SaveError(self._path, error) from error


class ConsoleWriter:
    """Logs one line per summary, in the words that ML-Agents' users grep for."""

    def write(self, summary: Summary) -> None:
        """Logs ``summary_line``."""
        _logger.info("%s", summary_line(summary))

    def truncate_after(self, behavior: str, step: int) -> None:
        """Nothing to do: what was said was said."""

    def close(self) -> None:
        """Nothing to do."""


class GaugeWriter:
    """Keeps the latest value and the range of every statistic in timers.json, as ML-Agents does."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers

    def write(self, summary: Summary) -> None:
        """Sets a gauge such as ``Ball.Policy.Entropy.mean`` for each statistic."""
        for tag, value in _tags(summary).items():
            name = f"{summary.behavior}.{tag}.mean".replace("/", ".").replace(" ", "")
            self._timers.gauge(name, value)

    def truncate_after(self, behavior: str, step: int) -> None:
        """Nothing to do: gauges begin anew with every process."""

    def close(self) -> None:
        """Nothing to do: the timers are written by whoever owns them."""


def summary_line(summary: Summary) -> str:
    """Returns the summary as ML-Agents words it: ``B. Step: 1000. Time Elapsed: 7.699 s. Mean Reward: …``."""
    stats = summary.stats
    parts = [summary.behavior, f"Step: {summary.step}", f"Time Elapsed: {summary.wall_s:.3f} s"]
    if stats.mean_return is None:
        parts.append("No episode was completed since last summary")
    else:
        parts.append(f"Mean Reward: {stats.mean_return:.3f}")
        if stats.mean_group_return is None:
            parts.append(f"Std of Reward: {stats.std_return:.3f}")
        else:
            parts.append(f"Mean Group Reward: {stats.mean_group_return:.3f}")
    parts.append("Training" if summary.is_training else "Not Training")
    if _ELO in summary.scalars:
        parts.append(f"ELO: {summary.scalars[_ELO]:.3f}")
    return ". ".join(parts) + "."


def to_json(summary: Summary) -> dict[str, Any]:
    """Returns the object of one line of metrics.jsonl. NaN and infinities become None: JSON lacks them."""
    stats = summary.stats
    own = {
        "behavior": summary.behavior,
        "step": summary.step,
        "wall_s": round(summary.wall_s, 3),
        "episodes": stats.episodes,
        "mean_return": _finite(stats.mean_return),
        "std_return": _finite(stats.std_return),
        "mean_length": _finite(stats.mean_length),
        "mean_group_return": _finite(stats.mean_group_return),
        "steps_per_s": _finite(summary.steps_per_s),
    }
    scalars = {json_key(tag): _finite(value) for tag, value in summary.scalars.items()}
    return {**own, **{key: value for key, value in scalars.items() if key not in own}}


def json_key(tag: str) -> str:
    """Returns ``policy_loss`` for ``Losses/Policy Loss``; tags in no category of ours stay as they are."""
    for category in _CATEGORIES:
        if tag.startswith(category):
            return tag.removeprefix(category).lower().replace(" ", "_").replace("-", "_")
    return tag


def _tags(summary: Summary) -> dict[str, float]:
    stats = summary.stats
    environment = {
        "Environment/Cumulative Reward": stats.mean_return,
        "Environment/Group Cumulative Reward": stats.mean_group_return,
        "Environment/Episode Length": stats.mean_length,
    }
    return {tag: value for tag, value in {**environment, **summary.scalars}.items() if value is not None}


def _samples(summary: Summary) -> list[tuple[str, Floats]]:
    tags = {
        "Environment/Cumulative Reward": summary.stats.returns,
        "Environment/Group Cumulative Reward": summary.stats.group_returns,
    }
    finite = {tag: data[np.isfinite(data)] for tag, data in tags.items()}  # a histogram needs a range
    return [(tag, data) for tag, data in finite.items() if len(data)]


def _histogram(data: Floats) -> Any:
    from tensorboard.compat.proto.summary_pb2 import HistogramProto

    counts, edges = np.histogram(data, bins=30)
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


def _lines(path: Path) -> list[bytes]:
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise SaveError(path, error) from error


def _parsed(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_beyond(entry: dict[str, Any] | None, behavior: str, step: int) -> bool:
    return entry is not None and entry.get("behavior") == behavior and entry.get("step", 0) > step


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _mean(values: Floats) -> float | None:
    return float(values.mean()) if len(values) else None


def _row(values: ArrayLike) -> Floats:
    return np.atleast_1d(np.asarray(values, dtype=np.float64))


def _joined(parts: list[Floats]) -> Floats:
    return np.concatenate(parts) if parts else np.empty(0)
