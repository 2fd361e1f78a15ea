"""Runs without a configuration, and the command ``suggest``."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import yaml
from goal_environments import PointReach

import trainer_service
from trainer_service.commands.suggest.start import with_copies
from trainer_service.config import parse_run_options

pytestmark = pytest.mark.process
SHORT = ("--set", "default_settings.max_steps=600", "--seed=1")


def configuration(run: Path) -> dict:
    return yaml.safe_load((run / "configuration.yaml").read_text())


def test_suggest_prints_a_configuration_and_nothing_else(mlagents_style, workplace: Path) -> None:
    said = mlagents_style("suggest", "--env=sim:3dball")
    assert said.code == 0, said.err
    loaded = parse_run_options(yaml.safe_load(said.out))
    assert not loaded.warnings
    assert loaded.options.env_settings.env_path == "sim:3dball"
    assert loaded.options.behaviors["3DBall"].trainer_type == "ppo"
    assert "# continuous actions" in said.out
    assert not (workplace / "results").exists()


def test_learn_without_a_configuration_trains_as_suggested(mlagents_style, workplace: Path) -> None:
    said = mlagents_style("learn", "--env=sim:basic", "--run-id=own", *SHORT)
    assert said.code == 0, said.err
    run = workplace / "results" / "own"
    suggested = yaml.safe_load((run / "suggested.yaml").read_text())
    used = configuration(run)["behaviors"]["Basic"]
    assert (
        used["hyperparameters"]["batch_size"]
        == suggested["behaviors"]["Basic"]["hyperparameters"]["batch_size"]
    )
    assert used["max_steps"] == 600
    assert configuration(run)["env_settings"]["env_args"] == ["--agents", "8"]
    assert "Suggested for Basic: trainer_type: ppo (discrete actions" in said.out


def test_a_resumed_run_keeps_its_suggestion(mlagents_style, workplace: Path) -> None:
    line = ("learn", "--env=sim:basic", "--run-id=own", "--seed=1", "--set")
    assert mlagents_style(*line, "behaviors.Basic.max_steps=600").code == 0
    suggested = configuration(workplace / "results" / "own")["behaviors"]["Basic"]["hyperparameters"]
    said = mlagents_style(*line, "behaviors.Basic.max_steps=900", "--resume")
    assert said.code == 0, said.err
    used = configuration(workplace / "results" / "own")["behaviors"]["Basic"]
    assert (used["hyperparameters"], used["max_steps"]) == (suggested, 900)
    assert "Suggested for" not in said.out


@pytest.mark.parametrize("env", [(), ("--env=sim:basic",)])
def test_a_run_resumed_without_its_configuration_keeps_it(
    env: tuple[str, ...], mlagents_style, configure, workplace: Path
) -> None:
    config = configure("Basic", max_steps=100, hyperparameters={"batch_size": 16, "buffer_size": 64})
    assert mlagents_style("learn", config, "--env=sim:basic", "--run-id=own").code == 0
    before = configuration(workplace / "results" / "own")
    said = mlagents_style(
        "learn", *env, "--run-id=own", "--resume", "--set", "default_settings.max_steps=200"
    )
    assert said.code == 0, said.err
    before["behaviors"]["Basic"]["max_steps"] = 200
    assert configuration(workplace / "results" / "own") == before


def test_settings_of_the_command_line_are_those_of_the_suggested_trainer_type(
    mlagents_style, workplace: Path
) -> None:
    line = ("learn", "--env=gym:Pendulum-v1", "--run-id=own", "--seed=1", "--set")
    said = mlagents_style(*line, "default_settings.hyperparameters.buffer_init_steps=150", "--max-steps=200")
    assert said.code == 0, said.err
    behavior = "behaviors.Pendulum-v1"
    said = mlagents_style(*line, f"{behavior}.hyperparameters.policy_delay=2", "--max-steps=250", "--resume")
    assert said.code == 0, said.err
    used = configuration(workplace / "results" / "own")["behaviors"]["Pendulum-v1"]["hyperparameters"]
    assert (used["buffer_init_steps"], used["policy_delay"]) == (150, 2)
    line = ("learn", "--env=gym:Pendulum-v1", "--run-id=plain", "--no-suggest", "--set")
    said = mlagents_style(*line, f"{behavior}.hyperparameters.policy_delay=2")
    assert said.code == 2
    assert "unknown key: 'policy_delay' is a key of sac, crossq, td3, not of ppo" in said.err


def test_a_run_without_its_configuration_needs_one(mlagents_style, configure, workplace: Path) -> None:
    config = configure("Basic", max_steps=100, hyperparameters={"batch_size": 16, "buffer_size": 64})
    assert mlagents_style("learn", config, "--env=sim:basic", "--run-id=own").code == 0
    written = workplace / "results/own/configuration.yaml"
    written.unlink()
    said = mlagents_style("learn", "--env=sim:basic", "--run-id=own", "--resume")
    assert said.code == 2
    assert "configuration.yaml' is missing; pass the configuration of the run to learn" in said.err
    assert not written.exists()


def test_a_taken_run_id_is_refused_before_the_environment_is_looked_at(
    mlagents_style, configure, workplace: Path
) -> None:
    config = configure("Basic", max_steps=100)
    assert mlagents_style("learn", config, "--env=sim:basic", "--run-id=own").code == 0
    said = mlagents_style("learn", "--env=sim:basic", "--run-id=own")
    assert said.code == 2
    assert "run id 'own' is taken" in said.err
    assert "Suggested for" not in said.out


def test_no_suggest_keeps_the_defaults(mlagents_style, workplace: Path) -> None:
    said = mlagents_style("learn", "--env=sim:basic", "--no-suggest", "--run-id=plain", *SHORT)
    assert said.code == 0, said.err
    run = workplace / "results" / "plain"
    assert configuration(run)["default_settings"]["hyperparameters"]["batch_size"] == 1024
    assert not (run / "suggested.yaml").exists()


def test_train_looks_at_an_object(tmp_path: Path) -> None:
    outcome = trainer_service.train(
        env=lambda: gymnasium.make("CartPole-v1"), run_id="object", results_dir=tmp_path, seed=1,
        max_env_steps=300, verbose=0,
    )  # fmt: skip
    text = (outcome.folder / "suggested.yaml").read_text()
    assert "trainer_type: ppo" in text
    assert "env_path" not in text, "an object has no name that another program could open"


class NoReward(PointReach):
    """An environment that states goals, and does not say what they pay."""

    def step(self, action: Any) -> Any:
        self.move(action)
        self.count += 1
        return self.seen(), -float(np.linalg.norm(self.position - self.goal)), False, self.count >= 30, {}

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("compute_"):
            raise AttributeError(name)
        return super().__getattribute__(name)


class PartOfReward(PointReach):
    def step(self, action: Any) -> Any:
        seen, reward, *rest = super().step(action)
        return seen, reward - 0.1 * float(np.abs(action).sum()), *rest


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (NoReward, "expected a method compute_reward"),
        (PartOfReward, "to return what step() pays"),
        (PointReach, ""),
    ],
)
def test_hindsight_is_suggested_where_it_can_be_used(
    make: Any, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer_service.commands.suggest.probe.MOST_MESSAGES", 400)
    suggested = trainer_service.suggest(env=make)
    used = yaml.safe_load(suggested)["behaviors"][make.__name__]
    assert ("replay" in used["hyperparameters"]) == (not why)
    assert why in suggested
    assert not why or "its goals cannot be replaced: python:" in suggested
    trainer_service.train(
        env=make, run_id="goals", results_dir=tmp_path, seed=1, max_env_steps=300, verbose=0
    )


@pytest.mark.parametrize("message_s", [0.06, 0.1])
def test_a_slow_environment_is_looked_at_for_less_messages(
    message_s: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ticks = itertools.count()
    clock = SimpleNamespace(perf_counter=lambda: next(ticks) * message_s)
    monkeypatch.setattr("trainer_service.commands.suggest.probe.time", clock)
    with caplog.at_level(logging.INFO, "trainer_service"):
        suggested = trainer_service.suggest("sim:basic")
    assert "about half a minute" in caplog.messages[0]
    assert "# Suggested after 256 messages of random actions." in suggested


def test_a_simulator_that_attaches_is_looked_at_on_demand(start, program, free_port: int) -> None:
    run = start("learn", "--suggest", f"--port={free_port}", "--run-id=attached")
    run.until("A simulator is needed to suggest settings for: start it now.")
    first = start("--mlagents-port", free_port, program=program("treadmill"))
    run.until("Suggested for Treadmill: trainer_type: ppo")
    run.until("Start the simulator again to train.")
    first.end()
    run.until(f"Listening on port {free_port}.")
    start("--mlagents-port", free_port, program=program("treadmill"))
    run.until("Connected new brain: Treadmill?team=0")


@pytest.mark.parametrize(
    ("env", "given", "arguments"),
    [
        ("gym:CartPole-v1", (), ("--agents", "8")),
        ("gym:CartPole-v1", ("--agents", "2"), ("--agents", "2")),
        ("gym:CartPole-v1", ("--vector=async",), ("--vector=async",)),
        ("pettingzoo:x", ("--aec",), ("--aec", "--copies", "16")),
        ("sim:basic", (), ("--agents", "8")),
        ("sim:3dball", (), ()),
        ("sim:spread", (), ()),
        ("builds/Game.x86_64", (), ()),
    ],
)
def test_few_agents_get_company(env: str, given: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    assert with_copies(env, given) == arguments
