"""Runs of teams of several behaviors, as users start them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from exported_models import assert_model_acts_as_policy

from trainer_service import load_policy

SPEAKER, LISTENER = (f"simple_speaker_listener_v4_{role}" for role in ("speaker", "listener"))
ENV = ("--env=pettingzoo:mpe2.simple_speaker_listener_v4",)
PURSUIT = {"Pursuit": {"Leader": 1, "Runner": 2}}
SMALL: dict[str, dict[str, Any]] = {
    "mappo": {"batch_size": 18, "buffer_size": 72, "num_epoch": 1},
    "maddpg": {"batch_size": 16, "buffer_size": 500, "buffer_init_steps": 20, "save_replay_buffer": True},
}
EPISODE = 36
"""Steps of all agents of the pursuit's two groups in an episode."""


@pytest.fixture
def learn(mlagents_style) -> Callable[..., Any]:
    def run(
        trainer_type: str,
        env: Sequence[str],
        run_id: str,
        max_steps: int,
        *flags: str,
        teams: dict[str, Any],
        **sections: Any,
    ) -> Any:
        settings = {
            "trainer_type": trainer_type,
            "hyperparameters": {"learning_rate_schedule": "constant", **SMALL[trainer_type]},
            "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
            "max_steps": max_steps,
            "time_horizon": 25,
            "summary_freq": max_steps // 2,
            "checkpoint_interval": max_steps // 2,
        }
        content = {"teams": teams, "default_settings": settings, **sections}
        Path("config.yaml").write_text(yaml.safe_dump(content))
        return mlagents_style("learn", "config.yaml", f"--run-id={run_id}", "--seed=3", *flags, *env)

    return run


def test_a_team_is_scored_listed_and_exported_by_member(learn, mlagents_style: Callable[..., Any]) -> None:
    evaluation = {"every_steps": 200, "episodes": 2}
    teams = {"Pair": [SPEAKER, LISTENER]}
    said = learn("mappo", ENV, "run", 200, teams=teams, evaluation=evaluation)
    assert said.code == 0, said.err
    run = Path("results/run")
    assert not (run / "Pair.onnx").exists()
    status = json.loads((run / "run_logs" / "training_status.json").read_text())
    assert status["Pair"]["final_checkpoint"]["file_path"] == "results/run/Pair/Pair-200.safetensors"
    last = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    for name in (SPEAKER, LISTENER):
        policy = load_policy(run, name)
        assert policy.num_agents == 0  # each is the only one of its kind
        assert_model_acts_as_policy(run / f"{name}.onnx", policy)
        assert (run / name / "best.onnx").is_file()
        assert status[name]["final_checkpoint"]["file_path"] == f"results/run/{name}.onnx"
        assert [each["steps"] for each in status[name]["checkpoints"]] == [100, 200]
        assert last["member_returns"][name] == pytest.approx(last["mean_return"])  # they are paid alike
        assert f"{name}: {last['mean_return']:.3f}" in said.err + said.out

    scored = mlagents_style("evaluate", "run", "--episodes=4", "--json")
    score = json.loads(scored.out)["behaviors"]["Pair"]
    assert {name: each["episodes"] for name, each in score["members"].items()} == {SPEAKER: 2, LISTENER: 2}
    assert score["mean_group_return"] == pytest.approx(2 * score["mean_return"])


def test_what_does_not_fit_a_team_is_said(learn, hosted: Callable[..., Sequence[str]]) -> None:
    def refused(teams: dict[str, Any]) -> str:
        said = learn("mappo", env, "run", 4 * EPISODE, "--resume", teams=teams)
        assert said.code == 2
        return str(said.err)

    env = hosted("pursuit")
    assert learn("mappo", env, "run", 2 * EPISODE, teams=PURSUIT).code == 0
    twisted = refused({"Pursuit": ["Runner", "Leader"]})
    assert "'Pursuit' was the team {Pursuit: [Leader, Runner]} under 'teams', and is the team" in twisted
    assert "is no team now" in refused({})
    grown = refused({"Pursuit": {"Leader": 1, "Runner": 3}})
    assert "at most [1, 2] agents of 'Leader', 'Runner', now [1, 3]" in grown
