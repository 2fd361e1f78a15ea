"""Timers of a run as a tree of named blocks, in the layout of ML-Agents' timers.json."""

from __future__ import annotations

import json
import math
import platform
import sys
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from trainer_service._version import __version__

_TIMER_FORMAT_VERSION = "0.1.0"


class Timers:
    """A tree of the timed blocks of one thread; a block within a block becomes its child.

    ::

        with timers("update"):
            with timers("minibatch"):
                ...
    """

    def __init__(self) -> None:
        self._started_at = time.time()
        self._root = _Block(self)
        self._current = self._root
        self._gauges: dict[str, _Gauge] = {}
        self.processes: dict[str, str] = {}
        """The newest ``to_json`` of other processes' timers, by their names."""
        self._root.__enter__()

    def __call__(self, name: str) -> _Block:
        """Returns the block ``name`` within the current one, to be entered at once with ``with``."""
        block = self._current.children.get(name)
        if block is None:
            block = self._current.children[name] = _Block(self)
        return block

    def spent(self, name: str) -> tuple[float, int]:
        """Returns the seconds that blocks of this name within the current one took, and their number."""
        block = self._current.children.get(name)
        return (0.0, 0) if block is None else (block.seconds(time.perf_counter_ns()), block.count)

    def gauge(self, name: str, value: float) -> None:
        """Records the latest value of a quantity, and its range. Values that are not finite are ignored."""
        if not math.isfinite(value):
            return
        gauge = self._gauges.get(name)
        if gauge is None:
            gauge = self._gauges[name] = _Gauge(value)
        gauge.set(value)

    def to_json(self, metadata: Mapping[str, str] | None = None) -> str:
        """Returns the text of timers.json. Blocks that are still open count as far as they got.

        Args:
            metadata: further entries of its metadata, such as ``pytorch_version``.
        """
        document = {
            "name": "root",
            "gauges": {name: gauge.to_json() for name, gauge in self._gauges.items()},
            "metadata": {
                "timer_format_version": _TIMER_FORMAT_VERSION,
                "start_time_seconds": int(self._started_at),
                "end_time_seconds": int(time.time()),
                "python_version": platform.python_version(),
                "command_line_arguments": " ".join(sys.argv),
                "trainer_service_version": __version__,
                "numpy_version": np.__version__,
                **(metadata or {}),
            },
            **self._root.to_json(time.perf_counter_ns()),
        }
        if self.processes:
            document["processes"] = {name: json.loads(text) for name, text in self.processes.items()}
        return json.dumps(document, indent=4) + "\n"


class _Block:
    """One node of the tree. It cannot be entered within itself: the inner one is a child of its own."""

    __slots__ = ("_count", "_entered_ns", "_parent", "_timers", "_total_ns", "children")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._parent: _Block = self
        self._entered_ns = 0  # 0 while it is not open
        self._total_ns = 0
        self._count = 0
        self.children: dict[str, _Block] = {}

    def __enter__(self) -> None:
        timers = self._timers
        self._parent = timers._current
        timers._current = self
        self._entered_ns = time.perf_counter_ns()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        self._total_ns += time.perf_counter_ns() - self._entered_ns
        self._count += 1
        self._entered_ns = 0
        self._timers._current = self._parent

    @property
    def count(self) -> int:
        """Number of times the block was left."""
        return self._count

    def seconds(self, now_ns: int) -> float:
        """Returns the seconds spent in the block until now."""
        running_ns = now_ns - self._entered_ns if self._entered_ns else 0
        return (self._total_ns + running_ns) * 1e-9

    def to_json(self, now_ns: int) -> dict[str, Any]:
        """Returns total, count, self and children, in seconds; ``self`` is the time outside of children."""
        total = self.seconds(now_ns)
        inside = sum(child.seconds(now_ns) for child in self.children.values())
        document: dict[str, Any] = {
            "total": total,
            "count": self._count + bool(self._entered_ns),
            "self": max(0.0, total - inside),
        }
        if self.children:
            document["children"] = {name: child.to_json(now_ns) for name, child in self.children.items()}
        return document


class _Gauge:
    __slots__ = ("_count", "_max", "_min", "_value")

    def __init__(self, value: float) -> None:
        self._value = self._min = self._max = value
        self._count = 0

    def set(self, value: float) -> None:
        self._value = value
        self._min = min(self._min, value)
        self._max = max(self._max, value)
        self._count += 1

    def to_json(self) -> dict[str, float]:
        return {"value": self._value, "min": self._min, "max": self._max, "count": self._count}
