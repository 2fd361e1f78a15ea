"""PPO on pictures: the precision that acting and learning share, and how often values are estimated."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from torch import nn

from trainer_service.config import TrainerSettings
from trainer_service.config.run_options import Precision
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.on_policy.rollout import decouple, make_rollout
from trainer_service.learning.algorithms.on_policy.ppo import PPO
from trainer_service.learning.networks.encoders.encoder import ObservationEncoder
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS, EPOCHS = 16, 3
SPEC = BehaviorSpec(
    (ObservationSpec("camera", (3, 36, 36)), ObservationSpec("place", (2,))), ActionSpec(2, (3,))
)
WITHOUT_PICTURES = BehaviorSpec(SPEC.observation_specs[1:], SPEC.action_spec)


class Album:
    """Episodes of one decision, each before a picture of its own."""

    def __init__(self, spec: BehaviorSpec) -> None:
        self.rng = np.random.default_rng(3)
        self.spec = spec

    def see(self) -> list[np.ndarray]:
        picture = self.rng.integers(0, 256, (AGENTS, 3, 36, 36), np.uint8)
        place = self.rng.normal(size=(AGENTS, 2)).astype(np.float32)
        return [picture, place][-len(self.spec.observation_specs) :]

    def rows(self, **ends: Any) -> StepBatch:
        rewards = self.rng.normal(size=AGENTS).astype(np.float32)
        allowed = np.ones((AGENTS, 3), np.bool_)
        return step_batch(self.seen, rewards, agent_ids=np.arange(AGENTS), allowed_actions=allowed, **ends)

    def begin(self) -> StepBatch:
        self.seen = self.see()
        return self.rows()

    def step(self, actions: ActionBatch) -> StepBatch:
        return concatenate(self.rows(terminated=np.ones(AGENTS, np.bool_)), self.begin())


def behavior_of(precision: Precision = "float32", spec: BehaviorSpec = SPEC, **network: Any) -> Behavior:
    """A behavior with one minibatch in each of an update's epochs."""
    hyperparameters = {"batch_size": 2 * AGENTS, "buffer_size": 2 * AGENTS, "num_epoch": EPOCHS}
    settings = TrainerSettings.model_validate(
        {
            "hyperparameters": hyperparameters,
            "network_settings": {
                "hidden_units": 32,
                "num_layers": 1,
                "vis_encode_type": "nature_cnn",
                **network,
            },
        }
    )
    behavior = Behavior("Album", spec, settings, Compute(torch.device("cpu"), 1, precision=precision))
    behavior.prepare()
    return behavior


def encoders_in(network: nn.Module) -> list[ObservationEncoder]:
    return [module for module in network.modules() if isinstance(module, ObservationEncoder)]


def encoders_of(behavior: Behavior) -> list[ObservationEncoder]:
    algorithm = behavior.learner
    assert isinstance(algorithm, PPO)
    return encoders_in(algorithm.networks["network"])


def collect(behavior: Behavior) -> None:
    """Lets it live until it has enough for an update."""
    world = Album(behavior.spec)
    batch = world.begin()
    while True:
        observe(behavior, BehaviorTick(simulator=0, team=0, batch=batch))
        if behavior.ready_to_update():
            return
        (actions,) = behavior.collector.act()
        batch = world.step(actions)


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
    single, half = (behavior_of(precision, vis_encode_type=encoder) for precision in ("float32", "bfloat16"))
    mixed = behavior_of("bfloat16", vis_encode_type=encoder)
    for trunk in encoders_of(mixed):
        trunk.precision = "float32"
    for behavior in (single, half, mixed):
        collect(behavior)
    for trunk in encoders_of(mixed):
        trunk.precision = "bfloat16"
    assert largest_ratio(single) < 1e-5
    assert largest_ratio(half) < 1e-5
    assert largest_ratio(mixed) > 3e-5


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
    seen = [picture, torch.zeros(8, 2)]
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


@pytest.mark.parametrize(("spec", "estimates"), [(SPEC, 1), (WITHOUT_PICTURES, EPOCHS)])
def test_values_of_pictures_are_estimated_once(
    spec: BehaviorSpec, estimates: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    behavior, calls = behavior_of(spec=spec), []
    estimate = PPO.estimate_advantages
    monkeypatch.setattr(PPO, "estimate_advantages", lambda *given: calls.append(1) or estimate(*given))
    collect(behavior)
    behavior.update()
    assert len(calls) == estimates
