"""PPO on pictures: the precision that acting and learning share, and how often values are estimated."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.config import TrainerSettings
from trainer_service.config.run_options import Precision
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.on_policy.rollout import decouple, make_rollout
from trainer_service.learning.algorithms.on_policy.ppo import PPO
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

AGENTS, EPOCHS = 16, 3
CAMERA = ObservationSpec("camera", (3, 36, 36))
ACTIONS = ActionSpec(2, (3,))


def behavior_of(
    precision: Precision = "float32", sensors: Sequence[ObservationSpec] = (CAMERA,), **network: Any
) -> Behavior:
    """A behavior with one minibatch in each of an update's epochs."""
    small = {"hidden_units": 32, "num_layers": 1, "vis_encode_type": "nature_cnn", **network}
    sizes = {"batch_size": 2 * AGENTS, "buffer_size": 2 * AGENTS, "num_epoch": EPOCHS}
    settings = TrainerSettings.model_validate({"hyperparameters": sizes, "network_settings": small})
    spec = BehaviorSpec((ObservationSpec("seen", (SENSOR,)), *sensors), ACTIONS)
    behavior = Behavior("Album", spec, settings, Compute(torch.device("cpu"), 1, precision=precision))
    behavior.prepare()
    return behavior


def collect(behavior: Behavior) -> None:
    """Lets it live until it has enough for an update."""
    world = ShortEpisodes(ACTIONS, AGENTS, behavior.spec.observation_specs[1:])
    observe(behavior, BehaviorTick(0, 0, world.begin()))
    while not behavior.ready_to_update():
        observe(behavior, BehaviorTick(0, 0, world.step(behavior.collector.act()[0])))


def largest_ratio(behavior: Behavior) -> float:
    """How far from 1 the ratios are of the probabilities that learning and acting find for what was done."""
    algorithm = behavior.learner
    assert isinstance(algorithm, PPO)
    collected = algorithm.buffer.peek()
    assert collected is not None
    sampler = algorithm.sampler(collected)
    rollout = make_rollout(collected, algorithm.rewards, algorithm.actor.normalizer, sampler)
    weights = decouple(rollout, algorithm.networks["network"]).weights
    assert weights is not None
    return float((weights - 1.0).abs().max())


@pytest.mark.parametrize("encoder", ["nature_cnn", "resnet", "simple"])
def test_learning_finds_the_probabilities_that_acting_found(encoder: str) -> None:
    for precision in ("float32", "bfloat16"):
        behavior = behavior_of(precision, vis_encode_type=encoder)
        collect(behavior)
        assert largest_ratio(behavior) < 1e-5


def test_bfloat16_stays_inside_of_the_encoders() -> None:
    half, single = behavior_of("bfloat16"), behavior_of()
    collect(half)
    metrics = half.update()
    assert all(np.isfinite(value) for value in metrics.values())
    state = checkpoint_of(half).algorithm
    tensors = {**state["network"], **state["optimizer"]}
    assert {each.dtype for each in tensors.values() if isinstance(each, torch.Tensor)} == {torch.float32}
    single.learner.load_weights(state)
    picture = torch.from_numpy(
        np.random.default_rng(4).integers(0, 256, (8, 3, 36, 36)) / np.float32(255)
    ).float()
    seen = [torch.zeros(8, SENSOR), picture]
    with torch.inference_mode():
        exact, model, acting = (
            network.policy(seen).mean
            for network in (
                single.learner.actor.network,
                half.learner.actor.policy_network().network,
                half.learner.actor.network,
            )
        )
    assert torch.equal(model, exact)
    assert not torch.equal(acting, exact)
    torch.testing.assert_close(acting, exact, atol=0.02, rtol=0.02)


@pytest.mark.parametrize(("sensors", "estimates"), [((CAMERA,), 1), ((), EPOCHS)])
def test_values_of_pictures_are_estimated_once(
    sensors: Sequence[ObservationSpec], estimates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    behavior, calls = behavior_of(sensors=sensors), []
    estimate = PPO.estimate_advantages
    monkeypatch.setattr(PPO, "estimate_advantages", lambda *given: calls.append(1) or estimate(*given))
    collect(behavior)
    behavior.update()
    assert len(calls) == estimates
