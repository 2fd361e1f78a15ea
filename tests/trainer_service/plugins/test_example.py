"""The template in examples/plugin, installed and used as its README says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from behavior_worlds import flat
from exported_models import assert_model_acts_as_policy
from in_process_workers import learn_in_process, options_of
from installed_plugins import EXAMPLE, install_example
from run_files import assert_same_state, checkpoint

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute, make_learner
from trainer_service.learning.algorithms.common.learner import Learner
from trainer_service.running.policy import load_policy
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.registry import open_scene
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

A2C: Mapping[str, Any] = {
    "trainer_type": "a2c",
    "hyperparameters": {"batch_size": 64, "buffer_size": 128, "learning_rate_schedule": "constant"},
    "network_settings": {
        "hidden_units": 16, "num_layers": 1, "normalize": True, "encoder": "per_sensor",
        "encoder_kwargs": {"features": 8},
    },
    "reward_signals": {"extrinsic": {}, "curiosity": {"network_settings": {"hidden_units": 8}}},
    "time_horizon": 16,
    "max_steps": 400,
    "summary_freq": 200,
    "checkpoint_interval": 10**6,
}  # fmt: skip
"""Little work for everything that the algorithm can do."""


@pytest.fixture
def example(site: Path) -> None:
    install_example(site)


def test_the_algorithm_learns_resumes_plays_and_is_exported(
    example: None,
    mlagents_style: Callable[..., Any],
    configure: Callable[..., Path],
    hosted: Callable[..., Sequence[str]],
) -> None:

    def learn(run_id: str, steps: int, *flags: str) -> Any:
        configure("Treadmill", **{**A2C, "max_steps": steps})
        run = (f"--run-id={run_id}", "--seed=5", "--hooks=best_return", *flags, *hosted("treadmill"))
        said = mlagents_style("learn", "config.yaml", *run)
        assert said.code == 0, said.err
        return said

    learn("straight", 432)
    learn("parted", 216)
    assert "Plugin algorithms.a2c of example-plugin 0.1.0." in learn("parted", 432, "--resume").out
    assert_same_state("parted", "straight", "Treadmill")
    assert any("encoder.own.module" in name for name in flat(checkpoint("parted", "Treadmill")["algorithm"]))
    written = yaml.safe_load(Path("results/parted/configuration.yaml").read_text())
    assert written["plugins"] == {
        "algorithms.a2c": "example-plugin 0.1.0", "callbacks.best_return": "example-plugin 0.1.0",
        "observation_encoders.per_sensor": "example-plugin 0.1.0",
    }  # fmt: skip
    assert Path("results/parted/best_return.txt").read_text().startswith("Treadmill: ")
    said = mlagents_style("evaluate", "parted", "--episodes=4", "--json")
    assert said.code == 0, said.err
    assert json.loads(said.out)["behaviors"]["Treadmill"]["episodes"] >= 4
    Path("results/parted/Treadmill.onnx").unlink()
    said = mlagents_style("export", "parted", "--output=again.onnx")
    assert said.code == 0, said.err
    assert_model_acts_as_policy(Path("again.onnx"), load_policy("results/parted"), draws=True)


def test_encoder_reward_signal_and_simulator_take_part_in_runs(
    example: None, mlagents_style: Callable[..., Any], configure: Callable[..., Path]
) -> None:
    signals = {"extrinsic": {}, "effort": {"strength": 0.1}}
    network = {"hidden_units": 16, "num_layers": 1}
    configure(
        "HotCold", **{**A2C, "trainer_type": "ppo", "reward_signals": signals, "network_settings": network}
    )
    said = mlagents_style(
        "learn", "config.yaml", "--env=hotcold:9", "--run-id=game", "--seed=1", "--track=csv"
    )
    assert said.code == 0, said.err
    written = yaml.safe_load(Path("results/game/configuration.yaml").read_text())
    assert set(written["plugins"]) == {
        "reward_signals.effort", "simulators.hotcold", "summary_writers.csv"
    }  # fmt: skip
    rows = [json.loads(line) for line in Path("results/game/metrics.jsonl").read_text().splitlines()]
    assert all(row["effort_reward"] < 0 for row in rows)
    assert Path("results/game/returns.csv").read_text().startswith("HotCold,200,-")


def test_the_encoder_is_part_of_the_network(example: None) -> None:
    network = {"vis_encode_type": "small_cnn", "hidden_units": 16, "num_layers": 1}
    settings = TrainerSettings.model_validate({"network_settings": network})
    camera = ObservationSpec("camera", (3, 8, 8), ())
    learner = learner_of(settings, BehaviorSpec((camera,), ActionSpec(1)))
    kinds = {type(module).__name__ for module in learner.actor.policy_network().modules()}
    assert "SmallCNN" in kinds
    with pytest.raises(ValueError, match="small_cnn needs pictures of at least 4 x 4, got 3 x 8"):
        learner_of(settings, BehaviorSpec((ObservationSpec("camera", (3, 8, 3), ()),), ActionSpec(1)))


def learner_of(settings: TrainerSettings, spec: BehaviorSpec) -> Learner:
    return make_learner(spec, settings, Compute(torch.device("cpu"), 1))


def test_rollout_workers_act_with_the_algorithm(example: None, tmp_path: Path) -> None:
    def scenes(number: int, academy: Academy) -> Any:
        return open_scene("sim:basic", agents=4, academy=academy)

    (tmp_path / "run").mkdir()
    run = learn_in_process(options_of({"Basic": A2C}), scenes, tmp_path / "run")
    (behavior,) = run.behaviors.values()
    assert behavior.updates > 0
    assert behavior.step >= 400


@pytest.mark.thorough
@pytest.mark.network
@pytest.mark.timeout(300)
def test_pip_installs_it_and_its_own_tests_pass(tmp_path: Path) -> None:
    target = tmp_path / "installed"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps"]
    command = [*pip, "--target", str(target), str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"nothing can be installed here: {done.stderr.strip().splitlines()[-1]}")
    search = os.pathsep.join([str(target), os.environ["PYTHONPATH"]])
    (tmp_path / "a2c.yaml").write_text(yaml.safe_dump({"behaviors": {"Basic": dict(A2C)}}))
    for line in (
        ["trainer_service", "check", "a2c.yaml"],
        ["pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, str(EXAMPLE / "tests")],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *line], capture_output=True, text=True, cwd=tmp_path, check=False,
            env={**os.environ, "PYTHONPATH": search},
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
