"""Learners of agents that communicate: their targets, the averaging of heads, and acting by group."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from replayed import learn_from
from torch import Tensor

from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.algorithms.common.off_policy.head_consensus import HeadConsensus
from trainer_service.learning.networks.groups.shared_features import SharedFeaturesNetwork
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

COPIES = 4


class Walk:
    """Everyone sees a number and is paid it if it says 1. Nothing ends, but the first agent's task, now and then."""

    def __init__(self, agents: int, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.agents = agents
        self.ids = np.arange(agents * COPIES)
        self.seen = np.zeros(len(self.ids))
        self.time = 0

    def begin(self) -> StepBatch:
        self.seen = self.rng.normal(size=len(self.ids))
        return self.rows(self.ids, np.zeros(len(self.ids)))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        paid = self.seen * actions.discrete[:, 0]
        self.seen = self.rng.normal(size=len(self.ids))
        if self.time % 5:
            return self.rows(self.ids, paid)
        first = self.ids[:: self.agents]
        return concatenate(self.rows(first, paid, ended=True), self.rows(self.ids, paid))

    def rows(self, ids: np.ndarray, paid: np.ndarray, *, ended: bool = False) -> StepBatch:
        return step_batch(
            [self.seen[ids][:, None].astype(np.float32)],
            paid[ids].astype(np.float32),
            agent_ids=ids,
            allowed_actions=np.ones((len(ids), 2), np.bool_),
            group_ids=1 + ids // self.agents,
            terminated=np.full(len(ids), ended),
        )


def make(small, trainer_type: str, agents: int, **changes: Any) -> Behavior:
    sizes = {"batch_size": 16, "buffer_size": 500, "steps_per_update": agents, "group_size": agents}
    made: Behavior = small(trainer_type, normalize=True, gamma=0.9, time_horizon=8, **{**sizes, **changes})
    return made


@pytest.fixture
def lived(small, live):
    """A behavior that has learned from its world so many times."""

    def run(trainer_type: str, agents: int = 2, updates: int = 3, **changes: Any) -> Behavior:
        behavior = make(small, trainer_type, agents, **changes)
        live(behavior, Walk(agents, 1), updates)
        return behavior

    return run


def learner_of(behavior: Behavior) -> GroupQLearner:
    learner = behavior.learner
    assert isinstance(learner, GroupQLearner)
    return learner


def heads_of(network: torch.nn.Module) -> Tensor:
    assert isinstance(network, SharedFeaturesNetwork)
    critic = network.critic
    return torch.cat([critic.weight.detach().flatten(1), critic.bias.detach().flatten(1)], dim=1)


def test_adams_memory_of_the_heads_becomes_the_mean(lived) -> None:
    learner = learner_of(lived("dqn_consensus", 3, 4, consensus_every=10**6))
    network = learner.networks["network"].network
    assert isinstance(network, SharedFeaturesNetwork)
    adam = learner.optimizers["optimizer"].adam
    watched = (network.critic.weight, *adam.moments(network.critic.weight))
    expected = [each.detach().mean(dim=0) for each in watched]
    others = network.advantage.weight.detach().clone()
    HeadConsensus(network, adam, 1).average()
    for each, mean in zip(watched, expected, strict=True):
        assert all(torch.equal(of_one, mean) for of_one in each)
    assert torch.equal(network.advantage.weight, others)


@pytest.mark.parametrize("steps_per_update", [0.5, 7])
def test_they_agree_whenever_so_many_joint_steps_came(
    small, live, monkeypatch: pytest.MonkeyPatch, steps_per_update: float
) -> None:
    agreed: list[int] = []
    monkeypatch.setattr(HeadConsensus, "average", lambda each: agreed.append(each.checked_at))
    changes = {"consensus_every": 25, "steps_per_update": 2 * steps_per_update}
    state = None
    for least in (50, 100):  # a run, and the run that resumes it
        behavior = make(small, "dqn_consensus", 2, **changes)
        if state is not None:
            behavior.learner.load_state_dict(state)
        live(behavior, Walk(2, 1), 2)
        joint_steps = learner_of(behavior).replay.rows
        assert joint_steps > least
        assert len(agreed) == joint_steps // 25
        state = behavior.learner.state_dict()
    assert np.diff(agreed).max() < 50


def test_the_targets_heads_only_follow(lived) -> None:
    learner = learner_of(lived("dqn_consensus", 3, 4, consensus_every=1, tau=0.25))
    network, target = (learner.networks[name].network for name in ("network", "target"))
    with torch.no_grad():
        network.critic.weight.add_(torch.randn(3, 1, 1))
    before, apart = heads_of(target).clone(), heads_of(network).clone()
    learner.replay.rows += 1
    learn_from(learner, learner.minibatch(learner.replay.buffer.sample(16, np.random.default_rng(0))))
    after, online = heads_of(target), heads_of(network)
    assert not torch.allclose(online, apart)
    torch.testing.assert_close(after, before + 0.25 * (online - before))


def test_a_policy_needs_the_whole_group_to_act(lived) -> None:
    policy = Policy(checkpoint_of(lived("sic", 3)))
    assert policy.communicates
    assert policy.num_agents == 3
    rng = np.random.default_rng(3)
    seen, agent_indices = rng.normal(size=(60, 1)), np.tile([0, 1, 2], 20)
    groups = np.repeat(np.arange(20), 3)
    together = policy.act(seen, agent_indices=agent_indices, groups=groups).discrete
    one_by_one = [
        policy.act(seen[rows], agent_indices=agent_indices[rows]).discrete
        for rows in np.split(np.arange(60), 20)
    ]
    assert together.tolist() == np.concatenate(one_by_one).tolist()
    shuffled = rng.permutation(60)
    again = policy.act(
        seen[shuffled], agent_indices=agent_indices[shuffled], groups=groups[shuffled]
    ).discrete
    assert again.tolist() == together[shuffled].tolist()


def test_two_agents_cannot_have_one_index(lived) -> None:
    policy = Policy(checkpoint_of(lived("sic", 2)))
    with pytest.raises(ValueError, match="two of a group have the same index; say groups"):
        policy.act(np.zeros((3, 1)), agent_indices=[0, 1, 0])
    with pytest.raises(ValueError, match=r"groups: expected shape \(3,\), got \(2,\)"):
        policy.act(np.zeros((3, 1)), agent_indices=[0, 1, 0], groups=[1, 2])
