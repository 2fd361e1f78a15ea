"""Encoders of all sensors, which plugins and programs offer: ``network_settings.encoder``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
import torch
from every_trainer import learner_of, settings_of
from torch import Tensor, nn

from trainer_service.config import HYPERPARAMETERS, TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS
from trainer_service.learning.networks.encoders.own_encoder import OwnEncoder
from trainer_service.plugins import register
from unity_bridge import plugins
from unity_bridge.errors import PluginError
from unity_bridge.specs import ObservationSpec

GROUP = "trainer_service.observation_encoders"
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


@pytest.mark.parametrize("trainer_type", [name for name in ALGORITHMS if name != "random"])
def test_every_trainer_type_learns_the_encoder_or_refuses_it(trainer_type: str, sides: None) -> None:
    values = settings_of(trainer_type)
    values["network_settings"] = {**values.get("network_settings", {}), "encoder": "sides"}
    if HYPERPARAMETERS[trainer_type].learns_by_group:
        with pytest.raises(
            ValueError, match=f"expected null, as networks of {trainer_type} have encoders of"
        ):
            TrainerSettings.model_validate(values)
        return
    networks = learner_of(values).actor.policy_network()
    assert any(isinstance(each, Sides) for each in networks.modules())


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
