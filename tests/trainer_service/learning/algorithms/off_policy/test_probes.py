"""Probes of learners of values: tiny worlds with a known right answer, with seeds 1 and 2, which were not picked.

DQN's actions are random there, so that every action's value is met. Of SAC, ``init_entcoef`` is 0 where a value is
asked for: no entropy is worth anything then, and values are plain returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seeds
from tiny_worlds import ALL, Bandit, Corridor, ForbiddenLater, LastSight, NeverOver, either

from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.networks.policies.deterministic_actor import ActionCritic
from trainer_service.learning.networks.policies.q_network import QNetwork
from trainer_service.learning.networks.policies.soft_actor import SoftCritics
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from unity_bridge.steps import ActionBatch

pytestmark = pytest.mark.probe

each_seed = seeds(1, 2)
CHOICES, NUMBERS = {"branches": (2,)}, {"continuous": 1}
PRIORITIZED = {"replay": {"type": "prioritized"}}
PLAIN_SAC = {"init_entcoef": 0}
# The moments of larger minibatches vary less, and so do the values.
BATCH = {"critic_norm": "batch", "batch_size": 256, "learning_rate": 0.001}
LEARNERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "dqn": ("dqn", CHOICES, {}),
    "dqn-copied": ("dqn", CHOICES, {"double": False, "target_update": 25}),
    "dqn-dueling": ("dqn", CHOICES, {"dueling": True}),
    "dqn-prioritized": ("dqn", CHOICES, PRIORITIZED),
    "dqn-three-steps": ("dqn", CHOICES, {"n_step": 3}),
    "sac": ("sac", CHOICES, PLAIN_SAC),
    "sac-prioritized": ("sac", CHOICES, {**PLAIN_SAC, **PRIORITIZED}),
    "sac-batch": ("sac", CHOICES, {**PLAIN_SAC, **BATCH}),
    "sac-numbers": ("sac", NUMBERS, PLAIN_SAC),
    "ddpg": ("ddpg", NUMBERS, {}),
    "ddpg-prioritized": ("ddpg", NUMBERS, PRIORITIZED),
    "ddpg-three-steps": ("ddpg", NUMBERS, {"n_step": 3}),
}
"""Learners by name: their trainer type, their actions and hyperparameters."""
OWN: dict[str, dict[str, Any]] = {
    "dqn": {"exploration_final": 1.0},
    "sac": {"init_entcoef": 0.1},
    "ddpg": {"buffer_init_steps": 200, "exploration_noise": 0.3},
}


def learners(*names: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("name", names)


@pytest.fixture
def learner(make_behavior) -> Callable[..., Behavior]:
    """A behavior that learns once per tick of eight agents, by its name in LEARNERS; keywords replace settings."""

    def make(name: str, seed: int, **changes: Any) -> Behavior:
        trainer_type, actions, own = LEARNERS[name]
        shared = {
            "batch_size": 64,
            "buffer_size": 4096,
            "learning_rate": 0.003,
            "tau": 0.05,
            "steps_per_update": 8,
        }
        signal = {"gamma": changes.pop("gamma", 0.5), "strength": changes.pop("strength", 1.0)}
        horizon, normalize = changes.pop("time_horizon", 64), changes.pop("normalize", False)
        actions = {key: changes.pop(key) for key in ("branches", "continuous") if key in changes} or actions
        made: Behavior = make_behavior(
            seed=seed,
            trainer_type=trainer_type,
            hyperparameters={**shared, **OWN[trainer_type], **own, **changes},
            network_settings={"hidden_units": 32, "num_layers": 2, "normalize": normalize},
            reward_signals={"extrinsic": signal},
            time_horizon=horizon,
            max_steps=10**6,
            **actions,
        )
        return made

    return make


def values(behavior: Behavior, observations: Sequence[float], number: float = 0.0) -> np.ndarray:
    """Values of each choice, or of a number. Shape [observations, choices or 1]."""
    spec, network, hyper = (
        behavior.spec,
        behavior.settings.network_settings,
        behavior.settings.hyperparameters,
    )
    state, seen = checkpoint_of(behavior).algorithm, torch.tensor([*map(float, observations)])[:, None]
    if network.normalize:
        moments = state["normalizer"]
        name = next(key for key in moments if key.endswith("mean")).removesuffix("mean")
        scale = (moments[f"{name}sum_squares"] / moments[f"{name}rows"]).sqrt()
        seen = ((seen - moments[f"{name}mean"]) / scale).float()
    done = torch.full((len(seen), spec.action_spec.continuous_size), number)
    with torch.inference_mode():
        if behavior.settings.trainer_type == "dqn":
            q = QNetwork(spec, network, dueling=hyper.dueling)
            q.load_state_dict(state["network"])
            return q.outputs([seen]).numpy()
        if behavior.settings.trainer_type == "sac":
            critics = SoftCritics(spec, network, value_heads=1, norm=hyper.critic_norm)
            critics.load_state_dict(state["critics"])
            return critics.forward(EncoderInput([seen]), done)[0, :, 0].numpy()
        critic = ActionCritic(spec, network)
        critic.load_state_dict(state["critic"])
        return critic.forward(EncoderInput([seen]), done)[:, None].numpy()


@each_seed
@learners("sac-prioritized", "sac-numbers", "ddpg", "ddpg-prioritized")
def test_the_value_of_an_observed_reward_is_that_reward(learner, live, seed: int, name: str) -> None:
    behavior = learner(name, seed, normalize=name == "sac-numbers")
    choices = behavior.spec.action_spec.mask_size
    live(behavior, Bandit(seed, lambda seen, actions: seen, either, choices=choices), 125)
    for number in (-0.5, 0.5):
        assert values(behavior, [-1.0, 1.0], number).mean(axis=1) == pytest.approx([-1.0, 1.0], abs=0.15)


@each_seed
@learners("dqn", "dqn-copied", "dqn-dueling", "dqn-prioritized", "dqn-three-steps")
def test_each_choice_is_worth_what_it_pays(learner, live, seed: int, name: str) -> None:
    behavior = learner(name, seed)
    live(behavior, Bandit(seed, lambda seen, actions: seen * actions.discrete[:, 0], either), 125)
    assert values(behavior, [-1.0, 1.0]) == pytest.approx(np.array([[0.0, -1.0], [0.0, 1.0]]), abs=0.12)


@each_seed
@pytest.mark.parametrize(
    ("name", "length", "time_horizon", "updates"),
    [
        *((name, 3, 64, 175) for name in ("dqn", "dqn-copied", "dqn-dueling", "dqn-prioritized")),
        ("dqn-three-steps", 3, 64, 175),
        ("sac", 2, 1, 150),
        ("sac", 2, 64, 150),
        ("sac-batch", 2, 64, 1200),
    ],
)
def test_a_reward_to_come_is_worth_less(
    learner, live, seed: int, name: str, length: int, time_horizon: int, updates: int
) -> None:
    behavior = learner(name, seed, time_horizon=time_horizon)
    live(behavior, Corridor(length), updates)
    worth = [0.5**later for later in reversed(range(length))]
    assert values(behavior, range(length)).mean(axis=1) == pytest.approx(worth, abs=0.1)


@each_seed
@pytest.mark.parametrize(("time_horizon", "n_step"), [(1, 1), (64, 1), (64, 2)])
def test_a_return_one_step_ahead_is_worth_gamma(
    learner, live, choices_of, seed: int, time_horizon: int, n_step: int
) -> None:
    noise = 0.1 if n_step > 1 else 0.3  # two steps at once pay what was done then, not what is right
    changes = {"n_step": n_step, "exploration_noise": noise, "buffer_size": 1024}
    behavior = learner("ddpg", seed, time_horizon=time_horizon, **changes)
    world = Corridor(2, lambda seen, does: 1.0 - (does.continuous[:, 0] - 0.5) ** 2, choices=0)
    live(behavior, world, 250)
    assert choices_of(behavior, [[1.0]]).continuous[0, 0] == pytest.approx(0.5, abs=0.15)
    assert values(behavior, [0.0]) == pytest.approx(0.5, abs=0.12)


@each_seed
@pytest.mark.parametrize(
    ("name", "time_horizon", "updates"),
    [
        ("dqn", 2, 150),
        ("dqn-three-steps", 64, 150),
        ("sac", 3, 150),
        ("sac", 64, 150),
        ("ddpg", 64, 100),
        ("ddpg-three-steps", 64, 100),
    ],
)
def test_truncation_bootstraps(learner, live, seed: int, name: str, time_horizon: int, updates: int) -> None:
    # 1 + γ + γ² + … = 1/(1 − γ) = 2.
    behavior = learner(name, seed, time_horizon=time_horizon)
    live(behavior, NeverOver("truncated", choices=behavior.spec.action_spec.mask_size), updates)
    assert values(behavior, [0.0]).mean() == pytest.approx(2.0, abs=0.15)


@each_seed
@pytest.mark.parametrize(("name", "updates"), [("dqn", 150), ("sac", 150), ("ddpg", 100)])
def test_termination_does_not_bootstrap(learner, live, seed: int, name: str, updates: int) -> None:
    behavior = learner(name, seed)
    live(behavior, NeverOver("terminated", choices=behavior.spec.action_spec.mask_size), updates)
    # One step in five ends: Q = 1 + ½ · ⅘ Q.
    assert values(behavior, [0.0]).mean() == pytest.approx(1.0 / 0.6, abs=0.15)


@each_seed
@learners("dqn", "dqn-three-steps", "sac")
def test_an_interrupted_step_is_worth_what_was_seen_last(learner, live, seed: int, name: str) -> None:
    # Not what was seen when it was decided, which leads nowhere: 0 = ½ · 0.
    behavior = learner(name, seed)
    live(behavior, LastSight(seed), 125)
    assert values(behavior, [0.0, 1.0]).mean(axis=1) == pytest.approx([0.5, 1.0], abs=0.1)


@each_seed
@pytest.mark.parametrize(("name", "updates"), [("dqn", 175), ("dqn-copied", 175), ("sac", 150)])
@pytest.mark.parametrize("time_horizon", [1, 64], ids=["cut", "whole"])
def test_what_is_forbidden_next_is_worth_nothing_now(
    learner, live, seed: int, name: str, updates: int, time_horizon: int
) -> None:
    behavior, world = learner(name, seed, time_horizon=time_horizon), ForbiddenLater(seed)
    live(behavior, world, updates)
    assert values(behavior, [-1.0, 1.0]).mean(axis=1) == pytest.approx([0.0, 1.0], abs=0.2)
    assert world.broken == 0


@each_seed
def test_strength_scales_values(learner, live, seed: int) -> None:
    behavior = learner("dqn", seed, strength=-2.0)
    live(behavior, Bandit(seed, lambda seen, actions: seen, either), 250)
    assert values(behavior, [-1.0, 1.0]).mean(axis=1) == pytest.approx([2.0, -2.0], abs=0.2)


@each_seed
def test_advantage_learning_doubles_what_the_worse_choice_lacks(learner, live, seed: int) -> None:
    behavior = learner("dqn", seed, advantage_learning=0.5)
    live(behavior, Bandit(seed, lambda seen, actions: seen * actions.discrete[:, 0], either), 250)
    assert values(behavior, [-1.0, 1.0]) == pytest.approx(np.array([[0.0, -2.0], [-1.0, 1.0]]), abs=0.15)


@each_seed
def test_advantage_learning_compares_with_what_is_allowed(learner, live, seed: int) -> None:
    # Half of the agents may not choose 1, which pays. Of all choices of 0 a third is of those that may:
    # Q(0) = ⅓ · ½ (Q(0) − 1), so −0.2; it would be −1 if everyone's were compared with 1.
    behavior = learner("dqn", seed, advantage_learning=0.5)
    may = np.stack([ALL, np.arange(len(ALL)) % 2 == 1], axis=1)
    live(
        behavior, Bandit(seed, lambda seen, actions: actions.discrete[:, 0], either, allow=lambda _: may), 250
    )
    assert values(behavior, [-1.0, 1.0]) == pytest.approx(np.array([[-0.2, 1.0]] * 2), abs=0.12)


@each_seed
def test_of_several_branches_each_finds_its_best(learner, live, choices_of, seed: int) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        return 1.0 * (actions.discrete[:, 0] == (seen > 0)) + (actions.discrete[:, 1] == 2 * (seen > 0))

    behavior = learner("dqn", seed, branches=(2, 3))
    live(behavior, Bandit(seed, pay, either, choices=5), 150)
    assert choices_of(behavior, [[-1.0], [1.0]]).discrete.tolist() == [[0, 0], [1, 2]]
    q = values(behavior, [1.0])[0]
    assert q[:2].max() + q[2:].max() == pytest.approx(2.0, abs=0.2)


@each_seed
def test_it_ends_up_doing_what_pays(learner, live, seed: int) -> None:
    behavior = learner("dqn", seed, exploration_final=0.0, exploration_steps=800)
    paid: list[float] = []

    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        earned = 1.0 * (actions.discrete[:, 0] == (seen > 0))
        paid.append(float(earned.mean()))
        return earned

    live(behavior, Bandit(seed, pay, either), 250)
    assert np.mean(paid[:20]) < 0.8
    assert np.mean(paid[-50:]) == 1.0


@each_seed
def test_the_choice_that_pays_is_taken(learner, live, choices_of, seed: int) -> None:
    behavior = learner("sac-prioritized", seed, gamma=0.99, init_entcoef=0.1)
    live(behavior, Bandit(seed, lambda seen, actions: actions.discrete[:, 0]), 150)
    assert choices_of(behavior, [[0.0]]).discrete.tolist() == [[1]]


@each_seed
@pytest.mark.parametrize(
    ("name", "changes", "updates"),
    [
        ("ddpg", {}, 400),
        ("sac-numbers", {"init_entcoef": 0.1}, 400),
        ("sac-numbers", {"init_entcoef": 0.1, **BATCH}, 1200),
    ],
    ids=["ddpg", "sac", "sac-batch"],
)
def test_the_number_that_pays_is_found_in_each_situation(
    learner, live, choices_of, seed: int, name: str, changes: dict[str, Any], updates: int
) -> None:
    behavior = learner(name, seed, gamma=0.99, **changes)
    world = Bandit(
        seed, lambda seen, does: -4.0 * (does.continuous[:, 0] - 0.6 * seen) ** 2, either, choices=0
    )
    live(behavior, world, updates)
    assert choices_of(behavior, [[-1.0], [1.0]]).continuous[:, 0] == pytest.approx([-0.6, 0.6], abs=0.15)


@each_seed
def test_a_forbidden_choice_is_never_taken_however_well_it_pays(learner, live, choices_of, seed: int) -> None:
    broken = 0

    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        nonlocal broken
        broken += int(np.count_nonzero((actions.discrete[:, 0] == 2) & (seen < 0)))
        return actions.discrete[:, 0]

    behavior = learner("sac", seed, branches=(3,), gamma=0.99, init_entcoef=0.1)
    live(behavior, Bandit(seed, pay, either, allow=lambda seen: np.stack([ALL, ALL, seen > 0], axis=1)), 125)
    assert broken == 0
    allowed = np.array([[True, True, False], [True, True, True]])
    assert choices_of(behavior, [[-1.0], [1.0]], allowed=allowed).discrete.tolist() == [[1], [2]]


@each_seed
def test_numbers_and_choices_are_learned_together(learner, live, choices_of, seed: int) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        near = -2.0 * np.square(actions.continuous[:, 0] - 0.5 * seen)
        first, second = actions.discrete[:, 0] == (seen > 0), actions.discrete[:, 1] == 2 * (seen > 0)
        return near + first + second

    behavior = learner("sac", seed, continuous=1, branches=(2, 3), gamma=0.99, init_entcoef=0.1)
    live(behavior, Bandit(seed, pay, either, choices=5), 200)
    chosen = choices_of(behavior, [[-1.0], [1.0]])
    assert chosen.discrete.tolist() == [[0, 0], [1, 2]]
    assert chosen.continuous[:, 0] == pytest.approx([-0.5, 0.5], abs=0.15)


@each_seed
def test_temperatures_hold_every_kind_of_entropy_where_it_shall_be(learner, live, seed: int) -> None:
    # One of two choices pays: −Σ π ln π = 0.2 ln 2 is asked for. Of numbers: −ln π(a) = −1.
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        return actions.discrete[:, 0] - 4.0 * actions.continuous[:, 0] ** 2

    hyper = {"gamma": 0.99, "init_entcoef": 0.1, "learning_rate": 0.005}
    behavior, world = learner("sac", seed, continuous=1, branches=(2,), **hyper), Bandit(seed, pay)
    live(behavior, world, 400)
    behavior.summarize(0.0)
    live(behavior, world, 200)
    entropy = behavior.summarize(0.0).series["Policy/Entropy"].mean
    assert entropy == pytest.approx(0.2 * np.log(2) - 1.0, abs=0.2)


@each_seed
def test_without_an_entropy_coefficient_there_never_is_one(learner, live, seed: int) -> None:
    behavior = learner("sac", seed)
    live(behavior, Bandit(seed, lambda seen, actions: actions.discrete[:, 0]), 60)
    assert behavior.summarize(0.0).series["Policy/Discrete Entropy Coeff"].mean == 0.0
