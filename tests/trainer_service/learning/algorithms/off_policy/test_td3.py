"""TD3 where it differs from DDPG: its targets, its delays, and how it goes on from a checkpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from replayed import learn_from
from seeds import seeds

from trainer_service.config.hyperparameters.off_policy import TD3Settings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms.off_policy.td3 import TD3
from trainer_service.learning.replay.transitions import Sample
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS, ROWS = 4, 512


class OneDecision:
    """Episodes of one decision, in which −1 or 1 is seen and 0.6 times that is the best number."""

    def __init__(self, seed: int = 1) -> None:
        self.rng = np.random.default_rng(seed)

    def begin(self) -> StepBatch:
        self.seen = self.rng.choice([-1.0, 1.0], (AGENTS, 1)).astype(np.float32)
        return self.rows(np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        paid = -4.0 * (actions.continuous[:, 0] - 0.6 * self.seen[:, 0]) ** 2
        return concatenate(self.rows(paid, terminated=np.ones(AGENTS, np.bool_)), self.begin())

    def rows(self, rewards: np.ndarray, **ends: Any) -> StepBatch:
        ids = np.arange(AGENTS, dtype=np.int64)
        return step_batch([self.seen], rewards.astype(np.float32), agent_ids=ids, **ends)


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    def make(seed: int = 1, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 16,
            "buffer_size": 200,
            "buffer_init_steps": 24,
            "steps_per_update": 4,
            "save_replay_buffer": True,
        }
        units = changes.pop("hidden_units", 8)
        made: Behavior = make_behavior(
            continuous=1,
            seed=seed,
            trainer_type="td3",
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": units, "num_layers": 1},
            reward_signals={"extrinsic": {"gamma": 0.5, "strength": 2.0}},
            time_horizon=16,
            max_steps=10_000,
        )
        return made

    return make


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


def test_each_critic_learns_as_if_it_were_alone(learner) -> None:
    gradients = []
    for second in (0.0, 7.0):
        algorithm = algorithm_of(learner(max_grad_norm=None, target_noise=0.0))
        critics, batch = algorithm.networks["critic"], algorithm.minibatch(transitions())
        with torch.no_grad():
            critics.q.bias[1] += second
        errors = critics.forward(batch.inputs, batch.continuous_actions) - targets_of(
            algorithm, transitions()
        )
        loss = learn_from(algorithm, batch)["Losses/Value Loss"]
        assert loss == pytest.approx(errors.square().mean().item(), rel=1e-5)
        gradients.append([parameter.grad[0].clone() for parameter in critics.parameters()])
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=0)


def test_it_reports_the_policys_loss_when_that_learned(learner) -> None:
    algorithm = algorithm_of(learner(policy_delay=2))
    batch = algorithm.minibatch(transitions())
    policy, critics = algorithm.networks["actor"], algorithm.networks["critic"]
    loss = -critics.forward(batch.inputs, policy.forward(batch.inputs))[0].mean().item()
    told = [learn_from(algorithm, batch).get("Losses/Policy Loss") for _ in range(3)]
    assert told == [None, pytest.approx(loss, rel=1e-4), None]


def test_what_it_cannot_do_is_named(make_behavior) -> None:
    with pytest.raises(UserError, match="td3 needs continuous actions alone; the behavior has 0 continuous"):
        make_behavior(continuous=0, branches=(3,), trainer_type="td3", hyperparameters={})
    with pytest.raises(ValidationError, match="a multiple of the policy_delay of 2"):
        make_behavior(continuous=1, trainer_type="td3", hyperparameters={"target_update": 5})
    assert TD3Settings(target_update=6, policy_delay=3).target_update == 6


@pytest.mark.probe
@seeds(1, 2)
def test_the_number_that_pays_is_found(learner, live, choices_of, seed: int) -> None:
    behavior = learner(
        seed=seed,
        batch_size=64,
        buffer_size=4096,
        buffer_init_steps=200,
        learning_rate=0.003,
        tau=0.05,
        exploration_noise=0.3,
        hidden_units=32,
    )
    live(behavior, OneDecision(seed), 800)
    assert choices_of(behavior, [[-1.0], [1.0]]).continuous[:, 0] == pytest.approx([-0.6, 0.6], abs=0.15)
