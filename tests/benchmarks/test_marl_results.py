"""The scores of team learners: what is run, and what the page says of it."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import gym_results
import marl_results
import opponent_results
import pytest
from marl.page import KEPT, commands, draw, table
from marl.rows import ROWS, Row
from measuring import scored_runs
from measuring.scores import CURVE_POINTS, Score, as_line, curve_of, merged, read_lines, score_of, write_lines

from trainer_service.cli import main
from trainer_service.config import load_run_options

CHECKOUT = Path(__file__).resolve().parents[2]
ROW = {row.name: row for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_has_a_configuration_that_is_sound(row: Row, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(CHECKOUT / row.config)]) == 0
    assert "ok" in capsys.readouterr().out
    load_run_options(CHECKOUT / row.config)


def test_scores_are_in_the_rows_unit() -> None:
    said = {"behaviors": {"Spread": {"mean_return": -20.0, "mean_group_return": -60.0}}}
    assert ROW["spread_mappo"].score(said) == -20.0
    assert ROW["spread_mappo_seed"].score(said) == 6 * -20.0 - 150.0
    assert ROW["switch2_mappo"].score(said) == -60.0


def test_behaviors_with_one_reward_are_averaged() -> None:
    said = {"behaviors": {"speaker": {"mean_return": -10.0}, "listener": {"mean_return": -12.0}}}
    assert ROW["speaker_listener_mappo"].score(said) == -11.0


def test_episodes_are_counted_by_team() -> None:
    assert "--episodes=3000" in ROW["spread_mappo"].evaluate("sm")


def test_the_table_shows_seeds_in_order_mean_and_deviation() -> None:
    scores = [
        Score("spread_ippo", 2, -12.0, 9_000_000, 60.0),
        Score("spread_ippo", 1, -10.0, 9_000_000, 90.0),
    ]
    line = table(scores).splitlines()[-1]
    assert "| -10.00, -12.00 | -11.00 ± 1.41 | -8.6 | -9.81 | 1.5, 1.0 |" in line
    assert len(table(scores).splitlines()) == 3


def test_a_configuration_may_have_rows_on_several_tasks() -> None:
    scores = [Score("lbf_vdn-15x15-3p-4f", 1, 0.5, 2_000_000, 60.0)]
    assert (
        table(scores)
        .splitlines()[-1]
        .startswith("| `lbf_vdn` | foraging 15x15-3p-4f, team | 2 M | 0.50 | 0.50 |")
    )
    train, score = commands(ROWS, scores).splitlines()
    assert (
        "learn configs/lbf_vdn.yaml --run-id=lbf_vdn-15x15-3p-4f --env=gymma:Foraging-15x15-3p-4f-v3" in train
    )
    assert score.startswith("mlagents-style evaluate lbf_vdn-15x15-3p-4f ")
    assert "--stochastic" in ROW["lbf_ippo-8x8-2p-3f"].evaluate("lbf")


def test_commands_are_those_of_rows_that_were_run() -> None:
    said = commands(ROWS, [Score("switch2_mappo", 1, 8.3, 500_000, 60.0)]).splitlines()
    assert said == [
        "mlagents-style learn configs/switch2_mappo.yaml --run-id=switch2_mappo --env=sim:switch2 --seed=1",
        "mlagents-style evaluate switch2_mappo --env=sim:switch2 --episodes=1000 --json",
    ]


def test_a_run_that_is_there_is_not_run_again(tmp_path: Path) -> None:
    score = Score("switch2_mappo", 1, 8.3, 500_000, 60.0)
    (tmp_path / "switch2_mappo-1.json").write_text(as_line(score))
    assert scored_runs.run(ROW["switch2_mappo"], 1, tmp_path) == "switch2_mappo-1: there already"
    assert scored_runs.scores(tmp_path) == [score]


def test_scores_are_read_as_they_were_written(tmp_path: Path) -> None:
    scores = [Score("spread_ippo", 1, -8.5, 3000, 60.0, ((1000, -20.0), (3000, -9.25)))]
    assert read_lines(tmp_path / "none.jsonl", score_of) == []
    write_lines(tmp_path / "scores.jsonl", scores)
    assert read_lines(tmp_path / "scores.jsonl", score_of) == scores
    assert [path.name for path in tmp_path.iterdir()] == ["scores.jsonl"]


def test_a_new_score_replaces_that_of_its_row_and_seed_alone() -> None:
    known = [Score("b", 1, 1.0, 10, 1.0), Score("a", 2, 2.0, 10, 1.0)]
    new = [Score("b", 1, 3.0, 10, 1.0), Score("a", 1, 4.0, 10, 1.0)]
    assert merged(known, new) == [new[1], known[1], new[0]]


def test_every_kept_score_is_of_a_row() -> None:
    kept = read_lines(KEPT, score_of)
    assert kept == merged([], kept)
    assert {score.row for score in kept} <= set(ROW)


def test_a_long_curve_is_thinned_with_both_its_ends(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    lines = [
        {"behavior": "Spread", "step": step, "mean_return": float(-step), "mean_group_return": -3.0 * step}
        for step in range(1, 201)
    ]
    (run / "metrics.jsonl").write_text("\n".join(map(json.dumps, lines)))
    own, group = curve_of(run, of_group=False), curve_of(run, of_group=True)
    assert len(own) == CURVE_POINTS
    assert (own[0], own[-1], group[-1]) == ((1, -1.0), (200, -200.0), (200, -600.0))


def test_a_picture_stays_where_not_every_curve_was_kept(tmp_path: Path) -> None:
    with_curve = Score("lunarlander_dqn", 1, 260.0, 2, 3.0, ((1, 0.0), (2, 1.0)))
    without = Score("lunarlander_dqn", 2, 250.0, 2, 3.0)
    assert draw([with_curve, without], tmp_path) == []
    ((title, path),) = draw([with_curve], tmp_path)
    assert (title, path.name) == ("lunarlander", "marl-lunarlander.png")
    path.write_bytes(b"kept")
    assert draw([with_curve, without], tmp_path) == [(title, path)]
    assert path.read_bytes() == b"kept"
    draw([with_curve], tmp_path)
    assert path.read_bytes() != b"kept"


@pytest.mark.parametrize("script", [marl_results, gym_results, opponent_results])
def test_without_matplotlib_nothing_is_trained(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="matplotlib"):
        script.main([f"--results-dir={tmp_path / 'results'}"])
    assert not (tmp_path / "results").exists()


@pytest.mark.process
def test_a_command_that_fails_says_why(tmp_path: Path) -> None:
    row = Row("no_such_file", "nothing", "sim:basic", "sim:basic", 1, 1)
    with pytest.raises(scored_runs.RunFailed, match=r"no_such_file\.yaml"):
        scored_runs.run(row, 1, tmp_path)
    assert not list(tmp_path.glob("*.json"))


@pytest.mark.process
def test_a_run_that_was_stopped_early_has_no_score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Row("early", "basic", "sim:basic", "sim:basic", 1, 1)
    config = tmp_path / row.config
    config.parent.mkdir()
    config.write_text(
        "behaviors: {Basic: {trainer_type: ppo, max_steps: 10000000, hyperparameters: {batch_size: 16, "
        "buffer_size: 64}, network_settings: {hidden_units: 8}}}\nstop: {wall_clock: 1}\n"
    )
    monkeypatch.setattr(scored_runs, "CHECKOUT", tmp_path)
    with pytest.raises(
        scored_runs.RunFailed, match=r"early-1: stopped early after \d+ of 10000000 steps, by .+"
    ):
        scored_runs.run(row, 1, tmp_path)
    assert not list(tmp_path.glob("early-1.*"))
