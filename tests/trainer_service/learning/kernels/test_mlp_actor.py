"""Acting of an MLP policy with fewer calls: the same decisions, bit for bit, as its modules make."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from fuzzing import examples
from hypothesis import given
from hypothesis import strategies as st
from made_trajectories import trajectories_of

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.algorithms.common.exploration import Exploration
from trainer_service.learning.algorithms.on_policy.ppo import PPO
from trainer_service.learning.kernels import SLOW
from trainer_service.learning.rollout.assembler import Decisions
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("order", (3,)), ObservationSpec("trolley", (2,))), ActionSpec(2, (3, 4)))


def learner(
    spec: BehaviorSpec = SPEC, *, seed: int = 1, normalize: bool = True, kind: type[PPO] = PPO, **network: Any
) -> PPO:
    settings = TrainerSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {"batch_size": 8, "buffer_size": 16},
            "network_settings": {"hidden_units": 16, "num_layers": 2, "normalize": normalize, **network},
        }
    )
    return kind(spec, settings, Compute(torch.device("cpu"), seed))


def pair(
    monkeypatch: pytest.MonkeyPatch, spec: BehaviorSpec = SPEC, *, seed: int = 1, **settings: Any
) -> tuple[PPO, PPO]:
    """Equal learners: one that takes the fast path from now on, and one that does not."""
    fast, slow = learner(spec, seed=seed, **settings), learner(spec, seed=seed, **settings)
    monkeypatch.delenv(SLOW, raising=False)
    assert fast.actor.fast is not None
    monkeypatch.setenv(SLOW, "1")
    assert slow.actor.fast is None
    return fast, slow


def seen(spec: BehaviorSpec, agents: int, seed: int = 0) -> tuple[list[np.ndarray], np.ndarray]:
    """What agents see, some of it far from everything, and what they may do."""
    rng = np.random.default_rng(seed)
    observations = [
        rng.normal(scale=3, size=(agents, *sensor.shape)).astype(np.float32)
        for sensor in spec.observation_specs
    ]
    return observations, rng.random((agents, spec.action_spec.mask_size)) < 0.7


def decide(algorithm: PPO, observations: list[np.ndarray], allowed: np.ndarray, **how: Any) -> Decisions:
    memories = np.empty((len(allowed), 0), np.float32)
    return algorithm.actor.act(ActRequest(observations, allowed, memories, how.get("deterministic", False)))


def assert_same(one: Decisions, other: Decisions) -> None:
    for name in ("continuous_actions", "discrete_actions", "log_probs", "memories"):
        mine, theirs = getattr(one, name), getattr(other, name)
        assert mine.dtype == theirs.dtype
        np.testing.assert_array_equal(mine, theirs, err_msg=name)


def assert_decides_alike(fast: PPO, slow: PPO, spec: BehaviorSpec = SPEC, agents: int = 5) -> None:
    for tick in range(3):
        observations, allowed = seen(spec, agents, tick)
        assert_same(decide(fast, observations, allowed), decide(slow, observations, allowed))


def experience(spec: BehaviorSpec = SPEC, steps: int = 16) -> Trajectories:
    observations, _ = seen(spec, steps)
    actions, rng = spec.action_spec, np.random.default_rng(2)
    return trajectories_of(
        observations,
        [steps],
        continuous_actions=rng.normal(size=(steps, actions.continuous_size)).astype(np.float32),
        discrete_actions=np.zeros((steps, actions.discrete_size), np.int64),
        allowed_actions=np.ones((steps, actions.mask_size), np.bool_),
        log_probs=np.full(steps, -3.0, np.float32),
        rewards=rng.normal(size=steps).astype(np.float32),
        final_allowed_actions=np.ones((1, actions.mask_size), np.bool_),
        terminated=np.array([True]),
    )


@examples(50)
@given(
    sensors=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    continuous=st.integers(0, 20),
    branches=st.lists(st.integers(2, 5), max_size=5),
    agents=st.integers(1, 40),
    network=st.fixed_dictionaries({"normalize": st.booleans(), "num_layers": st.integers(1, 3)}),
)
def test_decisions_are_those_of_the_modules_bit_for_bit(
    sensors: list[int], continuous: int, branches: list[int], agents: int, network: dict[str, Any]
) -> None:
    if not continuous and not branches:
        continuous = 1
    spec = BehaviorSpec(
        tuple(ObservationSpec(f"sensor {i}", (size,)) for i, size in enumerate(sensors)),
        ActionSpec(continuous, tuple(branches)),
    )
    with pytest.MonkeyPatch.context() as monkeypatch:
        fast, slow = pair(monkeypatch, spec, **network)
    with torch.no_grad():
        for algorithm in (fast, slow):
            torch.manual_seed(3)
            for parameter in algorithm.actor.network.parameters():
                parameter.normal_()
    assert_decides_alike(fast, slow, spec, agents)


def test_the_fast_path_decides_by_weights_as_they_are_after_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fast, slow = pair(monkeypatch)
    assert_decides_alike(fast, slow)
    for algorithm in (fast, slow):
        algorithm.record(experience())
        algorithm.update(0)
    assert_decides_alike(fast, slow)
    other = learner(seed=9)
    other.record(experience())
    for algorithm in (fast, slow):
        algorithm.load_weights(other.state_dict())
    assert_decides_alike(fast, slow)
    for algorithm in (fast, slow):
        algorithm.actor.load_state_dict(learner(seed=5).actor.state_dict(), seed=7)
    assert_decides_alike(fast, slow)


def test_deterministic_play_draws_nothing_and_takes_the_likeliest(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = pair(monkeypatch)
    observations, allowed = seen(SPEC, 6)
    before = fast.actor.stream.get_state()
    assert_same(
        decide(fast, observations, allowed, deterministic=True),
        decide(slow, observations, allowed, deterministic=True),
    )
    assert torch.equal(fast.actor.stream.get_state(), before)


@pytest.mark.parametrize(
    "network",
    [{"memory": {"memory_size": 8, "sequence_length": 4}}, {"layer_norm": True}, {"activation": "relu"}],
    ids=["memory", "layer_norm", "activation"],
)
def test_other_networks_keep_to_their_modules(
    monkeypatch: pytest.MonkeyPatch, network: dict[str, Any]
) -> None:
    monkeypatch.delenv(SLOW, raising=False)
    assert learner(**network).actor.fast is None


def test_a_learner_with_an_exploration_of_its_own_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class NoExploration(Exploration):
        def sampler(self, heads: Any, generator: Any) -> Any:
            return heads.most_likely

    class Greedy(PPO):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self.actor.exploration = NoExploration()

    monkeypatch.delenv(SLOW, raising=False)
    usual, greedy = learner(), learner(kind=Greedy)
    greedy.prepare(0)
    observations, allowed = seen(SPEC, 4)
    assert_same(
        decide(greedy, observations, allowed), decide(usual, observations, allowed, deterministic=True)
    )


def test_numbers_that_are_no_float32_are_left_to_the_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, slow = pair(monkeypatch)
    observations, allowed = seen(SPEC, 4)
    observations[1] = np.arange(8, dtype=np.uint8).reshape(4, 2)
    assert_same(decide(fast, observations, allowed), decide(slow, observations, allowed))
