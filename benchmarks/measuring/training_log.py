"""Progress in a trainer's log. The summaries of ML-Agents and ours have the same words."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from measuring.counting import Served

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

    served: Served | None = None
    """The trainer's progress at the time of the line."""


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
    ends = _ends_of_second_half(summaries)
    if ends is None or ends[1].elapsed_s <= ends[0].elapsed_s:
        return None
    first, last = ends
    return (last.step - first.step) / (last.elapsed_s - first.elapsed_s)


def cpu_us_per_exchange(summaries: Sequence[Summary]) -> float | None:
    """CPU time of the trainer for an exchange with a simulator, in microseconds, over the second half of the steps.

    Updates are in it.

    Returns:
        None where there are not two summaries in that half, or nothing was counted.
    """
    served = _served_between(summaries)
    return None if served is None else served.cpu_s / served.exchanges * 1e6


def exchange_rate(summaries: Sequence[Summary]) -> float | None:
    """Exchanges per second, all simulators together, over the second half of the steps; None as above."""
    ends, served = _ends_of_second_half(summaries), _served_between(summaries)
    return None if ends is None or served is None else served.exchanges / (ends[1].seen_s - ends[0].seen_s)


def _served_between(summaries: Sequence[Summary]) -> Served | None:
    """The speed over the second half of the steps."""
    ends = _ends_of_second_half(summaries)
    if ends is None or ends[0].served is None or ends[1].served is None:
        return None
    first, last = ends[0].served, ends[1].served
    if last.exchanges <= first.exchanges:
        return None
    return Served(last.exchanges - first.exchanges, last.cpu_s - first.cpu_s)


def _ends_of_second_half(summaries: Sequence[Summary]) -> tuple[Summary, Summary] | None:
    """The first and the last summary of the second half of the steps; None where there are not two."""
    settled = [summary for summary in summaries if 2 * summary.step >= summaries[-1].step]
    return None if len(settled) < 2 else (settled[0], settled[-1])


def first_reaching(summaries: Sequence[Summary], threshold: float) -> Summary | None:
    """The first summary with at least that mean return."""
    reaching = (s for s in summaries if s.mean_return is not None and s.mean_return >= threshold)
    return next(reaching, None)


def final_return(summaries: Sequence[Summary]) -> float | None:
    """The last mean return that was reported."""
    reported = [summary.mean_return for summary in summaries if summary.mean_return is not None]
    return reported[-1] if reported else None
