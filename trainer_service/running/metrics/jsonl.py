"""Files with one JSON object per line, such as metrics.jsonl with one for each summary."""

from __future__ import annotations

import contextlib
import json
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from trainer_service.errors import UserError
from trainer_service.learning.rollout.episode_scores import mean_or_none
from trainer_service.running.metrics.summary import EPISODE_TAGS, MEMBER_REWARD, SIMULATOR, Summary, histogram
from trainer_service.running.metrics.writers import SummaryWriter
from trainer_service.running.runs.files import SaveError, write_atomic
from unity_bridge.untrusted_text import quoted

_CATEGORIES = ("Losses/", "Policy/", "Environment/", "Self-play/")
"""Prefixes of ML-Agents' tags that metrics.jsonl leaves out."""

_NUMBERS = (
    "step", "env_steps", "wall_s", "steps_per_s", "episodes",
    "mean_return", "std_return", "mean_length", "mean_group_return", "score",
)  # fmt: skip
"""Keys of numbers, or null, that a line may have, and that readers count on."""

STANDARD_KEYS: Mapping[str, type] = {
    "behavior": object, "step": int, "env_steps": int, "wall_s": float, "episodes": int,
    "mean_return": float, "std_return": float, "mean_length": float, "mean_group_return": float,
    "steps_per_s": float,
}  # fmt: skip
"""Keys of every line of metrics.jsonl in their order, with the types of their values."""

_MOST_STEPS = 2**62

_SMALLEST, _LARGEST = (float(limit) for limit in (np.finfo(np.float32).tiny, np.finfo(np.float32).max))
"""The range in which a float32 has all of its digits."""

_NO_JSON = "expected one JSON object"
"""The error message about a line that is torn or no JSON."""

_logger = logging.getLogger(__name__)


class JsonLines:
    """A file of one JSON object per line: easy to grep, to plot, to follow with ``tail -f``.

    A reader sees whole lines only. The half line that a killed trainer left is removed at construction; a line that is
    damaged otherwise stays, and is passed over.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._has_lines = False
        """Whether this writer put lines into the file. Then the file exists, unless it was removed."""
        lines = read_lines(path)
        if lines and str(_parsed(lines[-1])).startswith(_NO_JSON):
            self._replace(lines[:-1])
        elif lines and not lines[-1].endswith(b"\n"):
            self._replace([*lines[:-1], lines[-1] + b"\n"])

    def append(self, entry: Mapping[str, Any]) -> None:
        """Adds a line. Raises SaveError, and ValueError for NaN and infinities, which JSON lacks."""
        line = json.dumps(entry, allow_nan=False) + "\n"
        exists = self._path.exists()
        if self._has_lines and not exists:
            _logger.warning("'%s' was removed; a new one begins here.", self._path)
        size = self._path.stat().st_size if exists else 0
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as file:
                file.write(line.encode())
            self._has_lines = True
        except OSError as error:
            with contextlib.suppress(OSError):  # a full disk may have taken half of the line
                os.truncate(self._path, size)
            raise SaveError(self._path, error) from error

    def rows(self) -> list[dict[str, Any]]:
        """Returns the objects of all lines. Raises UserError where the file cannot be read."""
        return read_rows(self._path)

    def truncate_after(self, behavior: str, step: int) -> None:
        """Removes the lines of a behavior after a step. Raises SaveError."""
        lines = read_lines(self._path)
        rows = dict(_usable(self._path, lines))
        kept = [
            line
            for at, line in enumerate(lines)
            if at not in rows or not _is_beyond(rows[at], behavior, step)
        ]
        if len(kept) < len(lines):
            self._replace(kept)

    def _replace(self, lines: list[bytes]) -> None:
        write_atomic(self._path, b"".join(lines))


class JsonlWriter(JsonLines, SummaryWriter):
    """A writer of summaries, one per line."""

    def write(self, summary: Summary) -> None:
        """Appends a line."""
        self.append(to_json(summary))


def read_rows(path: Path) -> list[dict[str, Any]]:
    """Reads the objects of all whole lines, none without a file. Changes nothing, so a run may be writing it.

    Lines that are damaged are passed over with a warning. Raises UserError where the file cannot be read.
    """
    return [row for _, row in _usable(path, read_lines(path))]


def to_json(summary: Summary) -> dict[str, Any]:
    """Returns the object of one line of metrics.jsonl.

    NaN and infinities become None: JSON lacks them. Other numbers have the digits of a float32, as far as they have any
    beyond the point: 1.808 and not 1.8080000418424607. A simulator's tag whose key is taken has its whole name.
    """
    stats = summary.stats
    line: dict[str, Any] = {
        "behavior": summary.behavior,
        "step": summary.step,
        **({} if summary.env_steps is None else {"env_steps": summary.env_steps}),
        "wall_s": round(summary.wall_s, 3),
        "episodes": stats.episodes,
        "mean_return": _number(stats.mean_return),
        "std_return": _number(stats.std_return),
        "mean_length": _number(stats.mean_length),
        "mean_group_return": _number(stats.mean_group_return),
        "steps_per_s": _number(summary.steps_per_s),
    }
    if stats.counted_returns is not None:
        line |= {"score": _number(mean_or_none(stats.counted)), "scored_episodes": len(stats.counted)}
    if summary.member_returns:
        line["member_returns"] = {name: _number(mean) for name, mean in summary.member_returns.items()}
    if summary.lessons:
        line["lesson"] = {name: lesson.name for name, lesson in summary.lessons.items()}
    for tag, series in summary.tagged().items():
        if tag not in EPISODE_TAGS and not tag.startswith(MEMBER_REWARD):
            key = next((each for each in (json_key(tag), tag) if each not in line), SIMULATOR + tag)
            line[key] = _number(series.value)
            if len(samples := series.histogram_samples):
                counts, edges = histogram(samples)
                line[f"{key}_hist"] = {
                    "edges": list(map(_number, edges.tolist())),
                    "counts": counts.tolist(),
                }
    return line


def json_key(tag: str) -> str:
    """Returns ``policy_loss`` for ``Losses/Policy Loss``; tags outside of these categories stay as they are."""
    for category in _CATEGORIES:
        if tag.startswith(category):
            return tag.removeprefix(category).lower().replace(" ", "_").replace("-", "_")
    return tag


def read_lines(path: Path) -> list[bytes]:
    """The lines of a file with their ends, none without a file. Raises UserError where it cannot be read."""
    try:
        return path.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise UserError(f"cannot read '{path}': {error.strerror or error}") from error


def _usable(path: Path, lines: list[bytes]) -> list[tuple[int, dict[str, Any]]]:
    """The objects of lines by their place; warns of lines that have none, but for a last one that is being written."""
    found = [(at, _parsed(line)) for at, line in enumerate(lines)]
    damaged = [(at, why) for at, why in found if isinstance(why, str) and lines[at].endswith(b"\n")]
    if damaged:
        at, why = damaged[0]
        more = f", and so are {len(damaged) - 1} lines below" if len(damaged) > 1 else ""
        _logger.warning("%s:%d: %s; the line is passed over%s.", path, at + 1, why, more)
    return [(at, row) for at, row in found if isinstance(row, dict)]


def _parsed(line: bytes) -> dict[str, Any] | str:
    """The object of a line; or an error message."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):  # bytes that are no text are a ValueError, too
        return _NO_JSON
    if not isinstance(row, dict):
        return f"{_NO_JSON}, got {type(row).__name__}"
    for key in _NUMBERS:
        if key in row and not _is_number_or_null(row[key], whole=key == "step"):
            return f"{key}: expected a number, got {quoted(str(row[key]))}"
    return row


def _is_number_or_null(value: Any, *, whole: bool) -> bool:
    if value is None:
        return not whole
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    # An integer may have too many digits for a float.
    return abs(value) < _MOST_STEPS and isinstance(value, int) if whole else -math.inf < value < math.inf


def _is_beyond(entry: dict[str, Any], behavior: str, step: int) -> bool:
    return entry.get("behavior") == behavior and entry.get("step", 0) > step


def finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _number(value: float | None) -> float | None:
    """The shortest number that is the same float32, where it is in the range of one; None for NaN and infinities."""
    if value is None or not math.isfinite(value):
        return None
    is_float32 = _SMALLEST <= abs(value) <= _LARGEST and not float(value).is_integer()
    return float(str(np.float32(value))) if is_float32 else value
