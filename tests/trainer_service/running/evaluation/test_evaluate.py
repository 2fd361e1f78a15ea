"""``mlagents-style evaluate``, and how it counts."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml
from pursuit_groups import member

from trainer_service.learning.rollout.episode_scores import LEAST_PATIENCE, EpisodeLedger
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import StepBatch


def tick(
    deciding: Sequence[int], rewards: Sequence[float], ended: Sequence[int] = (), last: Sequence[float] = ()
) -> StepBatch:
    """Agents that ended with their last rewards, and agents that decide with the reward before."""

    def rows(agents: Sequence[int], values: Sequence[float], over: bool) -> StepBatch:
        return step_batch(
            [np.zeros((len(agents), 1), np.float32)],
            np.array(values, np.float32),
            agent_ids=np.array(agents, np.int64),
            allowed_actions=np.ones((len(agents), 0), np.bool_),
            terminated=np.full(len(agents), over),
        )

    return concatenate(rows(ended, last, True), rows(deciding, rewards, False))


def test_a_return_is_the_sum_of_the_episodes_rewards() -> None:
    ledger = EpisodeLedger(1)
    ledger.observe(0, 0, tick([7], [99.0]))  # before any decision: nobody's reward
    ledger.observe(0, 0, tick([7], [1.0]))
    ledger.observe(0, 0, tick([7], [50.0], ended=[7], last=[2.0]))
    assert ledger.complete
    assert ledger.score().returns == (3.0,)
    assert ledger.score().lengths == (2,)


def test_the_first_episodes_to_start_count() -> None:
    # Agent 1 falls at every decision, agent 2 goes on for four. Of the two episodes that start first, one is
    # the long one: the mean is (1 + 4)/2, where the first two that end would give 1.
    ledger = EpisodeLedger(2)
    ledger.observe(0, 0, tick([1, 2], [0.0, 0.0]))
    for _ in range(3):
        ledger.observe(0, 0, tick([1, 2], [0.0, 1.0], ended=[1], last=[1.0]))
        assert not ledger.complete
    ledger.observe(0, 0, tick([], [], ended=[1, 2], last=[1.0, 1.0]))
    assert ledger.complete
    assert ledger.score().returns == (1.0, 4.0)
    assert ledger.score().to_json()["mean_length"] == 2.5


def test_agents_of_a_team_are_scored_by_behavior() -> None:
    ledger = EpisodeLedger(3, (member("Leader", 1), member("Runner", 2)))

    def of_team(batch: StepBatch) -> StepBatch:
        return replace(batch, members=(batch.agent_ids > 0).astype(np.int64), group_ids=np.ones(3, np.int64))

    ledger.observe(0, 0, of_team(tick([0, 1, 2], [0.0, 0.0, 0.0])))
    ledger.observe(0, 0, of_team(tick([], [], ended=[0, 1, 2], last=[5.0, 1.0, 2.0])))
    score = ledger.score()
    assert score.member_returns == {"Leader": (5.0,), "Runner": (1.0, 2.0)}
    assert score.group_returns == (8.0,)
    assert score.to_json()["members"] == {
        "Leader": {"episodes": 1, "mean_return": 5.0, "std_return": 0.0},
        "Runner": {"episodes": 2, "mean_return": 1.5, "std_return": 0.5},
    }


def test_agents_that_change_places_keep_their_episodes() -> None:
    ledger = EpisodeLedger(2)
    ledger.observe(0, 0, tick([1, 2], [0.0, 0.0]))
    ledger.observe(0, 0, tick([2, 1], [20.0, 10.0]))
    ledger.observe(0, 0, tick([], [], ended=[2, 1], last=[2.0, 1.0]))
    assert ledger.score().returns == (11.0, 22.0)


def of_group(group: int, batch: StepBatch, shared: float = 0.0) -> StepBatch:
    rows = len(batch)
    return replace(batch, group_ids=np.full(rows, group), group_rewards=np.full(rows, shared, np.float32))


def test_groups_started_with_counted_agents_count() -> None:
    ledger = EpisodeLedger(2)
    ledger.observe(0, 0, of_group(7, tick([1, 2], [0.0, 0.0])))
    ledger.observe(0, 0, of_group(7, tick([2], [1.0], ended=[1], last=[1.0]), shared=10.0))
    ledger.observe(0, 0, of_group(7, tick([2, 3], [1.0, 9.0]), shared=10.0))  # the third agent does not count
    ledger.observe(0, 0, of_group(7, tick([3], [1.0], ended=[2], last=[1.0]), shared=10.0))
    assert ledger.num_ended == 2
    assert not ledger.complete  # the group lives on in the third
    ledger.observe(0, 0, of_group(7, tick([3], [0.0], ended=[3], last=[1.0]), shared=10.0))
    assert ledger.complete
    ledger.observe(0, 0, of_group(7, tick([], [], ended=[3], last=[500.0])))  # began too late
    score = ledger.score().to_json()
    assert (score["mean_return"], score["mean_length"]) == (2.0, 2.0)
    assert (score["group_episodes"], score["mean_group_return"], score["std_group_return"]) == (1, 46.0, 0.0)


def test_groups_that_never_end_are_not_waited_for_for_ever() -> None:
    ledger = EpisodeLedger(2)
    ledger.observe(0, 0, of_group(7, tick([1, 2], [0.0, 0.0])))
    turns = 0
    while not ledger.complete:
        turns += 1
        ending = 1 + turns % 2  # there is always one of the two that lives
        ledger.observe(0, 0, of_group(7, tick([1, 2], [0.0, 0.0], ended=[ending], last=[1.0])))
    assert LEAST_PATIENCE < turns < 2 * LEAST_PATIENCE
    assert ledger.num_endless == 1
    assert ledger.score().to_json()["group_episodes"] == 0


def test_teams_that_play_each_other_are_scored_apart() -> None:
    ledger = EpisodeLedger(4)
    for team in (0, 1):
        ledger.observe(0, team, of_group(7 + team, tick([1 + team, 3 + team], [0.0, 0.0])))
    for team, reward in ((0, 3.0), (1, -2.0)):
        ended = tick([], [], ended=[1 + team, 3 + team], last=[reward, reward])
        ledger.observe(0, team, of_group(7 + team, ended, shared=reward))
    score = ledger.score()
    assert score.value == (9.0 - 6.0) / 2
    result = score.to_json()
    assert (result["episodes"], result["mean_return"], result["mean_group_return"]) == (4, 0.5, 1.5)
    for team, mean in (("0", 3.0), ("1", -2.0)):
        of_team = result["teams"][team]
        assert (of_team["episodes"], of_team["mean_return"], of_team["std_return"]) == (2, mean, 0.0)
        assert (of_team["group_episodes"], of_team["mean_group_return"]) == (1, 3 * mean)
        assert "teams" not in of_team


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """A results folder with a run that was hardly trained, only to be read."""
    from trainer_service.cli import main

    folder = tmp_path_factory.mktemp("evaluated")
    settings = {"trainer_type": "ppo", "max_steps": 30, "network_settings": {"hidden_units": 8}}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"behaviors": {"Basic": settings}}))
    results = folder / "results"
    line = ["learn", str(config), "--env=sim:basic", "--run-id=walker_01", f"--results-dir={results}"]
    assert main([*line, "--seed=1", "--env-args", "--agents", "4"]) == 0
    return results


def test_json_is_one_object_and_nothing_else(mlagents_style, results: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in results.rglob("*")}
    said = mlagents_style(
        "evaluate", "walker_01", "--results-dir", results, "--episodes=7", "--stochastic", "--json"
    )
    assert said.code == 0, said.err
    (line,) = said.out.splitlines()
    result = json.loads(line)
    assert list(result) == ["run_id", "step", "behaviors", "interrupted"]
    assert (result["run_id"], result["step"], result["interrupted"]) == ("walker_01", 32, False)
    assert list(result["behaviors"]) == ["Basic"]
    score = result["behaviors"]["Basic"]
    assert list(score) == [
        "episodes", "mean_return", "std_return", "mean_length",
        "mean_group_return", "std_group_return", "group_episodes",
    ]  # fmt: skip
    assert score["episodes"] == 7
    assert -2.01 <= score["mean_return"] <= 0.94
    assert score["mean_group_return"] is None
    # A policy that was hardly trained walks at random: no two episodes alike.
    assert score["std_return"] > 0
    assert {path: path.stat().st_mtime_ns for path in results.rglob("*")} == before


def evaluate(mlagents_style, results: Path, *flags: str) -> dict[str, float]:
    said = mlagents_style("evaluate", "walker_01", "--results-dir", results, "--episodes=4", "--json", *flags)
    assert said.code == 0, said.err
    score: dict[str, float] = json.loads(said.out)["behaviors"]["Basic"]
    return score


def test_cut_episodes_are_counted_for_people_and_programs(mlagents_style, results: Path) -> None:
    score = evaluate(mlagents_style, results, "--max-episode-steps=5")
    assert (score["cut_episodes"], score["mean_length"]) == (4, 5.0)  # nothing of basic is nearer than that
    line = ("evaluate", "walker_01", "--results-dir", results, "--episodes=4", "--max-episode-steps=5")
    assert "mean length 5.0 (4 of them cut at the limit of steps)" in mlagents_style(*line).out


def test_the_trainings_environment_keeps_its_arguments_by_default(mlagents_style, configure) -> None:
    config = configure("Switch2", trainer_type="ppo", max_steps=30, network_settings={"hidden_units": 8})
    said = mlagents_style("learn", config, "--env=sim:switch2", "--run-id=timed", "--env-args", "--clock")
    assert said.code == 0, said.err
    # Who was trained with a clock can do nothing without.
    said = mlagents_style("evaluate", "timed", "--env=sim:switch2", "--episodes=1")
    assert said.code == 0, said.err
    said = mlagents_style(
        "evaluate", "timed", "--env=sim:switch2", "--episodes=1", "--env-args", "--copies", 2
    )
    assert said.code == 2
    assert "behavior 'Switch2' is not what its policy was trained for" in said.err


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (["walker_1"], "did you mean 'walker_01'?"),
        (["walker_01", "--episodes=0"], "--episodes: expected at least 1, got 0"),
        (["walker_01", "--record=walk.png"], "expected a .gif or .mp4 file, got 'walk.png'"),
        (["walker_01", "--record=no/such/walk.gif"], "there is no folder"),
        (
            ["walker_01", f"--env={sys.executable}", "--record=walk.gif"],
            "only bundled environments can be recorded",
        ),
        (
            ["walker_01", "--torch-device=abacus"],
            "torch device 'abacus': expected cpu, cuda, cuda:N, mps or auto",
        ),
    ],
)
def test_what_cannot_be_evaluated_is_named(
    mlagents_style, results: Path, line: list[str], expected: str
) -> None:
    said = mlagents_style("evaluate", *line, "--results-dir", results)
    assert said.code == 2
    assert expected in said.err
    assert said.out == ""
    assert "Traceback" not in said.err
