"""Evaluations during a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from run_files import assert_same_state, checkpoint, metrics

from trainer_service.running.evaluation.periodic import step_limit

EPISODE = 18  # agent steps of one episode of the treadmill's three agents


def rows(run_id: str) -> list[dict[str, Any]]:
    return metrics(run_id, "evaluations.jsonl")


OFTEN = {"every_steps": 3 * EPISODE, "episodes": 4, "stochastic": True}


def test_a_run_does_not_notice_that_it_is_evaluated(train) -> None:
    train("alone", 9 * EPISODE)
    train("watched", 9 * EPISODE, evaluation=OFTEN)
    assert_same_state("watched", "alone", "Treadmill")
    assert metrics("watched") == metrics("alone")
    assert not Path("results/alone/evaluations.jsonl").exists()
    assert [row["step"] for row in rows("watched")] == [54, 108, 162]


def test_the_best_policy_is_kept_with_its_model(train, mlagents_style) -> None:
    said = train("run", 15 * EPISODE, evaluation=OFTEN)
    found = rows("run")
    best = [row for row in found if row["best"]]
    assert best[0] == found[0]  # the first is the best so far, whatever it is
    top = max(found, key=lambda row: row["score"])
    assert best[-1] == top
    assert checkpoint("run", "Treadmill", "best.safetensors")["step"] == top["step"]
    assert Path("results/run/Treadmill/best.onnx").is_file()
    assert top["score"] == top["mean_return"]
    assert said.out.count("Evaluation at step") == len(found) == 5
    events = next(Path("results/run/Treadmill").glob("events.out.tfevents.*")).read_bytes()
    assert b"Evaluation/Cumulative Reward" in events

    same = ["--episodes=4", "--stochastic", "--json"]
    for which, step in (("best", top["step"]), ("last", 15 * EPISODE)):
        result = json.loads(mlagents_style("evaluate", "run", f"--checkpoint={which}", *same).out)
        assert result["step"] == step
        if which == "best":
            # The same seeds, the same simulator: exactly what the run has found.
            assert result["behaviors"]["Treadmill"]["mean_return"] == top["mean_return"]
    path = "results/run/Treadmill/best.safetensors"
    result = json.loads(mlagents_style("evaluate", "run", f"--checkpoint={path}", *same).out)
    assert result["step"] == top["step"]


def test_an_evaluation_that_fails_costs_a_warning(train, monkeypatch) -> None:
    from trainer_service.running.evaluation.simulator import EvaluationSimulator
    from unity_bridge.errors import LaunchError

    def fail(self: EvaluationSimulator) -> None:
        raise LaunchError("it does not start today")

    monkeypatch.setattr(EvaluationSimulator, "open", fail)
    said = train("unlucky", 6 * EPISODE, evaluation=OFTEN)
    assert said.out.count("An evaluation failed: it does not start today. The run continues.") == 2
    assert checkpoint("unlucky", "Treadmill")["step"] == 6 * EPISODE
    assert not Path("results/unlucky/evaluations.jsonl").exists()


def test_a_limit_of_its_own_cuts_episodes_of_evaluations(train) -> None:
    said = train("limited", 4 * EPISODE, evaluation={**OFTEN, "max_episode_steps": 4})
    (row,) = rows("limited")
    assert (row["episodes"], row["cut_episodes"], row["mean_length"]) == (4, 4, 4.0)
    assert "sets another limit" not in said.out


class Trained(NamedTuple):
    """What the limit of an evaluation depends on."""

    step: int
    episodes: int = 0
    longest_episode: int = 0


@pytest.mark.parametrize(
    ("trained", "limit"),
    [
        ([Trained(20)], 1000),
        ([Trained(400)], 4000),
        ([Trained(10**6)], 10_000),
        ([Trained(10**6, 5000, 70)], 1000),
        ([Trained(10**6, 50, 30_000)], 300_000),
        ([Trained(900, 9, 100), Trained(900, 1, 500)], 5000),
    ],
)
def test_the_limit_is_ten_times_the_longest_training_episode(trained: list[Any], limit: int) -> None:
    assert step_limit(trained) == limit


def test_an_evaluation_is_given_up_when_the_run_shall_stop(start, configure) -> None:
    import signal

    path = configure("3DBall", max_steps=100_000)
    path.write_text(path.read_text() + "evaluation: {every_steps: 50, episodes: 1000000}\n")
    run = start("learn", path, "--env=sim:3dball", "--run-id=long", "--debug")
    run.until("Connected new brain")
    run.until("Connected to ")  # the evaluation's own
    run.signal(signal.SIGINT)
    run.until("The evaluation was given up.")
    assert run.end() == 0
    assert Path("results/long/3DBall/checkpoint.safetensors").is_file()
