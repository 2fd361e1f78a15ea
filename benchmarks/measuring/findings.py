"""Findings of a check of a device, and their table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was checked or measured."""

    name: str
    passed: bool | None
    """Whether it is as it should be; None where it was not tried."""

    figures: Mapping[str, float] = field(default_factory=dict)
    note: str = ""


def table(parts: Mapping[str, Sequence[Finding]]) -> str:
    """A line for each finding, below its part."""
    words = {True: "ok", False: "FAILED", None: "skipped"}
    rows: list[tuple[str, ...]] = [("part", "what", "result", "figures", "note")]
    for part, findings in parts.items():
        for found in findings:
            figures = ", ".join(f"{name} {value:.3g}" for name, value in found.figures.items())
            rows.append((part, found.name, words[found.passed], figures, found.note))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)
