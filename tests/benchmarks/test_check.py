"""Rows of the table of scores are checked: by weights on an equal machine, elsewhere by the interval of the seeds."""

from __future__ import annotations

import dataclasses
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import results
from scores import runs
from scores.check import by_interval, by_weights
from scores.page import standing, standings
from scores.record import Score, score_of
from scores.rows import SCENES, Published, Row

ROW, BASIC = SCENES[:2]
HERE = {"processor": "P", "torch": "2.13.0", "commit": "a"}


def score(value: float, *, seed: int = 1, weights: str = "w", **changed: str) -> Score:
    return Score(ROW.name, seed, value, 100, 1.0, weights=weights, made_with={**HERE, **changed})


def test_weights_of_an_equal_machine_must_be_equal() -> None:
    known = [score(1.0), score(1.0, seed=2, weights="other")]
    equal, differs = by_weights(score(9.0, commit="b"), known), by_weights(score(1.0, weights="v"), known)
    assert equal is not None
    assert equal.holds
    assert differs is not None
    assert not differs.holds
    assert by_weights(score(1.0, torch="2.15.0"), known) is None
    assert by_weights(score(1.0, seed=3), known) is None
    assert by_weights(score(1.0, weights=""), known) is None, "of an interrupted run nothing is known"


@pytest.mark.parametrize(
    ("value", "holds"), [(12.0, True), (14.9, True), (15.1, False), (5.1, True), (4.9, False)]
)
def test_a_score_lies_in_the_prediction_interval_of_one_more_seed(value: float, holds: bool) -> None:
    # Mean 10, s = 1, n = 3: 4.303 √(4/3) = 4.969 on either side.
    known = [score(9.0), score(10.0, seed=2), score(11.0, seed=3)]
    assert by_interval(ROW, score(value), known).holds is holds


def test_seeds_that_are_equal_leave_two_percent() -> None:
    known = [score(100.0), score(100.0, seed=2)]
    assert by_interval(ROW, score(98.5), known).holds
    assert not by_interval(ROW, score(97.5), known).holds
    assert not by_interval(ROW, score(100.0), []).holds


@pytest.mark.parametrize(
    ("values", "published", "expected"),
    [
        ((12.0,), (1e-4,), "ahead"),
        ((9.0, 12.0), (1e-4,), "level"),  # a mean of 10.5, and a deviation of 2.1
        ((9.0,), (1e-4,), "behind"),
        ((9.0,), (1e-4, 1.5), "level"),
        ((9.9996,), (1e-4,), "level"),  # 10.000
        ((9.0,), (4e-4,), "behind, with 25 % of the steps"),  # 100 of 400
        ((), (1e-4,), ""),
    ],
)
def test_a_row_is_compared_with_what_is_published_at_equal_steps(
    values: tuple[float, ...], published: tuple[float, ...], expected: str
) -> None:
    row = dataclasses.replace(ROW, published=Published(10.0, "a paper", *published))
    own = [score(value, seed=seed) for seed, value in enumerate(values)]
    assert standing(row, own) == expected
    fewer = "with" in expected
    count = f"Of the {int(bool(values) and not fewer)} rows that can be compared"
    assert standings([row, BASIC], own).startswith(count)
    assert standings([row], own).endswith(f"Another {int(fewer)} are behind and had fewer steps.")


@pytest.mark.process
@pytest.mark.timeout(900)  # seconds of work, but on a busy machine minutes
@pytest.mark.parametrize("row", [ROW, BASIC], ids=lambda row: row.name)
def test_a_short_row_can_be_repeated(row: Row, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = results.main(["check", row.name, f"--results-dir={tmp_path}"])
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize(
    ("row", "place"),
    [
        ("cartpole_dqn", "behaviors.CartPole-v1"),
        ("lbf_idqn-8x8-2p-2f-coop", "default_settings"),
        ("basic", None),  # PPO has no replay buffer
    ],
)
def test_an_interrupted_row_keeps_its_replay_buffer(row: str, place: str | None) -> None:
    config = runs.CHECKOUT / results.ROW_OF[row].config
    expected = [f"--set={place}.hyperparameters.save_replay_buffer=true"] if place else []
    assert runs.saving_replay_buffers(config) == expected


@pytest.mark.process
@pytest.mark.timeout(900)
def test_a_row_that_was_interrupted_resumes_and_has_no_hash(tmp_path: Path) -> None:
    row = dataclasses.replace(
        results.ROW_OF["cartpole_dqn"],
        settings=(
            "behaviors.CartPole-v1.max_steps=2000",
            "behaviors.CartPole-v1.summary_freq=500",
            "behaviors.CartPole-v1.hyperparameters.buffer_init_steps=500",
        ),
    )
    saving = runs.saving_replay_buffers(runs.CHECKOUT / row.config)
    begun = dataclasses.replace(row, settings=(*row.settings, "behaviors.CartPole-v1.max_steps=1000"))
    runs.call([*begun.learn("cartpole_dqn-1", 1), *saving], tmp_path)
    resumed = runs.trained(row, 1, tmp_path)
    assert (resumed.weights, resumed.cpu_minutes) == ("", None)
    log = (tmp_path / "cartpole_dqn-1" / "run_logs" / "trainer.log").read_text()
    assert "Resuming 'CartPole-v1' from step 10" in log
    assert "empty replay buffer" not in log
    assert runs.trained(row, 1, tmp_path) == resumed


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("check", "expected names of rows"),
        ("check basik", "no row basik"),
        ("check new", "the table has no score of new; `run` trains a row"),
        ("check basic --results-dir {file}/runs", "--results-dir: "),
        ("run basic --results-dir {file}/runs", "--results-dir: "),
        ("run basic --seeds 0", "--seeds: expected a whole number from 1 on, got '0'"),
        ("run basic --seeds one", "--seeds: expected a whole number from 1 on, got 'one'"),
    ],
)
def test_a_line_that_cannot_be_run_is_refused_at_once(
    line: str,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(results.ROW_OF, "new", dataclasses.replace(BASIC, name="new"))
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(SystemExit) as ended:
        results.main(line.format(file=tmp_path / "file").split())
    assert ended.value.code == 2
    assert message in capsys.readouterr().err


def test_runs_that_end_together_are_all_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, kept = runs.read_lines, tmp_path / "scores.jsonl"

    def read_slowly(*arguments: Any) -> Any:
        found = read(*arguments)
        time.sleep(0.02)  # as long as others would need to write between
        return found

    monkeypatch.setattr(runs, "read_lines", read_slowly)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: runs.add([score(1.0, seed=seed)], kept), range(1, 5)))
    assert [each.seed for each in read(kept, score_of)] == [1, 2, 3, 4]
