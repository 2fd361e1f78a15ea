"""Encoders of all sensors, which plugins and programs offer: ``network_settings.encoder``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from every_trainer import scene_of, settings_of
from exported_models import assert_model_acts_as_policy
from in_process_workers import learn_in_process, options_of
from installed_plugins import install_example
from torch import Tensor, nn

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute
from trainer_service.learning.networks.encoders.own_encoder import OwnEncoder
from trainer_service.plugins import register
from trainer_service.running.policy import load_policy
from trainer_service.running.runs.checkpoint import read_content
from unity_bridge import plugins
from unity_bridge.errors import PluginError
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.registry import open_scene
from unity_bridge.specs import ObservationSpec

GROUP = "trainer_service.observation_encoders"
NETWORK = {"encoder": "per_sensor", "encoder_kwargs": {"features": 8}, "hidden_units": 16, "num_layers": 1}
PPO: Mapping[str, Any] = {
    "trainer_type": "ppo",
    "hyperparameters": {"batch_size": 32, "buffer_size": 64, "learning_rate_schedule": "constant"},
    "network_settings": NETWORK,
    "time_horizon": 16,
    "max_steps": 200,
    "summary_freq": 200,
    "checkpoint_interval": 10**6,
}
SENSORS = (ObservationSpec("where", (3,)), ObservationSpec("what", (2, 4)))


class Sides(nn.Module):
    """Sensors side by side, times a weight that is learned."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], *, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(scale))

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        return self.scale * torch.cat([each.flatten(1) for each in observations.values()], dim=1)


class Single(Sides):
    """One number for all rows: no encoder."""

    def forward(self, observations: Mapping[str, Tensor]) -> Tensor:
        return super().forward(observations).sum()


@pytest.fixture
def sides() -> Iterator[None]:
    register(GROUP, "sides", Sides)
    register(GROUP, "single", Single)
    yield
    plugins._REGISTERED.clear()


def test_a_run_learns_resumes_and_is_exported(
    site: Path,
    mlagents_style: Callable[..., Any],
    configure: Callable[..., Path],
    hosted: Callable[..., Sequence[str]],
) -> None:
    install_example(site)

    def learn(run_id: str, steps: int, *flags: str) -> None:
        configure("Treadmill", **{**PPO, "max_steps": steps})
        run = (f"--run-id={run_id}", "--seed=5", *flags, *hosted("treadmill"))
        said = mlagents_style("learn", "config.yaml", *run)
        assert said.code == 0, said.err

    learn("straight", 432)
    learn("parted", 216)
    learn("parted", 432, "--resume")
    states = [
        read_content(Path("results", run, "Treadmill", "checkpoint.safetensors"))["algorithm"]["network"]
        for run in ("straight", "parted")
    ]
    assert "actor.encoder.own.module.layers.0.weight" in states[0]
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    written = yaml.safe_load(Path("results/parted/configuration.yaml").read_text())
    assert written["plugins"] == {"observation_encoders.per_sensor": "example-plugin 0.1.0"}
    assert_model_acts_as_policy(
        Path("results/parted/Treadmill.onnx"), load_policy("results/parted"), draws=True
    )


def test_rollout_workers_act_with_the_encoder(site: Path, tmp_path: Path) -> None:
    install_example(site)

    def scenes(number: int, academy: Academy) -> Any:
        return open_scene("sim:basic", agents=4, academy=academy)

    (tmp_path / "run").mkdir()
    run = learn_in_process(options_of({"Basic": PPO}), scenes, tmp_path / "run")
    assert run.behaviors["Basic"].updates > 0


@pytest.mark.parametrize("trainer_type", [name for name in ALGORITHMS if name != "random"])
def test_every_trainer_type_learns_the_encoder_or_refuses_it(trainer_type: str, sides: None) -> None:
    values = settings_of(trainer_type)
    values.setdefault("network_settings", {})
    values["network_settings"] = {**values["network_settings"], "encoder": "sides"}
    scene, _ = scene_of(trainer_type)
    (spec,) = open_scene(f"sim:{scene}").behaviors.values()
    if HYPERPARAMETERS[trainer_type].learns_by_group:
        with pytest.raises(
            ValueError, match=f"expected null, as networks of {trainer_type} have encoders of"
        ):
            TrainerSettings.model_validate(values)
        return
    settings = TrainerSettings.model_validate(values)
    learner = ALGORITHMS[trainer_type](spec, settings, Compute(torch.device("cpu"), 1))
    assert any(isinstance(each, Sides) for each in learner.actor.policy_network().modules())


def test_what_is_no_encoder_is_refused_by_name(sides: None) -> None:
    with pytest.raises(
        PluginError, match=r"'single' of module .* expected a tensor of shape \[batch, features]"
    ):
        OwnEncoder(SENSORS, "single", {})
    with pytest.raises(PluginError, match=r"'sides' of module .* unexpected keyword argument 'size'"):
        OwnEncoder(SENSORS, "sides", {"size": 3})
    with pytest.raises(ValueError, match="two sensors are called 'where'"):
        OwnEncoder((SENSORS[0], SENSORS[0]), "sides", {})
    with pytest.raises(ValueError, match="expected an observation encoder, one of sides, single, got 'side'"):
        TrainerSettings.model_validate({"network_settings": {"encoder": "side"}})


def test_register_takes_names_of_modules_alone() -> None:
    class Inner(Sides):
        pass

    with pytest.raises(ValueError, match="at the top of its module"):
        register(GROUP, "inner", Inner)
