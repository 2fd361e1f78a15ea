"""The page that says what was reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median

from learning.cases import Case, Settings
from learning.results import Result

COMMAND = "python benchmarks/learning_results.py"

_HEAD = ("test", "settings that differ", "threshold", "passed", "steps until", "final mean", "seconds")


def rows(cases: Sequence[Case], results: Sequence[Result]) -> list[tuple[str, ...]]:
    """One for each case that has a result: figures of its seeds in their order, seconds as their median."""
    table = []
    for case in cases:
        of_case = sorted((each for each in results if each.case == case.name), key=lambda each: each.seed)
        if of_case:
            table.append(_row(case, of_case))
    return table


def plain(cases: Sequence[Case], results: Sequence[Result]) -> str:
    """For a terminal."""
    lines = [_HEAD, *rows(cases, results)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(_HEAD))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def page(
    cases: Sequence[Case],
    results: Sequence[Result],
    *,
    seeds: Sequence[int],
    versions: Mapping[str, str],
    date: str,
) -> str:
    """The whole document, as Markdown."""
    table = [_line(_HEAD), _line("---" for _ in _HEAD), *(_line(row) for row in rows(cases, results))]
    passed = sum(each.passed for each in results)
    return _TEXT.format(
        passed=passed,
        runs=len(results),
        cases=len({each.case for each in results}),
        all_cases=len(cases),
        complete=sum(
            all(each.passed for each in results if each.case == name)
            for name in {each.case for each in results}
        ),
        seeds=", ".join(map(str, seeds)),
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        date=date,
        command=COMMAND,
        table="\n".join(table),
        fewer=_fewer(cases, results, seeds),
    )


def _row(case: Case, results: Sequence[Result]) -> tuple[str, ...]:
    return (
        case.name,
        short(case.changes),
        _asked(case),
        f"{sum(each.passed for each in results)} of {len(results)}",
        " · ".join(
            "–" if each.steps_to_threshold is None else str(each.steps_to_threshold) for each in results
        ),
        " · ".join(_finals(case, each) for each in results),
        f"{median(each.seconds for each in results):.0f}",
    )


def _asked(case: Case) -> str:
    if case.threshold is None:
        return "none"
    return f"one above {case.threshold:g}, one below" if case.one_fails else f"{case.threshold:g}"


def _finals(case: Case, result: Result) -> str:
    finals = (result.final, result.other_final)[: len(case.world.behaviors)]
    return " & ".join("–" if final is None else f"{final:.2f}" for final in finals)


def _fewer(cases: Sequence[Case], results: Sequence[Result], seeds: Sequence[int]) -> str:
    """A sentence that names the tests without runs of every seed."""
    runs = Counter(result.case for result in results)
    lacking = [case.name.partition("[")[0] for case in cases if runs[case.name] < len(seeds)]
    names = ", ".join(f"`{name}`" for name in dict.fromkeys(lacking))
    return f"Not every variant was run with every seed yet: {names}.\n\n" if names else ""


def short(settings: Settings) -> str:
    """``batch_size 64, max_steps 10000``."""
    return ", ".join(f"{key} {_value(value)}" for key, value in settings.items())


def _value(value: object) -> str:
    if isinstance(value, Mapping):
        return f"({short(value)})"
    return f"{value:g}" if isinstance(value, float) else str(value).lower()


def _line(cells: Sequence[str] | object) -> str:
    return f"| {' | '.join(cells)} |"  # type: ignore[arg-type]


_TEXT = """# Learning tests

This page shows how this trainer passes the learning tests of ML-Agents' developers. In these tests an agent on a line
observes the end to which it must walk, as a vector, a picture or a list of entities. It must learn this within a few
hundred or thousand steps. The tests were rebuilt with the same environments, settings and thresholds, each with the
seeds {seeds}, without a selection. Every run is a full `learn` through the real channel, with the environment in a
separate process.

    {command}                    # all tests, and this page
    {command} --only recurrent   # some; prints the table
    {command} --resume           # continues an interrupted call

A test is passed if the mean of the last five returns at the end of the run is above the threshold. Returns are those
of the exploring policy: one unlucky episode among the last five fails a test that was learned long before. *steps
until* is the step at which the mean of five was above the threshold for the first time. Several numbers are those of
the seeds in their order.

**{passed} of {runs} runs passed.** {complete} of {cases} tests passed with every seed they were run with; there are
{all_cases} tests. {date}; {versions}.

{fewer}{table}

With *2 agents* both are one group with one goal, and each waits for the other at its end. The score is the reward of
each agent for its end, at best 1.06, without the cost of its steps. So one wrong end among the last five is a miss.
If the threshold is *none*, the run must only complete.

The *ghost* tests have two sides, each alone on a separate line, which play against each other through the trainer
only: the sign of the last reward is the result. The means are those of both sides as they act, learning or not,
counted by the environment. *steps until* is the later of both, in steps of one side. In the tests that end with
*fails* one side must be above the threshold and one below. There the side that does not learn acts as an untrained
policy, and *steps until* is that of the first side. Such a policy still reaches the right end every other time, and
occasionally, by luck, five times in a row.

ML-Agents has no such test of curiosity or RND; ours (pyramids) are in
`tests/trainer_service/running/training/test_learning.py`.
"""
