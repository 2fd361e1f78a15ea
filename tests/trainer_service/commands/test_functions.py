"""The functions that a program calls, on a run that they made."""

from __future__ import annotations

import importlib
import json
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from notebook_cells import run_cell
from PIL import Image, ImageSequence

import trainer_service
from trainer_service.commands.common.environments import environment_for
from trainer_service.errors import ConfigError, UserError
from unity_bridge.errors import LaunchError

pytestmark = pytest.mark.process

QUICK = {
    "trainer_type": "ppo",
    "max_steps": 400,
    "summary_freq": 200,
    "hyperparameters": {"batch_size": 64, "buffer_size": 128},
}


CELL = run_cell()
Walk = CELL["Walk"]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> trainer_service.Outcome:
    """A short run on two copies of an environment that a notebook defines."""
    return trainer_service.train(
        QUICK, env=Walk, env_kwargs={"goal": 1.0}, env_args=["--copies", "2"], run_id="walk", seed=1,
        results_dir=tmp_path_factory.mktemp("results"),
    )  # fmt: skip


def test_stepping_by_hand_gives_what_evaluate_gives(run: trainer_service.Outcome) -> None:
    scores = trainer_service.evaluate(run, Walk(goal=1.0), env_args=[], episodes=4, seed=11)
    env = Walk(goal=1.0)
    agent = trainer_service.load_policy(run).wrap(env)
    returns = []
    for episode in range(4):
        observation, _ = env.reset(seed=11 if episode == 0 else None)
        over, total = False, 0.0
        while not over:
            action, _ = agent.predict(observation)
            observation, reward, _, over, _ = env.step(action)
            total += float(reward)
        returns.append(total)
    assert scores["Walk"].returns == pytest.approx(returns, rel=1e-5)
    assert scores["Walk"].mean_return == pytest.approx(np.mean(returns), rel=1e-5)


def test_metrics_are_columns_of_equal_length(run: trainer_service.Outcome) -> None:
    table = trainer_service.load_metrics(run)
    assert table["behavior"].tolist() == ["Walk"] * 2
    assert table["step"].tolist() == [200, 400]
    assert np.isnan(table["mean_group_return"]).all()
    assert {len(column) for column in table.values()} == {2}
    assert trainer_service.load_metrics(run, "Walk").keys() == table.keys()
    with pytest.raises(UserError, match="no summary of behavior 'Run'; it has those of Walk"):
        trainer_service.load_metrics(run, "Run")


def test_a_film_is_as_long_as_its_episodes(run: trainer_service.Outcome, tmp_path: Path) -> None:
    path = trainer_service.record(run, tmp_path / "film.gif", Walk, env_kwargs={"goal": 1.0}, episodes=2)
    with Image.open(path) as film:
        seconds = sum(frame.info["duration"] for frame in ImageSequence.Iterator(film)) / 1000
    assert seconds == pytest.approx(2 * 10 / 10, abs=0.25)  # ten steps each, ten of them a second
    with pytest.raises(UserError, match=r"expected a \.gif or \.mp4 file"):
        trainer_service.record(run, tmp_path / "film.txt", Walk)


def test_a_run_goes_on_with_the_object_and_survives_its_death(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    died = tmp_path / "died"
    brittle = CELL["Brittle"](str(died))
    with ThreadPoolExecutor(1) as pool:  # and in a thread of its own, where no signals are heard
        for step, resume in ((100, False), (200, True)):
            outcome = pool.submit(
                trainer_service.train, {**QUICK, "max_steps": step}, brittle, run_id="brittle",
                results_dir=tmp_path, resume=resume, isolate=True,
            ).result()  # fmt: skip
            assert outcome.steps["Brittle"] >= step
    assert died.exists()
    assert sum("exited with code 3" in record.message for record in caplog.records) == 1


def test_what_was_an_object_is_asked_for_again(run: trainer_service.Outcome) -> None:
    with pytest.raises(LaunchError, match="'python:Walk': it was an object of a Python program") as refusal:
        trainer_service.evaluate(run)
    with pytest.raises(
        LaunchError, match="name another environment \\(env= in Python, --env on a command line\\)"
    ):
        trainer_service.record(run, "walk.gif")
    assert "pass it as env= in Python" in str(refusal.value)


def test_ids_stand_for_what_is_registered_here() -> None:
    assert environment_for("CartPole-v1").env_path == "gym:CartPole-v1"
    gymnasium.register("Walk-v8", entry_point=Walk)
    try:
        assert environment_for("Walk-v8").env_path == "python:Walk-v8"
    finally:
        del gymnasium.registry["Walk-v8"]
    assert environment_for("Walk-v8").env_path == "Walk-v8"  # a path, for all that is known here


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ("Checkers-v7", "gymma:Checkers-v7"),
        ("ma_gym:Checkers-v7", "gymma:ma_gym:Checkers-v7"),
        ("MiniGrid-Yard-v0", "gym:MiniGrid-Yard-v0"),
        ("Combat", "Combat"),  # a build's path, for all that is known
        ("my_gym:Checkers-v7", "my_gym:Checkers-v7"),
    ],
)
def test_ids_of_known_libraries_need_no_prefix(env: str, path: str) -> None:
    assert environment_for(env).env_path == path


@pytest.mark.parametrize("way", ["id", "object", "class"])
def test_lists_of_agents_train_without_a_prefix_and_without_warnings(
    way: str, tmp_path: Path, repository: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.syspath_prepend(repository / "tests" / "programs")
    listed = importlib.import_module("foragers").OldForagers
    env = {"id": "WithLists-v0", "object": listed(), "class": listed}[way]
    gymnasium.register("WithLists-v0", entry_point=importlib.import_module("foragers").WithLists)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            outcome = trainer_service.train(QUICK, env, run_id="l", results_dir=tmp_path)
    finally:
        del gymnasium.registry["WithLists-v0"]
    assert min(outcome.steps.values()) >= 400
    [row, *_] = (json.loads(line) for line in (outcome.folder / "metrics.jsonl").read_text().splitlines())
    assert row["mean_group_return"] > row["mean_return"]


def test_what_is_no_environment_is_named() -> None:
    with pytest.raises(UserError, match=r"env: expected a text as for --env, a path, .* got 5"):
        trainer_service.train(QUICK, env=5)
    with pytest.raises(UserError, match="env_kwargs: expected what JSON can say"):
        trainer_service.train(QUICK, env="gym:CartPole-v1", env_kwargs={"goal": object()}, run_id="none")
    workers = {"default_settings": QUICK, "distributed": {"num_workers": 1}}
    with pytest.raises(ConfigError, match=r"'python:Walk' is an object of this program.*gym:MODULE:FUNCTION"):
        trainer_service.train(workers, env=Walk, run_id="none")


def test_the_best_policy_is_loaded_by_name(tmp_path: Path) -> None:
    """Sections of a file may stand beside the settings of a behavior."""
    settings = {**QUICK, "evaluation": {"every_steps": 100, "episodes": 2}, "checkpoint_interval": 100}
    outcome = trainer_service.train(settings, Walk, run_id="e", seed=1, results_dir=tmp_path)
    scores = [json.loads(line) for line in (outcome.folder / "evaluations.jsonl").read_text().splitlines()]
    best = max(scores, key=lambda each: each["mean_return"])["step"]
    assert trainer_service.load_policy(outcome, checkpoint="best").step == best
    assert trainer_service.load_policy(outcome).step >= 400
    with pytest.raises(UserError, match="has no checkpoint of step 7"):
        trainer_service.load_policy(outcome, checkpoint=7)
    [score] = trainer_service.evaluate(outcome, Walk, checkpoint=best, episodes=2).values()
    assert len(score.returns) == 2


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 2)])
def test_a_run_shows_as_much_as_is_asked_for(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], verbose: int, lines: int
) -> None:
    trainer_service.train(QUICK, Walk, run_id="v", results_dir=tmp_path, verbose=verbose)
    shown = capfd.readouterr()
    assert shown.err == ""
    assert len(shown.out.splitlines()) == lines
    assert all("Walk. Step: " in line for line in shown.out.splitlines())


def test_words_of_stable_baselines_are_told_in_ours() -> None:
    with pytest.raises(TypeError, match=r"'total_timesteps': that of Stable-Baselines3 is max_steps here"):
        trainer_service.train(QUICK, Walk, total_timesteps=100)  # type: ignore[call-arg]
    with pytest.raises(
        UserError, match=r"config: 'PPO' is a trainer type; write train\(\{\"trainer_type\": \"ppo\"\}"
    ):
        trainer_service.train("PPO", Walk)
    with pytest.raises(ConfigError, match=r"n_epochs: unknown key .*hyperparameters.num_epoch here"):
        trainer_service.train({**QUICK, "n_epochs": 4}, Walk)
    with pytest.raises(
        ConfigError, match=r"max_steps: unknown key; settings of one behavior need 'trainer_type'"
    ):
        trainer_service.train({"max_steps": 600}, Walk)


def test_an_argument_stands_in_the_place_of_its_flag(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no run 'x' in .*\. Remove resume=True to train a new run\."):
        trainer_service.train(
            "basic", env="sim:basic", run_id="x", resume=True, results_dir=tmp_path, verbose=0
        )


def test_a_taken_run_id_is_answered_with_arguments(tmp_path: Path) -> None:
    folder = tmp_path / "x" / "Basic"
    folder.mkdir(parents=True)
    (folder / "checkpoint.safetensors").write_bytes(b"")
    with pytest.raises(
        UserError, match=r"choose a new run_id=, use resume=True to .* or use force=True to overwrite"
    ):
        trainer_service.train("basic", env="sim:basic", run_id="x", results_dir=tmp_path, verbose=0)
