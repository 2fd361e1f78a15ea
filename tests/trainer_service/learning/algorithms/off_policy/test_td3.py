"""TD3 where it differs from DDPG: its targets, its delays, and how it goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from replayed import learn_from

from trainer_service.learning.algorithms.off_policy.td3 import TD3
from trainer_service.learning.replay.transitions import Sample
from trainer_service.running.behaviors.behavior import Behavior

ROWS = 512


@pytest.fixture
def learner(small) -> Callable[..., Behavior]:
    signals = {"extrinsic": {"gamma": 0.5, "strength": 2.0}}
    sizes = {"batch_size": 16, "buffer_size": 200, "buffer_init_steps": 24, "steps_per_update": 4}
    return partial(small, "td3", continuous=1, reward_signals=signals, **sizes)


def algorithm_of(behavior: Behavior) -> TD3:
    assert isinstance(behavior.learner, TD3)
    return behavior.learner


def transitions(**changes: Any) -> Sample:
    """Transitions that pay 1 and go on."""
    column = np.linspace(-1.0, 1.0, ROWS, dtype=np.float32)
    nothing = np.zeros((ROWS, 0), np.bool_)
    given = {
        "rows": np.arange(ROWS),
        "weights": None,
        "observations": (column[:, None],),
        "next_observations": (column[:, None],),
        "continuous_actions": column[:, None],
        "discrete_actions": np.zeros((ROWS, 0), np.int64),
        "allowed_actions": nothing,
        "next_allowed_actions": nothing,
        "task_rewards": np.ones(ROWS, np.float32),
        "terminated": np.zeros(ROWS, np.bool_),
    }
    return Sample(**{**given, **changes})


def say_always(critics: torch.nn.Module, first: float, second: float) -> None:
    """Lets each of two critics say one value of everything."""
    with torch.no_grad():
        critics.q.weight.zero_()
        critics.q.bias.copy_(torch.tensor([first, second]).view(2, 1, 1))


def vectors(algorithm: TD3) -> dict[str, torch.Tensor]:
    """All weights of each network."""
    return {
        name: torch.cat([weight.detach().flatten() for weight in network.parameters()])
        for name, network in algorithm.networks.items()
    }


def targets_of(algorithm: TD3, sample: Sample) -> torch.Tensor:
    return algorithm.targets(algorithm.minibatch(sample), algorithm.begin_update(0))


@pytest.mark.parametrize("values", [(3.0, 8.0), (8.0, 3.0)])
def test_the_smaller_of_two_values_is_the_target(learner, values: tuple[float, float]) -> None:
    algorithm = algorithm_of(learner())
    say_always(algorithm.networks["target_critic"], *values)
    over = np.zeros(ROWS, np.bool_)
    over[0] = True
    targets = targets_of(algorithm, transitions(terminated=over)).tolist()
    # A reward of 1 with a strength of 2, and half of the smaller value where the task goes on.
    assert targets == [2.0, *[2.0 + 0.5 * 3.0] * (ROWS - 1)]


@pytest.mark.parametrize(
    ("noise", "clip", "deviation", "largest"),
    [(0.0, 0.5, 0.0, 0.0), (0.05, 1.0, 0.05, 1.0), (5.0, 0.3, 0.3, 0.3), (0.2, 0.0, 0.0, 0.0)],
)
def test_target_actions_are_blurred_by_clipped_noise(
    learner, monkeypatch: pytest.MonkeyPatch, noise: float, clip: float, deviation: float, largest: float
) -> None:
    algorithm = algorithm_of(learner(target_noise=noise, target_noise_clip=clip))
    said: list[torch.Tensor] = []

    def listen(inputs: list[torch.Tensor], actions: torch.Tensor) -> torch.Tensor:
        said.append(actions)
        return torch.zeros(2, len(actions))

    monkeypatch.setattr(algorithm.networks["target_critic"], "forward", listen)
    sample = transitions()
    plain = algorithm.networks["target_actor"].forward(algorithm.minibatch(sample).next_inputs)
    targets_of(algorithm, sample)
    blur = said[0] - plain
    assert blur.abs().max() <= largest + 1e-6
    assert blur.std().item() == pytest.approx(deviation, rel=0.15, abs=1e-6)
    targets_of(algorithm, sample)
    assert torch.equal(said[0], said[1]) == (deviation == 0.0)


def test_blurred_target_actions_stay_in_bounds(learner, monkeypatch: pytest.MonkeyPatch) -> None:
    algorithm = algorithm_of(learner(target_noise=5.0, target_noise_clip=9.0))
    said: list[torch.Tensor] = []
    monkeypatch.setattr(
        algorithm.networks["target_critic"],
        "forward",
        lambda inputs, actions: (said.append(actions), torch.zeros(2, len(actions)))[1],
    )
    targets_of(algorithm, transitions())
    assert said[0].abs().max() == 1.0


def test_policy_and_targets_wait_for_their_turn(learner) -> None:
    algorithm = algorithm_of(learner(policy_delay=3, tau=0.25, learning_rate=0.05))
    moved = []
    for _ in range(6):
        before = vectors(algorithm)
        learn_from(algorithm, algorithm.minibatch(transitions()), rate=0.05)
        after = vectors(algorithm)
        moved.append({name for name, vector in after.items() if not torch.equal(vector, before[name])})
        for part in ("actor", "critic"):
            if f"target_{part}" in moved[-1]:
                expected = 0.75 * before[f"target_{part}"] + 0.25 * after[part]
                torch.testing.assert_close(after[f"target_{part}"], expected)
    assert moved == [{"critic"}, {"critic"}, set(after)] * 2


def test_the_policy_climbs_the_first_critic_alone(learner) -> None:
    gradients = []
    for first, second in ((1.0, 1.0), (1.0, 5.0), (5.0, 1.0)):
        algorithm = algorithm_of(learner(policy_delay=1))
        with torch.no_grad():
            algorithm.networks["critic"].q.weight.mul_(torch.tensor([first, second]).view(2, 1, 1))
        learn_from(algorithm, algorithm.minibatch(transitions()))
        gradients.append(algorithm.optimizers["actor_optimizer"].parameters.gradient.clone())
    assert torch.equal(gradients[0], gradients[1])
    assert not torch.allclose(gradients[0], gradients[2])
