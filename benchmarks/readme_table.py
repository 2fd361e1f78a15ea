"""Prints tables of speeds as README has them, from the files of the comparisons of speeds.

    python benchmarks/readme_table.py mlagents.json sb3.json sb3-busy.json

Takes files of ``versus_mlagents.py --json`` and ``versus_sb3.py --json``, and makes a table of each kind.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from measuring.report import middle, times_faster
from measuring.step_rates import OTHERS, ROWS, medians, pace_of

_STEADY = "agent steps/s, steady"
Cells = Sequence[str]


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables. Returns 0."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "files", nargs="+", type=Path, metavar="FILE", help="written by a comparison's --json"
    )
    try:
        documents = [json.loads(path.read_text(encoding="utf-8")) for path in parser.parse_args(argv).files]
    except (OSError, json.JSONDecodeError) as error:
        parser.error(str(error))
    print("\n\n".join(tables(documents)))
    return 0


def tables(documents: Iterable[Any]) -> list[str]:
    """A Markdown table of each kind of document that is there."""
    mlagents: list[Cells] = []
    others: list[Cells] = []
    for document in documents:
        if isinstance(document, list):
            mlagents += [row_of_case(case) for case in document]
        else:
            others += rows_of_paces(document)
    columns = [cell for name in OTHERS.values() for cell in (name, "ratio")]
    heads = (["task, official settings", "agent steps/s, ours", "mlagents-learn", "ratio"],
             ["task", "steps/s, ours", *columns])  # fmt: skip
    return [markdown(head, rows) for head, rows in zip(heads, (mlagents, others), strict=True) if rows]


def row_of_case(case: Mapping[str, Any]) -> Cells:
    """A case of ``versus_mlagents.py``: medians of both, and ours divided by theirs."""
    ours, theirs = (middle(case["figures"][_STEADY][side]) for side in ("ours", "theirs"))
    name = " ".join(filter(None, (case["scene"], case["variant"])))
    agents = "1 agent" if case["agents"] == 1 else f"{case['agents']} agents"
    return [f"{name}, {agents}", number(ours), number(theirs), quotient(ours, theirs)]


def rows_of_paces(document: Mapping[str, Any]) -> list[Cells]:
    """The rows of a file of ``versus_sb3.py``."""
    found = medians([pace_of(pace) for pace in document["paces"]])
    beside = f", beside {document['busy']} busy programs" if document["busy"] else ""
    lines: list[Cells] = []
    for row in (row for row in ROWS if row.name in found):
        speeds = found[row.name]
        ours = speeds.get("ours")
        cells = [f"{row.title}{beside}", number(ours)]
        for trainer in OTHERS:
            cells += [number(speeds.get(trainer)), quotient(ours, speeds.get(trainer))]
        lines.append(cells)
    return lines


def markdown(head: Cells, rows: Iterable[Cells]) -> str:
    """A table in Markdown."""
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (head, ["---"] * len(head), *rows))


def number(value: float | None) -> str:
    """A speed with its thousands apart; a dash where there is none."""
    return "-" if value is None else f"{value:,.0f}"


def quotient(ours: float | None, theirs: float | None) -> str:
    """Ours divided by theirs, with one digit; two below 10 times as slow."""
    ratio = times_faster(ours, theirs)
    return "-" if ratio is None else f"{ratio:.1f}" if ratio >= 1 else f"{ratio:.2f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
