"""Learners of MPE's games against each other: what is run, and the tables that come of it."""

from __future__ import annotations

from pathlib import Path

import opponent_results
import pytest
from marl.opponents import (
    TASKS,
    Encounter,
    Task,
    encounter_of,
    encounters_of,
    merged,
    tables,
)
from marl.page import ENCOUNTERS
from marl.rows import COMPARED, ROWS
from measuring.scored_runs import CHECKOUT
from measuring.scores import read_lines, write_lines

from trainer_service.cli import main

TASK = {task.name: task for task in TASKS}
CONFIGS = [path for task in TASKS for path in task.configs.values()]
ADVERSARY = "simple_adversary_v3_adversary"


@pytest.mark.parametrize("config", CONFIGS)
def test_every_configuration_is_sound(config: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", str(CHECKOUT / config)]) == 0
    assert "ok" in capsys.readouterr().out


def test_every_configuration_beside_the_benchmarks_is_of_one() -> None:
    there = {f"{COMPARED}/{path.name}" for path in (CHECKOUT / COMPARED).iterdir()}
    used = {*CONFIGS, *(row.config for row in ROWS)}
    assert there == {path for path in used if path.startswith(COMPARED)}


def test_a_learner_plays_everyone_itself_and_chance() -> None:
    command = TASK["push"].evaluate("ippo", 2, 1000)
    assert command[:8] == [
        "evaluate", "push_ippo-2", "--against", "push_ippo-2", "push_dqn-2", "push_mappo-2", "push_maddpg-2", "random",
    ]  # fmt: skip
    assert TASK["push"].evaluate("random", 2, 1000)[1:4] == ["random", "--against", "push_ippo-2"]
    assert "random" not in TASK["push"].evaluate("random", 2, 1000)[3:]


def test_behaviors_of_one_side_are_of_one_team() -> None:
    task = TASK["world_comm"]
    command = task.evaluate("vdn", 1, 200)
    assert command[-2:] == [
        "--behaviors",
        "leadadversary_*=simple_world_comm_v3_leadadversary?team=0,"
        "adversary_*=simple_world_comm_v3_adversary?team=0,agent_*=simple_world_comm_v3_agent?team=1",
    ]
    said = {"matches": [{"opponent": "random", "sides": {"1": {"games": 100, "mean_return": -9.0}}}]}
    (found,) = encounters_of(task, "vdn", 1, said)
    assert (found.side, found.opponent) == ("simple_world_comm_v3_agent", "random")


def test_sides_are_told_apart_in_what_evaluate_says() -> None:
    sides = {ADVERSARY: {"games": 500, "mean_return": -14.0}, "other": {"games": 500, "mean_return": 10.0}}
    said = {"matches": [{"opponent": "adversary_vdn-3", "sides": sides}, {"opponent": "random", "sides": {}}]}
    assert encounters_of(TASK["adversary"], "ippo", 3, said) == [
        Encounter("adversary", ADVERSARY, "ippo", "vdn", 3, 500, -14.0),
        Encounter("adversary", "other", "ippo", "vdn", 3, 500, 10.0),
    ]


def test_games_that_were_played_anew_replace_those_of_their_task_and_seed() -> None:
    old = [
        Encounter("push", "a", "ippo", other, seed, 1, 0.0) for other in ("dqn", "gone") for seed in (1, 2)
    ]
    new = [Encounter("push", "a", "ippo", "dqn", 1, 1, 5.0)]
    assert merged(old, new) == [new[0], old[1], old[3]]


def test_encounters_are_read_as_they_were_written(tmp_path: Path) -> None:
    encounters = [Encounter("push", "a", "ippo", "dqn", 1, 500, -1.25)]
    assert read_lines(tmp_path / "none.jsonl", encounter_of) == []
    write_lines(tmp_path / "some.jsonl", encounters)
    assert read_lines(tmp_path / "some.jsonl", encounter_of) == encounters


def test_a_table_has_means_over_seeds_and_leaves_chance_out_of_the_last_column() -> None:
    everyone = ["ippo", "dqn", "mappo", "maddpg", "random"]
    found = [
        Encounter("push", "a", "ippo", other, seed, 1, float(-10 * seed - i))
        for seed in (1, 2)
        for i, other in enumerate(everyone)
    ]
    head, _, ippo, dqn, *_ = tables(found).splitlines()
    assert head == "| `a` | ippo | dqn | mappo | maddpg | random | trained opponents |"
    # 1: -10 -11 -12 -13, mean -11.5; 2: -20 to -23, mean -21.5
    assert ippo == "| ippo | −15.0 | −16.0 | −17.0 | −18.0 | −19.0 | −16.5 ± 7.1 |"
    assert dqn == "| dqn |  |  |  |  |  |  |"


def test_kept_games_are_of_the_tasks_learners() -> None:
    kept = read_lines(ENCOUNTERS, encounter_of)
    assert kept == merged([], kept)
    for each in kept:
        assert {each.learner, each.opponent} <= {*TASK[each.task].configs, "random"}


@pytest.mark.process
def test_a_task_is_trained_played_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "small.yaml"
    behaviors = (
        f"simple_push_v3_{side}: {{trainer_type: ppo, max_steps: 100, network_settings: {{hidden_units: 8}}, "
        "hyperparameters: {batch_size: 16, buffer_size: 32}}"
        for side in ("adversary", "agent")
    )
    config.write_text(f"behaviors: {{{', '.join(behaviors)}}}\n")
    task = Task("push", "pettingzoo:mpe2.simple_push_v3", {"ippo": str(config)})
    monkeypatch.setattr(opponent_results, "EPISODES", 4)
    assert opponent_results.learn(task, "ippo", 1, tmp_path).startswith("push_ippo-1: trained in ")
    assert opponent_results.play(task, 1, tmp_path) == "push, seed 1: 6 encounters"
    found = read_lines(opponent_results.kept(task, 1, tmp_path), encounter_of)
    pairs = {("ippo", "ippo"), ("ippo", "random"), ("random", "ippo")}
    assert {(each.learner, each.opponent) for each in found} == pairs
    assert opponent_results.play(task, 1, tmp_path) == "push, seed 1: played already"
