"""Whether a row that is trained again gives what the table has."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass

from scores.curves import of_row
from scores.provenance import is_same_kind
from scores.record import Score
from scores.rows import Row

_T_975 = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228)
"""Quantiles of Student's t distribution with 1, 2, … degrees of freedom."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of repeating a run of a row."""

    holds: bool
    text: str


def by_weights(again: Score, known: Iterable[Score]) -> Verdict | None:
    """Compares the weights of a run with those of its seed; None where none were made on an equal kind of machine.

    On an equal machine with equal versions, equal code gives equal weights, bit for bit.
    """
    for score in of_row(known, again.row):
        has_both = score.seed == again.seed and score.weights and again.weights  # an interrupted run has none
        if has_both and is_same_kind(score.made_with, again.made_with):
            if score.weights == again.weights:
                return Verdict(True, f"equal weights, {again.weights[:12]}")
            return Verdict(False, f"other weights than those by commit {score.made_with.get('commit', '?')}")
    return None


def by_interval(row: Row, again: Score, known: Iterable[Score]) -> Verdict:
    """Compares a score with the 95 % prediction interval of one more seed: mean ± t s √(1 + 1/n).

    The interval is at least 2 % of the mean on either side, for rows whose seeds are all but equal.
    """
    values = [score.value for score in of_row(known, row.name)]
    digits = row.digits
    told = f"{again.value:.{digits}f}"
    if not values:
        return Verdict(False, f"{told}; the table has no score of this row")
    if len(values) == 1:
        return Verdict(True, f"{told}, one seed had {values[0]:.{digits}f}: too few for an interval")
    half = (
        _T_975[min(len(values) - 2, len(_T_975) - 1)]
        * statistics.stdev(values)
        * (1 + 1 / len(values)) ** 0.5
    )
    half = max(half, 0.02 * abs(statistics.mean(values)))
    low, high = statistics.mean(values) - half, statistics.mean(values) + half
    holds = low <= again.value <= high
    where = "within" if holds else "outside"
    return Verdict(
        holds, f"{told}, {where} {low:.{digits}f} to {high:.{digits}f} (95 %, by {len(values)} seeds)"
    )
