"""The scores on Gymnasium's environments: what is run, and what the page says of it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gym_results
import pytest
from gym_scores import page
from gym_scores.peer import PPO, curve
from gym_scores.rows import ROWS, GymRow
from measuring.scored_runs import RunFailed
from measuring.scores import Score, read_lines, score_of

from trainer_service.config import load_run_options

CHECKOUT = Path(__file__).resolve().parents[2]
ROW = {row.name: row for row in ROWS}


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_every_row_has_a_configuration_of_its_environment(row: GymRow) -> None:
    options = load_run_options(CHECKOUT / row.config).options
    settings = options.behaviors[row.task]
    assert settings.trainer_type == row.learner
    assert row.trained_on == f"gym:{row.task}"
    assert row.learner != "ppo" or row.task in PPO


@pytest.mark.parametrize("row", [row for row in ROWS if row.learner == "ppo"], ids=lambda row: row.name)
def test_values_are_those_of_the_peer(row: GymRow) -> None:
    settings = load_run_options(CHECKOUT / row.config).options.behaviors[row.task]
    hyper, theirs = settings.hyperparameters, PPO[row.task]
    ours = {
        "batch_size": hyper.batch_size,
        "learning_rate": hyper.learning_rate,
        "clip_range": hyper.epsilon,
        "n_epochs": hyper.num_epoch,
        "gae_lambda": hyper.lambd,
        "max_grad_norm": hyper.max_grad_norm,
        "gamma": settings.reward_signals["extrinsic"].gamma,
    }
    assert {key: ours[key] for key in theirs if key in ours} == {
        key: pytest.approx(theirs[key]) for key in theirs if key in ours
    }


def test_the_table_sets_ours_beside_theirs() -> None:
    scores = [
        Score("hopper", 2, 2500.4, 1_000_000, 660.0),
        Score("hopper", 1, 2300.0, 1_000_000, 600.0),
        Score("hopper+sb3", 1, 2200.0, 1_000_000, 720.0),
    ]
    *_, line = page.table(scores).splitlines()
    assert line == (
        "| `hopper` | Hopper-v5, ppo | 1 M | 2300, 2500 | 2400 ± 142 | 2200 | 2410 (v3, 1 M) | 10, 11 | 12 |"
    )
    assert page.commands(ROWS, scores).splitlines() == [
        "mlagents-style learn configs/hopper.yaml --run-id=hopper --env=gym:Hopper-v5 --seed=1",
        "mlagents-style evaluate hopper --env=gym:Hopper-v5 --episodes=100 --json --env-args --agents 10",
    ]


def test_a_curve_is_drawn_for_each_run(tmp_path: Path) -> None:
    scores = [Score(name, 1, 1.0, 2, 3.0, ((1, 1.0), (2, 1.0))) for name in ("hopper", "hopper+sb3")]
    scores.append(Score("hopper+sb3", 2, 1.0, 2, 3.0))
    (picture,) = page.draw(scores, tmp_path)
    assert picture.name == "gym-hopper-v5.png"
    assert picture.is_file()


def test_the_peers_curve_has_means_of_equal_parts() -> None:
    # Parts of ten steps: an episode that ends with a part belongs to it, and a part without one has no point.
    ended = [(9, 1.0), (10, 3.0), (11, 5.0), (300, 7.0)]
    assert curve(ended, 300) == [(10, 2.0), (20, 5.0), (300, 7.0)]
    assert curve([], 300) == []


def test_every_kept_score_is_of_a_row_or_its_peer() -> None:
    names = {name for row in ROWS for name in (row.name, row.peer)}
    assert {score.row for score in read_lines(gym_results.KEPT, score_of)} <= names


@pytest.mark.process
def test_a_run_of_the_peer_is_kept_and_not_repeated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    score = Score("hopper+sb3", 1, 5.0, 1_000_000, 2.0, ((500_000, 3.0), (1_000_000, 4.0)))
    said = {
        "value": score.value, "agent_steps": score.agent_steps, "seconds": score.seconds, "curve": score.curve,
    }  # fmt: skip
    driver = tmp_path / "peer.py"
    asked = ["ppo", "Hopper-v5", "1", "1000000"]
    driver.write_text(f"import sys\nassert sys.argv[1:] == {asked}\nprint({json.dumps(json.dumps(said))})")
    monkeypatch.setattr(gym_results, "PEER", driver)
    line = gym_results.run_peer(ROW["hopper"], 1, tmp_path, Path(sys.executable))
    assert line == "hopper+sb3-1: 5.00 after 1000000 agent steps, 2 s"
    assert score_of((tmp_path / "hopper+sb3-1.json").read_text()) == score
    driver.unlink()
    assert gym_results.run_peer(ROW["hopper"], 1, tmp_path, Path("none")) == "hopper+sb3-1: there already"


@pytest.mark.process
def test_a_peer_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym_results, "PEER", tmp_path / "none.py")
    with pytest.raises(RunFailed, match=r"hopper\+sb3-1 ended with 2"):
        gym_results.run_peer(ROW["hopper"], 1, tmp_path, Path(sys.executable))
