"""How an actor decides, apart from what its network learned."""

from __future__ import annotations

import numpy as np
import torch

from trainer_service.learning.algorithms.common.actor import Actor, ActRequest, bounded_actions
from trainer_service.learning.networks.encoders.normalizer import ObservationNormalizer
from trainer_service.learning.networks.policies.uniform import UniformNetwork
from trainer_service.learning.networks.random_streams import random_stream
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec


def request(actor: Actor, *, deterministic: bool) -> ActRequest:
    seen, nothing = np.linspace(-1.0, 1.0, 6, dtype=np.float32)[:, None], np.zeros((6, 0), np.bool_)
    return ActRequest([seen], nothing, np.zeros((6, actor.memory_size), np.float32), deterministic)


def test_a_deterministic_request_is_not_explored(make_behavior) -> None:
    hyperparameters = {"buffer_init_steps": 100, "exploration_noise": 0.5}
    actor = make_behavior(continuous=1, trainer_type="ddpg", hyperparameters=hyperparameters).learner.actor
    assert actor.explores
    first, second = (actor.act(request(actor, deterministic=True)).continuous_actions for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not np.array_equal(actor.act(request(actor, deterministic=False)).continuous_actions, first)


def test_a_frozen_actor_keeps_the_normalizer_that_it_had(make_behavior) -> None:
    network = {"hidden_units": 8, "num_layers": 1, "normalize": True}
    actor = make_behavior(continuous=1, network_settings=network).learner.actor
    frozen = actor.frozen(random_stream(2))
    before = frozen.act(request(frozen, deterministic=True)).continuous_actions
    actor.normalizer.update([torch.full((64, 1), 9.0)])
    np.testing.assert_array_equal(frozen.act(request(frozen, deterministic=True)).continuous_actions, before)


def test_numbers_that_an_agent_lacks_are_zero() -> None:
    spec = BehaviorSpec((ObservationSpec("ids", (2,)),), ActionSpec(2))
    stream, normalizer = random_stream(1), ObservationNormalizer(spec.observation_specs, normalize=False)
    has = np.array([[1.0, 0.0], [1.0, 1.0]], np.float32)  # the first agent has one number, the second both
    network, cpu = UniformNetwork(spec, stream), torch.device("cpu")
    actor = Actor(network, normalizer, stream, cpu, env_actions=bounded_actions, own_actions=has)
    ids, allowed = np.eye(2, dtype=np.float32), np.ones((2, 0), np.bool_)
    done = actor.act(ActRequest([ids], allowed, np.zeros((2, 0), np.float32))).continuous_actions
    np.testing.assert_array_equal(done != 0.0, has > 0.0)
