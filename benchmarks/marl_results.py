"""Trains team learners with several seeds, scores their last checkpoints greedily, and writes down what came out.

    python benchmarks/marl_results.py [--only NAME ...] [--seeds N ...] [--jobs N] [--report] [--results-dir DIR]

Runs are those of the commands that the page shows, in a folder of their own; finished ones are not repeated. What
came out replaces that row and seed among the scores in benchmarks/marl/scores.jsonl, and the page of all of them is
docs/results/marl.md, with curves beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import partial

from marl.opponents import encounter_of
from marl.page import ENCOUNTERS, KEPT, write_page
from marl.rows import ROWS
from measuring.scored_runs import keep_scores, parser_of, run, run_missing
from measuring.scores import read_lines


def main(argv: Sequence[str] | None = None) -> int:
    """Runs what the arguments say. Returns 0 where every command came to its end."""
    row_of = {row.name: row for row in ROWS}
    arguments = parser_of("Scores of team learners.", [*row_of], "marl").parse_args(argv)
    folder = arguments.results_dir
    runs = [partial(run, row_of[name], seed, folder) for name in arguments.only for seed in arguments.seeds]
    failed = run_missing(arguments, runs)
    write_page(keep_scores(KEPT, folder), read_lines(ENCOUNTERS, encounter_of))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
