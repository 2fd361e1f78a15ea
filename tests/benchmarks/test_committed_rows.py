"""What is committed beside the benchmarks fits together: rows, configurations, kept scores, and scripts that load."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from learning.cases import cases
from scores.opponents import ENCOUNTERS, TASKS, encounter_of, merged
from scores.peer import PPO
from scores.record import read_lines, score_of
from scores.rows import ROWS, SINGLE, Row
from scores.runs import KEPT

from trainer_service.config import TrainerSettings, load_run_options

CHECKOUT = Path(__file__).resolve().parents[2]
CONFIGS = {path for task in TASKS for path in task.configs.values()} | {row.config for row in ROWS}


@pytest.mark.parametrize("path", sorted((CHECKOUT / "benchmarks").glob("*.py")), ids=lambda path: path.stem)
def test_every_script_loads(path: Path) -> None:
    assert callable(importlib.import_module(path.stem).main)


@pytest.mark.parametrize("row", [row for row in SINGLE if row.task in PPO], ids=lambda row: row.name)
def test_rows_of_gymnasium_have_their_configuration_and_the_peers_values(row: Row) -> None:
    settings = load_run_options(CHECKOUT / row.config).options.behaviors[row.task]
    assert row.trained_on == f"gym:{row.task}"
    if settings.trainer_type == "ppo":
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
        shared = ours.keys() & theirs.keys()
        assert {key: ours[key] for key in shared} == {key: pytest.approx(theirs[key]) for key in shared}


@pytest.mark.parametrize("config", sorted(CONFIGS))
def test_configurations_of_rows_are_sound(config: str) -> None:
    assert load_run_options(CHECKOUT / config).warnings == ()


def test_kept_scores_are_of_rows_and_their_peers() -> None:
    names = {name for row in ROWS for name in (row.name, row.peer)}
    assert {score.row for score in read_lines(KEPT, score_of)} <= names
    learners = {task.name: {*task.configs, "random"} for task in TASKS}
    games = read_lines(ENCOUNTERS, encounter_of)
    assert games == merged([], games)
    assert all({each.learner, each.opponent} <= learners[each.task] for each in games)


def _keys(section: object) -> list[str]:
    if not isinstance(section, dict):
        return []
    return [*section, *(key for value in section.values() for key in _keys(value))]


def test_settings_of_learning_tests_are_valid() -> None:
    assert len({case.name for case in cases()}) == len(cases())
    for case in cases():
        settings = TrainerSettings.model_validate(case.settings)
        assert set(case.changes) <= set(_keys(settings.model_dump())), case.name
