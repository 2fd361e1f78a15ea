"""Tiny worlds with a known right answer, in which one agent learns: each breaks for one reason only.

DQN's actions are random there, so that every action's value is met. Of SAC, ``init_entcoef`` is 0 where a value is
asked for: no entropy is worth anything then, and values are plain returns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from seeds import quick_where
from tiny_worlds import ALL, Bandit, Corridor, ForbiddenLater, LastSight, NeverOver, either

from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.steps import ActionBatch

pytestmark = pytest.mark.probe

CHOICES, NUMBERS = {"branches": (2,)}, {"continuous": 1}
ROLLOUTS = {
    "batch_size": 64, "buffer_size": 256, "num_epoch": 4, "learning_rate": 0.005, "beta": 0.001,
    "learning_rate_schedule": "constant",
}  # fmt: skip
REPLAY = {"batch_size": 64, "buffer_size": 4096, "steps_per_update": 8, "learning_rate": 0.003, "tau": 0.05}
VALUES = {**REPLAY, "exploration_final": 1.0}
SOFT = {**REPLAY, "init_entcoef": 0}
SLOPES = {**REPLAY, "buffer_init_steps": 200, "exploration_noise": 0.3}
# The moments of larger minibatches vary less, and so do the values.
BATCH = {"critic_norm": "batch", "batch_size": 256, "learning_rate": 0.001}
LEARNERS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ppo": ("ppo", CHOICES, ROLLOUTS),
    "ppo-shared": ("ppo", CHOICES, {**ROLLOUTS, "shared_critic": True}),
    "dqn": ("dqn", CHOICES, VALUES),
    "dqn-dueling": ("dqn", CHOICES, {**VALUES, "dueling": True, "double": False, "target_update": 25}),
    "dqn-three-steps": ("dqn", CHOICES, {**VALUES, "n_step": 3}),
    "sac": ("sac", CHOICES, SOFT),
    "sac-prioritized": ("sac", CHOICES, {**SOFT, "replay": {"type": "prioritized"}}),
    "sac-batch": ("sac", CHOICES, {**SOFT, **BATCH}),
    "sac-numbers": ("sac", NUMBERS, SOFT),
    "ddpg": ("ddpg", NUMBERS, SLOPES),
}
"""Learners by name: their trainer type, their actions and hyperparameters."""


@pytest.fixture
def learner(small) -> Callable[..., Behavior]:
    """A learner from LEARNERS for eight agents; keywords replace settings."""

    def make(name: str, **changes: Any) -> Behavior:
        trainer_type, body, own = LEARNERS[name]
        if "branches" in changes or "continuous" in changes:
            body = {}
        network = {"units": 16, "layers": 1} if trainer_type == "ppo" else {"units": 32, "layers": 2}
        made: Behavior = small(
            trainer_type, **{"gamma": 0.5, "time_horizon": 64, **network, **body, **own, **changes}
        )
        return made

    return make


def values(behavior: Behavior, observations: Sequence[float], number: float = 0.0) -> np.ndarray:
    """Values of each choice, of a number, or of what is seen. Shape [observations, choices or 1]."""
    kind, learner = behavior.settings.trainer_type, behavior.learner
    networks: Any = learner.networks  # type: ignore[attr-defined]
    done = torch.full((len(observations), behavior.spec.action_spec.continuous_size), number)
    with torch.inference_mode():
        seen = learner.actor.normalizer.forward([torch.tensor([*map(float, observations)])[:, None]])
        if kind == "ppo":
            found = networks["network"].values(seen)
        elif kind == "dqn":
            found = networks["network"].outputs(seen)
        elif kind == "sac":
            found = networks["critics"].forward(EncoderInput(seen), done)[0, :, 0]
        else:
            found = networks["critic"].forward(EncoderInput(seen), done)[:, None]
        result: np.ndarray = found.numpy()
        return result


def choices_in(behavior: Behavior) -> int:
    return behavior.spec.action_spec.mask_size


@pytest.mark.parametrize(
    ("name", "updates"),
    [
        ("ppo", 15),
        ("ddpg", 125),
        quick_where(False, "sac-prioritized", 125),
        quick_where(False, "sac-numbers", 125),
    ],
)
def test_the_value_of_an_observed_reward_is_that_reward(learner, live, name: str, updates: int) -> None:
    behavior = learner(name, normalize=name in ("ppo", "sac-numbers"))
    live(behavior, Bandit(1, lambda seen, actions: seen, either, choices=choices_in(behavior)), updates)
    for number in (-0.5, 0.5):
        assert values(behavior, [-1.0, 1.0], number).mean(axis=1) == pytest.approx([-1.0, 1.0], abs=0.15)


@pytest.mark.parametrize("name", ["dqn-dueling", quick_where(False, "dqn")])
def test_each_choice_is_worth_what_it_pays(learner, live, name: str) -> None:
    behavior = learner(name)
    live(behavior, Bandit(1, lambda seen, actions: seen * actions.discrete[:, 0], either), 125)
    assert values(behavior, [-1.0, 1.0]) == pytest.approx(np.array([[0.0, -1.0], [0.0, 1.0]]), abs=0.12)


@pytest.mark.parametrize(
    ("name", "length", "time_horizon", "updates"),
    [
        ("ppo", 2, 1, 20),  # with a horizon of 1, a value is bootstrapped from the next one alone
        quick_where(False, "ppo", 2, 64, 20),
        ("dqn-three-steps", 3, 64, 175),
        ("sac", 2, 1, 150),
        quick_where(False, "sac-batch", 2, 64, 1200),
    ],
)
def test_a_reward_to_come_is_worth_less(
    learner, live, name: str, length: int, time_horizon: int, updates: int
) -> None:
    behavior = learner(name, time_horizon=time_horizon)
    live(behavior, Corridor(length), updates)
    worth = [0.5**later for later in reversed(range(length))]
    assert values(behavior, range(length)).mean(axis=1) == pytest.approx(worth, abs=0.1)


@pytest.mark.parametrize(
    ("name", "time_horizon", "updates"),
    [
        ("ppo", 3, 30),
        ("sac", 3, 150),
        quick_where(False, "dqn-three-steps", 64, 150),
        quick_where(False, "ddpg", 64, 100),
    ],
)
def test_truncation_bootstraps(learner, live, name: str, time_horizon: int, updates: int) -> None:
    # 1 + γ + γ² + … = 1/(1 − γ) = 2.
    behavior = learner(name, time_horizon=time_horizon)
    live(behavior, NeverOver("truncated", choices=choices_in(behavior)), updates)
    assert values(behavior, [0.0]).mean() == pytest.approx(2.0, abs=0.15)


@pytest.mark.parametrize(("name", "updates"), [("ppo", 30), ("dqn", 150), quick_where(False, "sac", 150)])
def test_termination_does_not_bootstrap(learner, live, name: str, updates: int) -> None:
    behavior = learner(name)
    live(behavior, NeverOver("terminated", choices=choices_in(behavior)), updates)
    # One step in five ends, so Q = 1 + ½ · ⅘ Q is 1.67; the mean of the five returns is 1.61.
    assert values(behavior, [0.0]).mean() == pytest.approx(1.64, abs=0.15)


@pytest.mark.parametrize("name", ["sac", quick_where(False, "dqn")])
def test_an_interrupted_step_is_worth_what_was_seen_last(learner, live, name: str) -> None:
    # Not what was seen when it was decided, which leads nowhere: 0 = ½ · 0.
    behavior = learner(name)
    live(behavior, LastSight(1), 125)
    assert values(behavior, [0.0, 1.0]).mean(axis=1) == pytest.approx([0.5, 1.0], abs=0.1)


@pytest.mark.parametrize(
    ("name", "updates", "time_horizon"), [("dqn", 175, 1), quick_where(False, "sac", 150, 64)]
)
def test_what_is_forbidden_next_is_worth_nothing_now(
    learner, live, name: str, updates: int, time_horizon: int
) -> None:
    behavior, world = learner(name, time_horizon=time_horizon), ForbiddenLater(1)
    live(behavior, world, updates)
    assert values(behavior, [-1.0, 1.0]).mean(axis=1) == pytest.approx([0.0, 1.0], abs=0.2)
    assert world.broken == 0


def test_advantage_learning_compares_with_what_is_allowed(learner, live) -> None:
    # Half of the agents may not choose 1, which pays. Of all choices of 0 a third is of those that may:
    # Q(0) = ⅓ · ½ (Q(0) − 1), so −0.2; it would be −1 if everyone's were compared with 1.
    behavior = learner("dqn", advantage_learning=0.5)
    may = np.stack([ALL, np.arange(len(ALL)) % 2 == 1], axis=1)
    world = Bandit(1, lambda seen, actions: actions.discrete[:, 0], either, allow=lambda _: may)
    live(behavior, world, 250)
    assert values(behavior, [-1.0, 1.0]) == pytest.approx(np.array([[-0.2, 1.0]] * 2), abs=0.12)


def test_of_several_branches_each_finds_its_best(learner, live, choices_of) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        return 1.0 * (actions.discrete[:, 0] == (seen > 0)) + (actions.discrete[:, 1] == 2 * (seen > 0))

    behavior = learner("dqn", branches=(2, 3))
    live(behavior, Bandit(1, pay, either, choices=5), 150)
    assert choices_of(behavior, [[-1.0], [1.0]]).discrete.tolist() == [[0, 0], [1, 2]]
    q = values(behavior, [1.0])[0]
    assert q[:2].max() + q[2:].max() == pytest.approx(2.0, abs=0.2)


@pytest.mark.parametrize(
    ("name", "changes", "updates"),
    [
        quick_where(False, "ddpg", {}, 400),
        ("sac-numbers", {"init_entcoef": 0.1}, 400),
        quick_where(False, "sac-numbers", {"init_entcoef": 0.1, **BATCH}, 1200),
    ],
    ids=["ddpg", "sac", "sac-batch"],
)
def test_the_number_that_pays_is_found_in_each_situation(
    learner, live, choices_of, name: str, changes: dict[str, Any], updates: int
) -> None:
    behavior = learner(name, gamma=0.99, **changes)
    world = Bandit(1, lambda seen, does: -4.0 * (does.continuous[:, 0] - 0.6 * seen) ** 2, either, choices=0)
    live(behavior, world, updates)
    assert choices_of(behavior, [[-1.0], [1.0]]).continuous[:, 0] == pytest.approx([-0.6, 0.6], abs=0.15)


@pytest.mark.parametrize(
    ("name", "changes", "updates"), [("ppo", {}, 20), ("sac", {"init_entcoef": 0.1}, 125)]
)
def test_a_forbidden_choice_is_never_taken_however_well_it_pays(
    learner, live, choices_of, name: str, changes: dict[str, Any], updates: int
) -> None:
    broken = 0

    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        nonlocal broken
        broken += int(np.count_nonzero((actions.discrete[:, 0] == 2) & (seen < 0)))
        return actions.discrete[:, 0]

    behavior = learner(name, branches=(3,), gamma=0.99, **changes)
    live(behavior, Bandit(1, pay, either, allow=lambda seen: np.stack([ALL, ALL, seen > 0], axis=1)), updates)
    assert broken == 0
    allowed = np.array([[True, True, False], [True, True, True]])
    assert choices_of(behavior, [[-1.0], [1.0]], allowed=allowed).discrete.tolist() == [[1], [2]]


@pytest.mark.parametrize(
    ("name", "changes", "updates"), [("ppo", {}, 50), quick_where(False, "sac", {"init_entcoef": 0.1}, 200)]
)
def test_numbers_and_choices_are_learned_together(
    learner, live, choices_of, name: str, changes: dict[str, Any], updates: int
) -> None:
    def pay(seen: np.ndarray, actions: ActionBatch) -> np.ndarray:
        near = -np.square(actions.continuous[:, 0] - 0.5 * seen)
        first, second = actions.discrete[:, 0] == (seen > 0), actions.discrete[:, 1] == 2 * (seen > 0)
        return (1.0 if name == "ppo" else 2.0) * near + 0.3 * first + 0.3 * second

    behavior = learner(name, continuous=1, branches=(2, 3), gamma=0.99, **changes)
    live(behavior, Bandit(1, pay, either, choices=5), updates)
    chosen = choices_of(behavior, [[-1.0], [1.0]])
    assert chosen.discrete.tolist() == [[0, 0], [1, 2]]
    assert chosen.continuous[:, 0] == pytest.approx([-0.5, 0.5], abs=0.15)
