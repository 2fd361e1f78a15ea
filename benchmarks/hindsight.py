"""Success rates on goal environments with a sparse reward, with hindsight replay and without.

python benchmarks/hindsight.py [--seeds 1 2 3] [--results FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "tests" / "helpers"))

from goal_learning import CASES, KINDS  # the environments of the tests


def main(argv: Sequence[str] | None = None) -> int:
    """Prints a row of a table for each learner."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3], metavar="S")
    parser.add_argument(
        "--results", type=Path, metavar="FOLDER", help="where runs are kept (default: nowhere)"
    )
    arguments = parser.parse_args(argv)
    print(f"| `trainer_type` | task | agent steps | {' | '.join(KINDS)} |")
    print(f"| --- | --- | --- | {' | '.join('---' for _ in KINDS)} |")
    with tempfile.TemporaryDirectory() as folder:
        results = arguments.results or Path(folder)
        for case in CASES:
            rates = [
                ", ".join(f"{case.success_rate(kind, seed, results):.2f}" for seed in arguments.seeds)
                for kind in KINDS
            ]
            print(
                f"| `{case.trainer_type}` | {case.task} | {case.steps:,} | {' | '.join(rates)} |", flush=True
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
