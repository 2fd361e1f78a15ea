"""The metrics of a run as a table."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.commands.common.trained_run import folder_of
from trainer_service.errors import UserError
from trainer_service.running.metrics.jsonl import STANDARD_KEYS, read_rows


def load_metrics(run: str | os.PathLike[str], behavior: str | None = None) -> dict[str, NDArray[Any]]:
    """The summaries of a run as columns of equal length, for ``pandas.DataFrame`` and for plots.

    There is a row for each summary of each behavior: ``behavior``, ``step``, ``env_steps``, ``wall_s``,
    ``episodes``, ``mean_return`` and what else metrics.jsonl holds; docs/python-api.md names them. What a row lacks is
    NaN, or None among texts.
    A run without a summary, such as one shorter than ``summary_freq``, has the columns of every run, of length 0.
    Members of a mapping have columns of their own, such as ``lesson.NAME``; histograms are left out.

    Args:
        run: its id, if it is in ``results``, its folder, or the ``Outcome`` of its training. It may still be running.
        behavior: only the rows of this one.

    Raises:
        UserError: no such run or behavior.
    """
    rows = read_rows(folder_of(run).metrics)
    if not rows:
        return {name: np.empty(0, kind) for name, kind in STANDARD_KEYS.items()}
    if behavior is not None:
        known = dict.fromkeys(str(row.get("behavior")) for row in rows)
        if behavior not in known:
            there = ", ".join(known) or "none"
            raise UserError(
                f"'{os.fspath(run)}': no summary of behavior '{behavior}'; it has those of {there}"
            )
        rows = [row for row in rows if row.get("behavior") == behavior]
    flat = [dict(_flat(row)) for row in rows]
    names = dict.fromkeys(name for row in flat for name in row)
    return {name: _column([row.get(name) for row in flat]) for name in names}


def _flat(row: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values, those of mappings under their path."""
    for key, value in row.items():
        if isinstance(value, Mapping):
            if not key.endswith("_hist"):
                yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _column(values: list[Any]) -> NDArray[Any]:
    if any(isinstance(value, str) for value in values):
        return np.array(values, object)
    if all(isinstance(value, int) for value in values):
        return np.array(values, np.int64)
    return np.array([np.nan if value is None else value for value in values], np.float64)
