from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch.nn import functional

from trainer_service.config import NetworkSettings
from trainer_service.config.network import Activation
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.soft_actor import SoftCritics, SquashedHeads
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec, ObservationType

VECTOR = ObservationSpec("vector", (3,))
PICTURE = ObservationSpec("picture", (1, 20, 20))
GOAL = ObservationSpec("goal", (2,), observation_type=ObservationType.GOAL_SIGNAL)
ENTITIES = ObservationSpec("entities", (4, 3))
SETTINGS = NetworkSettings(hidden_units=8, num_layers=2)

bodies = pytest.mark.parametrize(
    "sensors", [(VECTOR,), (VECTOR, PICTURE), (VECTOR, GOAL), (ENTITIES, VECTOR)], ids=lambda s: s[-1].name
)
actions = pytest.mark.parametrize(
    "spec",
    [ActionSpec(2, ()), ActionSpec(0, (3, 2)), ActionSpec(2, (3, 2))],
    ids=["numbers", "choices", "both"],
)


def observations(sensors: tuple[ObservationSpec, ...], rows: int) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    return [torch.rand(rows, *sensor.shape, generator=generator) for sensor in sensors]


@bodies
@actions
def test_each_critic_depends_on_its_own_weights_alone(
    sensors: tuple[ObservationSpec, ...], spec: ActionSpec
) -> None:
    critics = SoftCritics(BehaviorSpec(sensors, spec), SETTINGS, value_heads=2)
    seen, done = observations(sensors, 5), torch.rand(5, spec.continuous_size)
    q = critics.forward(EncoderInput(seen), done)
    assert q.shape == (2, 5, 2, max(spec.mask_size, 1))
    assert not torch.allclose(q[0], q[1])
    for critic in (0, 1):
        critics.zero_grad()
        critics.forward(EncoderInput(seen), done)[critic].sum().backward()
        for name, parameter in critics.named_parameters():
            if parameter.dim() == 3:  # stacked: two critics, inputs, outputs
                assert parameter.grad is not None, name
                assert parameter.grad[1 - critic].abs().sum() == 0.0, name
                assert parameter.grad[critic].abs().sum() > 0.0, name


@pytest.mark.parametrize(
    ("activation", "function"), [("swish", functional.silu), ("relu", torch.relu), ("tanh", torch.tanh)]
)
def test_stacked_layers_are_what_they_are_one_by_one(
    activation: Activation, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    settings = NetworkSettings(hidden_units=8, num_layers=2, activation=activation)
    critics = SoftCritics(BehaviorSpec((VECTOR,), ActionSpec(2, (3,))), settings, value_heads=1)
    (seen,), done = observations((VECTOR,), 6), torch.rand(6, 2)
    q = critics.forward(EncoderInput([seen]), done)
    state = critics.state_dict()
    for critic in (0, 1):
        features = torch.cat([seen, done], dim=1)
        for layer in (0, 1):
            weight, bias = state[f"body.{layer}.weight"][critic], state[f"body.{layer}.bias"][critic]
            features = function(features @ weight + bias)
        expected = features @ state["q.weight"][critic] + state["q.bias"][critic]
        torch.testing.assert_close(q[critic, :, 0], expected)


def test_batch_normalization_takes_the_rows_of_both_batches_together() -> None:
    settings = NetworkSettings(hidden_units=8, num_layers=1, activation="relu")
    critics = SoftCritics(BehaviorSpec((VECTOR,), ActionSpec(2, ())), settings, value_heads=1, norm="batch")
    (seen,), done = observations((VECTOR,), 12), torch.rand(12, 2)
    halves = EncoderInput([seen[:6]]), done[:6], EncoderInput([seen[6:]]), done[6:]
    q, next_q = critics.joint_values(*halves)
    assert q.shape == next_q.shape == (2, 6, 1, 1)
    state = critics.state_dict()
    for critic in (0, 1):
        features = torch.cat([seen, done], dim=1)
        for layer, name in enumerate(("body.0", "q")):
            features = functional.batch_norm(features, None, None, training=True, eps=1e-3)
            features = features @ state[f"{name}.weight"][critic] + state[f"{name}.bias"][critic]
            features = features if layer else torch.relu(features)
        torch.testing.assert_close(torch.cat([q, next_q], dim=1)[critic, :, 0], features)


def test_after_100000_batches_training_uses_the_moments_that_values_have() -> None:
    spec = BehaviorSpec((VECTOR,), ActionSpec(2, ()))
    critics = SoftCritics(spec, NetworkSettings(hidden_units=8, num_layers=1), value_heads=1, norm="batch")
    (seen,), done = observations((VECTOR,), 12), torch.rand(12, 2)
    halves = EncoderInput([seen[:6]]), done[:6], EncoderInput([seen[6:]]), done[6:]
    critics.joint_values(*halves)
    learned = critics.state_dict()
    agree = []
    for batches in (99_999, 100_000):
        others = {name: 1.5 * value for name, value in learned.items() if name.endswith("variance")}
        counts = {name: torch.tensor(batches) for name in learned if name.endswith("batches")}
        critics.load_state_dict({**learned, **others, **counts})
        expected = critics.forward(EncoderInput([seen]), done)
        agree.append(torch.allclose(torch.cat(critics.joint_values(*halves), dim=1), expected, atol=1e-5))
    assert agree == [False, True]


def heads(spec: ActionSpec) -> SquashedHeads:
    torch.manual_seed(3)
    return SquashedHeads(4, spec)


@actions
def test_the_likeliest_action_is_squashed_with_the_density_of_draws(spec: ActionSpec) -> None:
    module = heads(spec)
    with torch.no_grad():
        parameters = module.forward(2.0 * torch.randn(1, 4).expand(4000, 4))
    continuous, discrete, log_prob = module.most_likely(parameters, None)
    if spec.continuous_size:
        torch.testing.assert_close(continuous, torch.tanh(parameters.mean))
    noise = torch.Generator().manual_seed(1)
    drawn, chosen, drawn_log_prob = module.sample(parameters, None, noise)
    assert drawn.abs().max() < 1.0 if spec.continuous_size else drawn.shape == (4000, 0)
    # E[1/π(a)] over what is drawn is the volume of all actions.
    volume = 2.0**spec.continuous_size * float(np.prod(spec.discrete_branches))
    assert float((-drawn_log_prob).exp().mean()) == pytest.approx(volume, rel=0.25)
    if not spec.continuous_size:
        assert (log_prob >= drawn_log_prob).all()
        same = (chosen == discrete).all(dim=1)
        torch.testing.assert_close(log_prob[same], drawn_log_prob[same])


def test_deviations_are_kept_in_range() -> None:
    module = heads(ActionSpec(1, ()))
    assert module.log_sigma is not None
    with torch.no_grad():
        module.log_sigma.bias.fill_(50.0)
    assert module.forward(torch.zeros(1, 4)).log_sigma.tolist() == [[2.0]]
    with torch.no_grad():
        module.log_sigma.bias.fill_(-50.0)
    assert module.forward(torch.zeros(1, 4)).log_sigma.tolist() == [[-20.0]]
