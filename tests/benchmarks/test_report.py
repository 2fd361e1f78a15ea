from __future__ import annotations

import json

from measuring.counting import Served
from measuring.exchange import ExchangeCosts
from measuring.report import (
    as_json,
    builds_per_core,
    builds_table,
    comparison,
    middle,
    split_table,
    times_faster,
)
from measuring.runs import Block, Run
from measuring.scenes import SCENES, Case
from measuring.training_log import Summary

CASE = Case(SCENES["basic"], agents=1, steps=400)


def steady_run(trainer: str, rate: float, mean_return: float) -> Run:
    """400 steps at so many a second, after a start of one second."""
    steps = (200, 300, 400)
    return Run(trainer, 1, tuple(Summary(n, n / rate, n / rate + 1, mean_return) for n in steps))


def cells(table: str, label: str) -> list[str]:
    line = next(line for line in table.splitlines() if line.strip().startswith(label))
    return line.strip().removeprefix(label).split()


def test_a_ratio_above_one_is_in_our_favour() -> None:
    assert times_faster(6.0, 2.0) == 3.0
    assert times_faster(2.0, 6.0, less_is_better=True) == 3.0


def test_a_missing_figure_has_no_ratio() -> None:
    assert times_faster(None, 2.0) is None
    assert times_faster(2.0, None) is None
    assert times_faster(2.0, 0.0) is None


def test_the_middle_is_that_of_the_values_that_exist() -> None:
    assert middle([5.0, None, 1.0, 3.0]) == 3.0
    assert middle([None]) is None


def test_a_comparison_shows_both_and_their_ratio() -> None:
    table = comparison(CASE, [steady_run("ours", 100, 0.95)], [steady_run("theirs", 50, 0.5)])
    assert cells(table, "agent steps/s, steady") == ["100", "50", "2.00"]
    assert cells(table, "agent steps/s, start-up included") == ["80", "44", "1.80"]
    assert cells(table, "seconds to mean return 0.9") == ["3.0", "-"]
    assert cells(table, "mean return at the end") == ["0.95", "0.50"]
    assert "theirs, seed 1: did not reach mean return 0.9" in table


def test_a_failed_run_is_named_and_counts_in_no_figure() -> None:
    failed = Run(
        "ours", 2, steady_run("ours", 1, 0.95).summaries, failure="ended after 3 of 400 steps\n  Oops"
    )
    table = comparison(CASE, [failed, steady_run("ours", 100, 0.95)], [])
    assert cells(table, "agent steps/s, steady") == ["100", "-"]
    assert "ours, seed 2: FAILED, ended after 3 of 400 steps" in table


def test_the_split_is_shared_out_over_exchanges() -> None:
    split = {"receive": Block(3.0, 1000), "update": Block(1.0, 2)}
    alone = ExchangeCosts(170.4, 46.0, 8.0, (), (), b"", b"")
    table = split_table([Run("ours", 1, (), split)], alone)
    assert cells(table, "update") == ["25.0%", "1,000"]
    assert cells(table, "receive")[:2] == ["75.0%", "3,000"]
    assert "alone 170 us" in table


def test_cpu_time_and_updates_are_compared_too() -> None:
    def run(trainer: str, cpu_s: float, update_ms: float | None) -> Run:
        # The first half of the steps cost more than the rest, and does not count.
        served = [Served(100, 9.0), Served(200, 10.0), Served(400, 10.0 + cpu_s)]
        logged = [
            Summary(n, n / 100, n / 50, 1.0, done) for n, done in zip((100, 200, 400), served, strict=True)
        ]
        return Run(trainer, 1, tuple(logged), update_ms=update_ms)

    table = comparison(CASE, [run("ours", 0.1, 250.0)], [run("theirs", 0.3, None)])
    assert cells(table, "trainer CPU us per exchange") == ["500", "1,500", "3.00"]
    assert cells(table, "ms per update") == ["250", "-"]


def test_builds_per_core_by_hand() -> None:
    # 10 ms of a step hold five exchanges of 2 ms.
    assert builds_per_core(2000.0, step_ms=10) == 5.0


def test_builds_of_both_stand_below_each_other() -> None:
    case = Case(SCENES["basic"], agents=1, steps=400, simulators=4)

    def run(trainer: str, cpu_s: float) -> Run:
        return Run(trainer, 1, tuple(Summary(n, n, n, 1.0, Served(100 * n, cpu_s * n)) for n in (1, 2)))

    failed = Run("theirs", 2, (), failure="ended after 3 of 400 steps\n  Oops")
    table = builds_table([(case, [run("ours", 0.1)], [run("theirs", 0.4), failed])])
    rows = [line.split() for line in table.splitlines()]
    assert rows[1] == ["4", "ours", "25.0", "1,000", "10.0", "4.00"]
    assert rows[2] == ["4", "mlagents-learn", "25.0", "4,000", "2.5"]
    assert "theirs, 4 builds, seed 2: FAILED, ended after 3 of 400 steps" in table


def test_every_figure_can_be_written_as_json() -> None:
    document = json.loads(json.dumps(as_json(CASE, [steady_run("ours", 100, 0.95)], [])))
    assert document["figures"]["agent steps/s, steady"] == {"ours": [100.0], "theirs": []}
    assert document["runs"][0]["summaries"][0]["step"] == 200
