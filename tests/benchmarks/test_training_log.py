from __future__ import annotations

import numpy as np
import pytest
from measuring.counting import Served
from measuring.training_log import (
    Summary,
    cpu_us_per_exchange,
    exchange_rate,
    final_return,
    first_reaching,
    overall_rate,
    parse_summary,
    start_up_s,
    steady_rate,
)

from trainer_service.running.metrics import EpisodeStats, summary_line
from trainer_service.running.metrics import Summary as OurSummary


def summaries(*rows: tuple[int, float, float | None]) -> list[Summary]:
    """Steps, elapsed seconds and mean return; the process started two seconds before the clock."""
    return [Summary(step, elapsed_s, elapsed_s + 2.0, mean) for step, elapsed_s, mean in rows]


def test_a_summary_of_mlagents_is_read() -> None:
    line = "[INFO] 3DBall. Step: 12000. Time Elapsed: 3.507 s. Mean Reward: -1.599. Std of Reward: 0.851. Training."
    assert parse_summary(line, 5.0) == Summary(12_000, 3.507, 5.0, -1.599)


def test_a_summary_without_episodes_has_no_return() -> None:
    line = (
        "[INFO] 3DBall. Step: 96. Time Elapsed: 3.5 s. No episode was completed since last summary. Training."
    )
    assert parse_summary(line, 5.0) == Summary(96, 3.5, 5.0, None)


def test_our_own_summaries_are_read_too() -> None:
    line = f"[INFO] {summary_line(OurSummary(behavior='A.B', step=500, wall_s=1.25, steps_per_s=1.0))}"
    assert parse_summary(line, 2.0) == Summary(500, 1.25, 2.0, None)
    large = OurSummary(
        behavior="A", step=500, wall_s=1.0, steps_per_s=1.0, stats=EpisodeStats(*np.full((2, 1), -1.5e7))
    )
    assert parse_summary(summary_line(large), 2.0) == Summary(500, 1.0, 2.0, -1.5e7)


@pytest.mark.parametrize("line", ["", "[INFO] Exported results/x.onnx", "  summary_freq:\t12000"])
def test_other_lines_are_no_summaries(line: str) -> None:
    assert parse_summary(line, 1.0) is None


def test_the_steady_rate_is_that_of_the_second_half() -> None:
    # 100 steps took 10 s at first, then 100 steps 2 s.
    run = summaries((100, 10.0, None), (150, 11.0, None), (200, 12.0, None))
    assert steady_rate(run) == 50.0


def test_one_summary_tells_no_steady_rate() -> None:
    assert steady_rate(summaries((10, 1.0, None), (100, 2.0, None))) is None
    assert steady_rate([]) is None


def test_the_overall_rate_counts_from_the_start_of_the_process() -> None:
    run = summaries((100, 3.0, None), (300, 8.0, None))
    assert overall_rate(run) == 30.0
    assert start_up_s(run) == 2.0


def test_the_threshold_is_reached_by_the_first_summary_at_it() -> None:
    run = summaries((1, 1.0, None), (2, 2.0, 0.5), (3, 3.0, 0.9), (4, 4.0, 0.8))
    assert first_reaching(run, 0.9) == run[2]
    assert first_reaching(run, 1.0) is None


def test_the_final_return_is_the_last_that_was_reported() -> None:
    assert final_return(summaries((1, 1.0, 0.5), (2, 2.0, None))) == 0.5
    assert final_return(summaries((1, 1.0, None))) is None


def test_what_was_not_counted_has_no_figure() -> None:
    assert cpu_us_per_exchange([]) is None
    assert exchange_rate(summaries((10, 1.0, None), (20, 2.0, None))) is None
    idle = [Summary(n, n, n, None, Served(5, 1.0)) for n in (10, 20)]
    assert cpu_us_per_exchange(idle) is None
