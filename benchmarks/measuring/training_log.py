"""What a trainer says about its progress. ML-Agents and ours word a summary alike."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_SUMMARY = re.compile(
    r"\. Step: (?P<step>\d+)\. Time Elapsed: (?P<elapsed>[\d.]+) s\. "
    r"(?:Mean Reward: (?P<mean>-?[\d.]+(?:e[+-]?\d+)?)\. |No episode was completed)"
)


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of progress."""

    step: int
    """Agent steps so far."""

    elapsed_s: float
    """The trainer's own clock, which it starts once everything is loaded."""

    seen_s: float
    """When the line came, counted from the start of the process."""

    mean_return: float | None
    """Of the episodes since the last summary; None where none ended."""


def parse_summary(line: str, seen_s: float) -> Summary | None:
    """Returns the summary that a line of output states, None if it states none."""
    match = _SUMMARY.search(line)
    if match is None:
        return None
    mean = match["mean"]
    return Summary(int(match["step"]), float(match["elapsed"]), seen_s, None if mean is None else float(mean))


def start_up_s(summaries: Sequence[Summary]) -> float:
    """From the start of the process until the trainer's own clock ran. Needs a summary."""
    return summaries[0].seen_s - summaries[0].elapsed_s


def overall_rate(summaries: Sequence[Summary]) -> float:
    """Agent steps per second from the start of the process to the last summary. Needs a summary."""
    return summaries[-1].step / summaries[-1].seen_s


def steady_rate(summaries: Sequence[Summary]) -> float | None:
    """Agent steps per second over the second half of the steps, by the trainer's own stamps.

    ML-Agents counts a step when its trajectory is complete. While episodes grow from 30 steps to 1000, more and
    more steps wait to be counted; only once that has settled do its stamps tell its speed.

    Returns:
        None where there are not two summaries in that half.
    """
    settled = [summary for summary in summaries if 2 * summary.step >= summaries[-1].step]
    if len(settled) < 2 or settled[-1].elapsed_s <= settled[0].elapsed_s:
        return None
    first, last = settled[0], settled[-1]
    return (last.step - first.step) / (last.elapsed_s - first.elapsed_s)


def first_reaching(summaries: Sequence[Summary], threshold: float) -> Summary | None:
    """The first summary with at least that mean return."""
    reaching = (s for s in summaries if s.mean_return is not None and s.mean_return >= threshold)
    return next(reaching, None)


def final_return(summaries: Sequence[Summary]) -> float | None:
    """The last mean return that was reported."""
    reported = [summary.mean_return for summary in summaries if summary.mean_return is not None]
    return reported[-1] if reported else None
