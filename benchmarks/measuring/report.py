"""Figures of several runs, side by side, as plain text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from measuring.exchange import ExchangeCosts
from measuring.runs import Run
from measuring.scenes import SLEEP_MS, Case
from measuring.training_log import (
    Summary,
    cpu_us_per_exchange,
    exchange_rate,
    final_return,
    first_reaching,
    overall_rate,
    start_up_s,
    steady_rate,
)

Race = tuple[Case, Sequence[Run], Sequence[Run]]
"""A case, our runs of it, and the peer's."""

_NAMES = ("ours", "mlagents-learn")
_OF_BUILDS = ("steps/s of a build", "CPU us per exchange", "builds per core")

Figure = Callable[[Run], float | None]


def middle(values: Iterable[float | None]) -> float | None:
    """The median of the values that exist; None if none does."""
    existing = [value for value in values if value is not None]
    return median(existing) if existing else None


def times_faster(ours: float | None, theirs: float | None, *, less_is_better: bool = False) -> float | None:
    """Above 1 where we are faster; None where a figure is missing or zero."""
    if not ours or not theirs:
        return None
    return theirs / ours if less_is_better else ours / theirs


def comparison(case: Case, ours: Sequence[Run], theirs: Sequence[Run]) -> str:
    """The table of one case: medians over the runs that came to their end."""
    rows: list[tuple[str, ...]] = [("", "ours", "mlagents-learn", "ratio")]
    for label, figure, layout, less_is_better in _figures(case):
        columns = [middle(map(figure, _good(runs))) for runs in (ours, theirs)]
        ratio = times_faster(*columns, less_is_better=less_is_better) if layout.ratio else None
        rows.append(
            (label, *(layout.text(value) for value in columns), "" if ratio is None else f"{ratio:.2f}")
        )
    head = f"{case.title}, agents: {case.agents}, stopped at {case.steps:,} agent steps"
    return "\n".join([head, *aligned(rows), *_misses(case, ours, theirs)])


def split_table(runs: Sequence[Run], alone: ExchangeCosts) -> str:
    """Where the time of our loop went, in the first run that came to its end.

    Args:
        runs: of ours.
        alone: what simulator and codec cost without a wire.
    """
    run = next(iter(_good(runs)), None)
    if run is None or "receive" not in run.split:
        return ""
    total_s = sum(block.total_s for block in run.split.values())
    exchanges = run.split["receive"].count
    rows = [("", "share", "us/exchange")]
    for name, block in sorted(run.split.items(), key=lambda item: -item[1].total_s):
        rows.append((name, f"{block.total_s / total_s:.1%}", f"{block.total_s / exchanges * 1e6:,.0f}"))
    known = (
        f"  receive is the wire, the simulator (alone {alone.simulator_us:,.0f} us) "
        f"and decoding (alone {alone.decode_us:,.0f} us)"
    )
    return "\n".join([f"our loop, seed {run.seed}, {exchanges:,} exchanges", *aligned(rows), known])


def builds_table(races: Sequence[Race]) -> str:
    """How many builds a core of each trainer serves, by how many of them play at once."""
    rows: list[tuple[str, ...]] = [
        ("builds at once", "", "steps/s of each", "trainer CPU us per exchange", "builds per core", "ratio")
    ]
    for case, *both in races:
        costs = [middle(cpu_us_per_exchange(run.summaries) for run in _good(runs)) for runs in both]
        rates = [middle(exchange_rate(run.summaries) for run in _good(runs)) for runs in both]
        ratio = times_faster(*costs, less_is_better=True)
        for name, cpu_us, rate in zip(("ours", "mlagents-learn"), costs, rates, strict=True):
            figures = (
                (None if rate is None else rate / case.simulators, 1),
                (cpu_us, 0),
                (None if cpu_us is None else builds_per_core(cpu_us), 1),
            )
            cells = [_Layout(digits).text(value) for value, digits in figures]
            told = "" if ratio is None or name != "ours" else f"{ratio:.2f}"
            rows.append((str(case.simulators), name, *cells, told))
    failed = [
        f"  {run.trainer}, {case.simulators} builds, seed {run.seed}: FAILED, {run.failure.splitlines()[0]}"
        for case, *both in races
        for run in (*both[0], *both[1])
        if run.failure is not None
    ]
    return "\n".join([*aligned(rows), *failed])


def builds_per_core(cpu_us: float, step_ms: float = SLEEP_MS) -> float:
    """Builds that a core of the trainer serves. cpu_us: for an exchange; step_ms: between two of a build."""
    return step_ms * 1e3 / cpu_us


def as_json(case: Case, ours: Sequence[Run], theirs: Sequence[Run]) -> dict[str, Any]:
    """Every figure and every summary of a case, for programs."""
    return {
        "scene": case.scene.name,
        "variant": case.variant.name,
        "agents": case.agents,
        "steps": case.steps,
        "simulators": case.simulators,
        "figures": {
            label: {
                "ours": [figure(run) for run in _good(ours)],
                "theirs": [figure(run) for run in _good(theirs)],
            }
            for label, figure, _, _ in _figures(case)
        },
        "runs": [asdict(run) for run in (*ours, *theirs)],
    }


class _Layout:
    """How a figure is written, and whether a ratio of it means anything."""

    def __init__(self, digits: int, *, ratio: bool = True) -> None:
        self.ratio = ratio
        self._digits = digits

    def text(self, value: float | None) -> str:
        return "-" if value is None else f"{value:,.{self._digits}f}"


def _figures(case: Case) -> list[tuple[str, Figure, _Layout, bool]]:
    """Label, figure, layout, and whether less of it is better."""
    threshold = case.scene.threshold

    def reached_step(run: Run) -> float | None:
        summary = first_reaching(run.summaries, threshold)
        return None if summary is None else summary.step

    def reached_s(run: Run) -> float | None:
        summary = first_reaching(run.summaries, threshold)
        return None if summary is None else summary.seen_s

    return [
        ("agent steps/s, steady", _of_log(steady_rate), _Layout(0), False),
        ("agent steps/s, start-up included", _of_log(overall_rate), _Layout(0), False),
        ("trainer CPU us per exchange", _of_log(cpu_us_per_exchange), _Layout(0), True),
        ("ms per update", lambda run: run.update_ms, _Layout(0), True),
        ("start-up, s", _of_log(start_up_s), _Layout(1), True),
        (f"steps to mean return {threshold:g}", reached_step, _Layout(0), True),
        (f"seconds to mean return {threshold:g}", reached_s, _Layout(1), True),
        ("mean return at the end", _of_log(final_return), _Layout(2, ratio=False), False),
    ]


def _of_log(figure: Callable[[Sequence[Summary]], float | None]) -> Figure:
    return lambda run: figure(run.summaries)


def _good(runs: Sequence[Run]) -> list[Run]:
    return [run for run in runs if run.failure is None]


def _misses(case: Case, ours: Sequence[Run], theirs: Sequence[Run]) -> list[str]:
    """Runs that the medians hide: the failed ones, and those below the threshold to the end."""
    lines = []
    for run in (*ours, *theirs):
        if run.failure is not None:
            lines.append(f"  {run.trainer}, seed {run.seed}: FAILED, {run.failure.splitlines()[0]}")
        elif first_reaching(run.summaries, case.scene.threshold) is None:
            lines.append(
                f"  {run.trainer}, seed {run.seed}: did not reach mean return {case.scene.threshold:g}"
            )
    return lines


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """First column to the left, the others to the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  " + "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]).rstrip()
        for row in rows
    ]
