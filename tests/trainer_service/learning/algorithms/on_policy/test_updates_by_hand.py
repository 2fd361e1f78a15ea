"""PPO's updates with the compiled kernel and without: what is learned, what may replace a step, what the log says."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest
import torch
from made_trajectories import trajectories_of

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import PPO, Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.algorithms.common.on_policy.rollout import make_rollout
from trainer_service.learning.kernels import SLOW, choice
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("order", (3,)), ObservationSpec("trolley", (2,))), ActionSpec(2, (3, 2)))


AUTOGRAD = "by autograd"

needs_kernel = pytest.mark.skipif(
    choice.compiled_library() is None, reason="no compiled kernel was built here"
)


def how(algorithm: PPO) -> str:
    """How it computes gradients, as its checkpoints say."""
    said: str = algorithm.state_dict()["gradients"]
    return said


def learner(kind: type[PPO] = PPO, *, behavior: str = "", **settings: Any) -> PPO:
    chosen = {
        "trainer_type": "ppo",
        "hyperparameters": {"batch_size": 40, "buffer_size": 500, "num_epoch": 3, "shared_critic": True},
        "reward_signals": {"extrinsic": {}, "curiosity": {"strength": 0.1}},
        "network_settings": {"normalize": True, "hidden_units": 16},
        **settings,
    }
    compute = Compute(torch.device("cpu"), seed=1, behavior=behavior)
    return kind(SPEC, TrainerSettings.model_validate(chosen), compute)


def rollout(algorithm: PPO, lengths: tuple[int, ...] = (200, 1, 299)) -> Trajectories:
    """Steps of noise, with the actions that the algorithm chooses there."""
    rng = np.random.default_rng(1)
    steps, segments = sum(lengths), len(lengths)

    def noise(*shape: int) -> np.ndarray:
        return rng.normal(size=shape).astype(np.float32)

    observations, none = (noise(steps, 3), noise(steps, 2)), np.zeros((steps, 0), np.float32)
    allowed = rng.random((steps, 5)) < 0.7
    allowed[:, [0, 3]] = True
    chosen = algorithm.actor.act(ActRequest(observations, allowed, none))
    return trajectories_of(
        observations,
        lengths,
        continuous_actions=chosen.continuous_actions,
        discrete_actions=chosen.discrete_actions,
        allowed_actions=allowed,
        log_probs=chosen.log_probs,
        rewards=noise(steps),
        final_observations=(noise(segments, 3), noise(segments, 2)),
        final_allowed_actions=np.ones((segments, 5), np.bool_),
        terminated=np.arange(segments) % 2 == 0,
    )


def updated(algorithm: PPO, times: int = 2) -> list[dict[str, float]]:
    metrics = []
    for _ in range(times):
        algorithm.record(rollout(algorithm))
        metrics.append(dict(algorithm.update(0)))
    return metrics


@needs_kernel
def test_updates_by_hand_are_those_of_autograd(monkeypatch: pytest.MonkeyPatch) -> None:
    fast, plain = learner(), learner()
    measured = updated(fast)
    assert "compiled code" in how(fast)
    monkeypatch.setenv(SLOW, "1")
    expected = updated(plain)
    assert how(plain) == AUTOGRAD
    for ours, theirs in zip(measured, expected, strict=True):
        assert ours == pytest.approx(theirs, rel=1e-3, abs=1e-5)
    state = plain.state_dict()
    for name, tensor in fast.state_dict()["network"].items():
        torch.testing.assert_close(tensor, state["network"][name], rtol=1e-4, atol=1e-5)
    assert torch.equal(fast.state_dict()["shuffling"], state["shuffling"])


class OwnStep(PPO):
    """What a plugin may do: gradient steps of its own."""

    steps = 0

    def _step(self, *arguments: Any) -> torch.Tensor:
        self.steps += 1
        return super()._step(*arguments)


def test_a_class_with_steps_of_its_own_takes_them() -> None:
    own: Any = learner(OwnStep)
    updated(own, times=1)
    assert how(own) == AUTOGRAD
    assert own.steps == 3 * 13


def test_a_network_of_another_kind_takes_autograd() -> None:
    other = learner(network_settings={"layer_norm": True, "hidden_units": 16})
    updated(other, times=1)
    resumed = learner(network_settings={"layer_norm": True, "hidden_units": 16})
    resumed.load_state_dict(other.state_dict())
    assert how(other) == how(resumed) == AUTOGRAD


def test_returns_mix_what_was_earned_and_what_is_expected_by_lambda() -> None:
    hyper = {"batch_size": 40, "buffer_size": 500, "lambd": 0.25}
    algorithm = learner(hyperparameters=hyper, reward_signals={"extrinsic": {"gamma": 0.5}})
    trajectories = rollout(algorithm, (2,))
    made = make_rollout(
        trajectories, algorithm.rewards, algorithm.actor.normalizer, algorithm.sampler(trajectories)
    )
    targets = algorithm.estimate_advantages(made)
    (first, last), (_, value) = trajectories.rewards, targets.old_value[:, 0].tolist()
    assert targets.return_[:, 0].tolist() == pytest.approx([first + 0.5 * (0.75 * value + 0.25 * last), last])


def test_a_new_start_takes_the_values_of_the_signals_that_it_knows() -> None:
    curiosity = {"curiosity": {"strength": 0.1}}
    trained = learner(reward_signals={**curiosity, "extrinsic": {}})
    state = trained.state_dict()
    state["network"]["value.weight"][:] = torch.tensor([[1.0], [2.0]])
    state["network"]["value.bias"][:] = torch.tensor([1.0, 2.0])
    fresh = learner(reward_signals={"extrinsic": {}, "rnd": {}, **curiosity})
    fresh.load_weights(state)
    found = fresh.state_dict()["network"]
    assert found["value.bias"].tolist() == [2.0, 0.0, 1.0]
    assert found["value.weight"][[0, 2], 0].tolist() == [2.0, 1.0]


def test_the_log_says_once_how_gradients_are_computed(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    algorithm = learner(behavior="Trolley")
    updated(algorithm)
    said = f"'Trolley' computes the gradient of its updates {how(algorithm)}."
    assert [record.message for record in caplog.records if "Trolley" in record.message] == [said]


@needs_kernel
def test_a_checkpoint_of_another_kernel_warns_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    first, same, other = (learner(behavior="Trolley") for _ in range(3))
    updated(first, times=1)
    same.load_state_dict(first.state_dict())
    updated(same, times=1)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    other.load_state_dict(same.state_dict())
    assert how(other) == how(first) != ""
    monkeypatch.setenv(SLOW, "1")
    updated(other)
    warnings = [record.message for record in caplog.records if record.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "differ in their last digits" in warnings[0]
    assert how(other) == AUTOGRAD
