"""Learners on policy that correct for rollouts of an older policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from short_episodes import SENSOR, ShortEpisodes

from trainer_service.errors import UserError
from trainer_service.learning.algorithms.common.on_policy import learner as base
from trainer_service.learning.algorithms.common.on_policy import rollout as rollouts
from trainer_service.learning.algorithms.common.on_policy.rollout import Rollout, parts_in_order
from trainer_service.learning.algorithms.on_policy import ppo
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick

AGENTS, CHOICES = 8, 2
LEARNERS = ("ppo", "mappo", "happo", "poca")
MEMORY = {"memory_size": 6, "sequence_length": 4}

learners = pytest.mark.parametrize("learner", LEARNERS)
with_memory_or_not = pytest.mark.parametrize(
    ("learner", "memory"),
    [("ppo", None), ("ppo", MEMORY), ("mappo", MEMORY), ("happo", None), ("poca", MEMORY)],
)


@pytest.fixture
def pairs(small: Callable[..., Behavior]) -> Callable[..., Behavior]:
    """A behavior for pairs."""
    body = {"sizes": (SENSOR,), "branches": (CHOICES,), "units": 16, "time_horizon": 8, "decoupled": True}
    sizes = {"batch_size": 40, "buffer_size": 128, "num_epoch": 2, "learning_rate_schedule": "constant"}

    def make(learner: str, **changes: Any) -> Behavior:
        group = {} if learner == "ppo" else {"group_size": 2}
        return small(learner, **{**body, **sizes, **group, **changes})

    return make


def world_of(behavior: Behavior) -> ShortEpisodes:
    return ShortEpisodes(behavior.spec.action_spec, AGENTS)


def networks(behavior: Behavior) -> torch.Tensor:
    learner: Any = behavior.learner
    return torch.cat(
        [
            weights.detach().flatten()
            for network in learner.networks.values()
            for weights in network.parameters()
        ]
    ).clone()


def collect(behavior: Behavior, world: ShortEpisodes) -> None:
    """Lets a behavior live until it could update."""
    batch = world.begin()
    observe(behavior, BehaviorTick(0, 0, batch))
    while not behavior.ready_to_update():
        observe(behavior, BehaviorTick(0, 0, world.step(behavior.collector.act()[0])))


def turn(behavior: Behavior, *probabilities: float) -> None:
    """Gives all actors these probabilities of either choice, whatever they see."""
    learner: Any = behavior.learner
    policy = learner.actor.network
    for heads in (policy.actions,) if hasattr(policy, "critic") else (actor.actions for actor in policy):
        with torch.no_grad():
            heads.logits.weight.zero_()
            heads.logits.bias.copy_(torch.tensor(probabilities).log())


def decoupled_in_an_update(behavior: Behavior, monkeypatch: pytest.MonkeyPatch) -> list[Rollout]:
    """Lets a behavior update. Returns what ``decouple`` made of its rollouts."""
    heard: list[Rollout] = []

    def listen(*given: Any) -> Rollout:
        heard.append(rollouts.decouple(*given))
        return heard[-1]

    for module in (ppo, base):
        monkeypatch.setattr(module, "decouple", listen)
    behavior.update()
    return heard


def actors(behavior: Behavior) -> torch.Tensor:
    """The weights that the actors' loss alone moves."""
    policy: Any = behavior.learner.actor.network
    trunk = policy.actor if hasattr(policy, "critic") else policy
    return torch.cat([weights.detach().flatten() for weights in trunk.parameters()]).clone()


def statistics(behavior: Behavior) -> dict[str, float]:
    return {tag: series.value for tag, series in behavior.summarize(0.0).series.items()}


@with_memory_or_not
def test_on_fresh_rollouts_the_correction_changes_nothing(pairs, live, learner: str, memory: Any) -> None:
    found = []
    for decoupled in (False, True):
        behavior = pairs(learner, decoupled=decoupled, memory=memory, continuous=1)
        before = networks(behavior)
        live(behavior, world_of(behavior), 1)
        found.append(networks(behavior))
        assert float((found[-1] - before).abs().max()) > 1e-4
    torch.testing.assert_close(found[0], found[1], atol=1e-5, rtol=0)
    metrics = statistics(behavior)
    assert metrics["Policy/Importance Weight"] == pytest.approx(1.0, abs=1e-5)
    assert metrics["Policy/Clipped Weights"] == 0.0


def test_a_learner_without_the_correction_refuses_stale_rollouts(pairs) -> None:
    pairs("coma", decoupled=False, num_epoch=1)
    with pytest.raises(UserError, match=r"coma cannot learn from rollouts of an older policy.*'sync'"):
        pairs("coma", num_epoch=1)


@learners
def test_without_the_switch_nothing_is_computed_or_reported(pairs, monkeypatch, learner: str) -> None:
    behavior = pairs(learner, decoupled=False)
    collect(behavior, world_of(behavior))
    assert decoupled_in_an_update(behavior, monkeypatch) == []
    assert not {tag for tag in statistics(behavior) if "Weight" in tag}


@learners
def test_stale_steps_are_weighed_and_the_present_policy_becomes_the_old_one(
    pairs, monkeypatch, learner: str
) -> None:
    """Both choices were as likely; now the first has 3/4. Their weights are 3/2 and 1/2."""
    behavior = pairs(learner, learning_rate=1e-12)
    algorithm: Any = behavior.learner
    turn(behavior, 0.5, 0.5)
    collect(behavior, world_of(behavior))
    chosen = algorithm.buffer.peek().discrete_actions[:, 0]
    turn(behavior, 0.75, 0.25)
    (rollout,) = decoupled_in_an_update(behavior, monkeypatch)
    torch.testing.assert_close(
        rollout.old_log_prob, torch.from_numpy(np.where(chosen == 0, 0.75, 0.25).astype(np.float32)).log()
    )
    expected = np.where(chosen == 0, 1.5, 0.5)
    assert rollout.weights is not None
    assert rollout.weights.numpy() == pytest.approx(expected, rel=1e-5)
    metrics = statistics(behavior)
    assert metrics["Policy/Importance Weight"] == pytest.approx(expected.mean(), rel=1e-5)
    assert metrics["Policy/Clipped Weights"] == 0.0
    # Ratios begin at 1 again, however far the policy has moved since it acted.
    assert metrics["Policy/KL Divergence"] == pytest.approx(0.0, abs=1e-6)
    assert metrics["Policy/Clip Fraction"] == 0.0


@learners
def test_advantages_carry_the_weights(pairs, monkeypatch, learner: str) -> None:
    learned = []
    for weight in (1.0, 0.0):
        behavior = pairs(learner, beta=0.0)
        collect(behavior, world_of(behavior))
        monkeypatch.setattr(
            rollouts,
            "importance_weights",
            lambda log_ratio, weight=weight: torch.full_like(log_ratio, weight),
        )
        before = actors(behavior)
        behavior.update()
        learned.append(float((actors(behavior) - before).abs().max()))
    assert learned[0] > 1e-4
    assert learned[1] == 0.0


def test_parts_of_a_rollout_with_memory_are_whole_sequences() -> None:
    filled = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]], dtype=torch.bool)
    memories = torch.arange(6.0).view(3, 2)
    parts = list(parts_in_order(6, Sequences(memories, filled), 6))
    assert [part for part, _ in parts] == [slice(0, 4), slice(4, 6)]
    sequences = [cut for _, cut in parts if cut is not None]
    assert torch.equal(torch.cat([cut.memories for cut in sequences]), memories)
    assert torch.equal(torch.cat([cut.filled for cut in sequences]), filled)
    # A sequence that is longer than so many rows is not cut.
    assert [part for part, _ in parts_in_order(6, Sequences(memories, filled), 1)] == [
        slice(0, 3),
        slice(3, 4),
        slice(4, 6),
    ]


@with_memory_or_not
def test_any_number_of_rows_at_once_gives_the_same_log_probabilities(
    pairs, monkeypatch, learner: str, memory: Any
) -> None:
    behavior = pairs(learner, memory=memory, continuous=1, learning_rate=1e-12)
    algorithm: Any = behavior.learner
    collect(behavior, world_of(behavior))
    stored = torch.from_numpy(algorithm.buffer.peek().log_probs.copy())
    monkeypatch.setattr(rollouts, "rows_at_once", lambda network: 7)
    (rollout,) = decoupled_in_an_update(behavior, monkeypatch)
    torch.testing.assert_close(rollout.old_log_prob, stored, atol=1e-5, rtol=0)
