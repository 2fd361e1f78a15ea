"""Other optimizers than Adam, built-in and of plugins: ``hyperparameters.optimizer``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from every_trainer import learner_of, settings_of
from torch import nn

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.config.hyperparameters.on_policy import PPOSettings
from trainer_service.config.network import NetworkSettings
from trainer_service.learning.algorithms import ALGORITHMS
from trainer_service.learning.kernels.choice import kernel_for
from trainer_service.learning.networks.flat import FlatAdam
from trainer_service.learning.networks.optimizers import TorchRule, make_optimizer
from trainer_service.learning.networks.policies.actor_critic import ActorCritic
from trainer_service.plugins import register
from unity_bridge import plugins
from unity_bridge.errors import PluginError
from unity_bridge.simulators.registry import open_scene

LEARNERS = [name for name in ALGORITHMS if name != "random"]


@pytest.fixture
def registered() -> Iterator[None]:
    register("trainer_service.optimizers", "rms", torch.optim.RMSprop)
    register("trainer_service.optimizers", "layer", nn.Linear)
    yield
    plugins._REGISTERED.clear()


def test_a_run_does_not_resume_with_another_optimizer(
    mlagents_style: Callable[..., Any], configure: Callable[..., Path], hosted: Callable[..., Sequence[str]]
) -> None:
    line = ("learn", "config.yaml", "--run-id=run", *hosted("treadmill"))
    configure("Treadmill", max_steps=216)
    assert mlagents_style(*line).code == 0
    configure("Treadmill", max_steps=432, hyperparameters={"batch_size": 32, "optimizer": "adamw"})
    said = mlagents_style(*line, "--resume")
    assert said.code == 2
    assert "hyperparameters.optimizer was adam, now adamw" in said.err


@pytest.mark.parametrize("trainer_type", LEARNERS)
def test_every_trainer_type_learns_with_it_or_refuses_it(trainer_type: str, registered: None) -> None:
    values = settings_of(trainer_type)
    values["hyperparameters"]["optimizer"] = "rms"
    if trainer_type == "dqn_consensus":
        with pytest.raises(ValueError, match="expected adam, whose moments are averaged"):
            TrainerSettings.model_validate(values)
        return
    rules = {key: optimizer.rule for key, optimizer in learner_of(values).optimizers.items()}
    if trainer_type in ("sac", "crossq"):
        assert isinstance(rules.pop("alpha_optimizer"), FlatAdam)
    assert all(repr(rule) == "RMSprop" for rule in rules.values())


def test_steps_are_those_of_torch() -> None:
    plain, ours = nn.Linear(3, 2), nn.Linear(3, 2)
    ours.load_state_dict(plain.state_dict())
    hyper = PPOSettings(optimizer="adamw", weight_decay=0.1)
    optimizer = make_optimizer(ours.parameters(), hyper)
    theirs = torch.optim.AdamW(plain.parameters(), lr=0.01, weight_decay=0.1)
    for number in range(3):
        seen = torch.full((4, 3), float(number + 1))
        optimizer.minimize(ours(seen).square().mean(), 0.01, None)
        theirs.zero_grad()
        plain(seen).square().mean().backward()
        theirs.step()
    for mine, other in zip(ours.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine, other)
    assert torch.equal(optimizer.parameters.vector[:6].view(2, 3), ours.weight)


def test_a_resumed_run_has_the_weight_decay_of_its_configuration() -> None:
    def rule(decay: float) -> Any:
        return make_optimizer(
            nn.Linear(2, 1).parameters(), PPOSettings(optimizer="adamw", weight_decay=decay)
        ).rule

    before, after = rule(0.1), rule(0.3)
    after.load_state_dict(before.state_dict())
    assert isinstance(after, TorchRule)
    assert after.state_dict()["param_groups"][0]["weight_decay"] == 0.3


def test_the_compiled_kernel_has_adam_alone() -> None:
    (spec,) = open_scene("sim:basic").behaviors.values()
    network = ActorCritic(spec, NetworkSettings(), value_heads=1, shared_critic=False)
    assert kernel_for(network, make_optimizer(network.parameters(), PPOSettings(optimizer="adamw"))) is None


def test_what_is_no_optimizer_is_refused_by_name(registered: None) -> None:
    with pytest.raises(PluginError, match=r"optimizer 'layer' of module .* failed: TypeError"):
        make_optimizer(nn.Linear(2, 1).parameters(), HYPERPARAMETERS["ppo"](optimizer="layer"))
    with pytest.raises(ValueError, match="expected an optimizer, one of adam, adamw, layer, rms, got 'sgdd'"):
        PPOSettings(optimizer="sgdd")
