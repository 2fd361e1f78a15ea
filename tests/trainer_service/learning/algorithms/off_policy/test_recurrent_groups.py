"""Learners of groups that remember: they learn from what each agent lived through, whoever comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from group_lives import NUM_AGENTS, GroupLife
from replayed import whole_sequences
from torch import Tensor

from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import part_of_sample
from trainer_service.learning.algorithms.off_policy.maddpg import MADDPG
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.stacked_actor_critic import StackedActors
from trainer_service.learning.networks.shard import Shard
from trainer_service.learning.replay.joint_transitions import JointSample
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.ops.gumbel import one_hot_choices
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick
from unity_bridge.simulators.scene import step_batch
from unity_bridge.steps import StepBatch

LEARNERS: dict[str, tuple[str, dict[str, Any]]] = {
    "apart": ("idqn", {}),
    "at-once": ("idqn", {"share": "full", "agent_ids": True}),
    "vdn": ("vdn", {"n_step": 3}),
    "qmix": ("qmix", {"share": "full"}),
    "features": ("dqn_share", {}),
    "consensus": ("dqn_consensus", {"share": "full", "reward_mode": "individual"}),
    "messages": ("sic", {"share": "full", "agent_ids": True, "n_step": 2}),
    "own-messages": ("sic", {}),
}


@pytest.fixture
def group(small) -> Callable[..., Behavior]:
    """A behavior of groups with memory; ``memory`` None takes it from it."""

    def make(learner: str, memory: dict[str, Any] | None, **changes: Any) -> Behavior:
        trainer, more = LEARNERS.get(learner, (learner, {}))
        body = {"sizes": (3,), "branches": (2,), "time_horizon": 1000}
        sizes = {"group_size": NUM_AGENTS, "batch_size": 64, "buffer_size": 4000}
        made: Behavior = small(trainer, memory=memory, **{**body, **sizes, **more, **changes})
        return made

    return make


class Crowd(GroupLife):
    """Groups of agents that come, die and decide at odd times; every observation is like no other."""

    def batch(
        self, ends: list[tuple[int, int, bool]], waits: list[tuple[int, int]], simulator: int = 0
    ) -> StepBatch:
        rows = super().batch(ends, waits, simulator)
        seen = self.rng.normal(size=(len(rows.agent_ids), 3)).astype(np.float32)
        return step_batch(
            [seen],
            rows.rewards,
            agent_ids=rows.agent_ids,
            allowed_actions=np.ones((len(seen), 2), np.bool_),
            group_ids=rows.group_ids,
            group_rewards=rows.group_rewards,
            terminated=rows.terminated,
            truncated=rows.truncated,
        )

    def observe(self, simulator: int, batch: StepBatch) -> Any:
        return batch


def lived(behavior: Behavior, ticks: int = 40, *, together: bool = False) -> tuple[Any, Trajectories]:
    """The learner after so many ticks in a crowd, learning nothing, and what it was given to remember."""
    algorithm, crowd = behavior.learner, Crowd(1, together=together)
    assert isinstance(algorithm, ReplayLearner)
    given: list[Trajectories] = []
    record = algorithm.record
    algorithm.record = lambda each: (given.append(each), record(each))[1]  # type: ignore[method-assign]
    for tick in range(ticks):
        batch = crowd.tick(tick % 2)
        if batch is not None:
            observe(behavior, BehaviorTick(tick % 2, 0, batch))
            behavior.collector.act()
    return algorithm, Trajectories.concatenate(given)


def everything(algorithm: ReplayLearner[JointMinibatch], *chosen: int) -> JointSample:
    sample: JointSample = whole_sequences(algorithm, *chosen)
    return sample


@pytest.mark.parametrize("learner", LEARNERS)
def test_sequences_give_what_acting_step_by_step_gave(group, learner: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 3, "type": "gru" if learner == "vdn" else "lstm"}
    behavior = group(learner, memory, buffer_init_steps=4000)
    assert behavior.learner.actor.memory_size == 6
    # Of those that communicate, all must be asked at once: a cut between their decisions parts what they saw together.
    together = learner == "vdn" or behavior.settings.hyperparameters.communicates
    algorithm, trajectories = lived(behavior, together=together)
    network = algorithm.actor.network
    with torch.inference_mode():
        seen = [torch.from_numpy(sensor) for sensor in trajectories.observations]
        expected, _ = network.step_outputs(seen, torch.from_numpy(trajectories.memories))
        sample = everything(algorithm)
        found = network.group_outputs(algorithm.minibatch(sample).inputs)
    steps = {tuple(row): number for number, row in enumerate(trajectories.observations[0].tolist())}
    rows, agents = np.nonzero(sample.present)
    assert len(rows) == len(trajectories) > 50
    order = [steps[tuple(each)] for each in sample.observations[0][rows, agents].tolist()]
    torch.testing.assert_close(found[rows, agents], expected[order], atol=1e-5, rtol=1e-5)
    assert np.abs(trajectories.memories).max() > 1e-3


@pytest.mark.parametrize(("share", "ids"), [("none", False), ("full", True)])
def test_actors_in_sequences_do_what_they_did_step_by_step(group, share: str, ids: bool) -> None:
    behavior = group("maddpg", {"memory_size": 6, "sequence_length": 3}, share=share, agent_ids=ids)
    algorithm, trajectories = lived(behavior)
    actors = algorithm.actor.network
    assert isinstance(actors, StackedActors)
    with torch.inference_mode():
        seen = [torch.from_numpy(sensor) for sensor in trajectories.observations]
        expected, _ = actors.step(seen, torch.from_numpy(trajectories.memories))
        sample = everything(algorithm)
        batch = algorithm.minibatch(sample)
        assert batch.inputs.histories is not None
        found = actors.group_policy(batch.inputs)
    steps = {tuple(row): number for number, row in enumerate(trajectories.observations[0].tolist())}
    rows, agents = np.nonzero(sample.present)
    order = [steps[tuple(each)] for each in sample.observations[0][rows, agents].tolist()]
    torch.testing.assert_close(found.logits[rows, agents], expected.logits[order], atol=1e-5, rtol=1e-5)
    assert len(order) == len(trajectories)


@pytest.mark.parametrize("share", ["none", "full"])
def test_critics_with_memory_know_what_was_seen_before_and_not_after(group, share: str) -> None:
    behavior = group("maddpg", {"memory_size": 6, "sequence_length": 8}, share=share)
    algorithm, _ = lived(behavior, together=True)
    assert isinstance(algorithm, MADDPG)
    sample, critics = everything(algorithm), algorithm.networks["critics"]
    batch = algorithm.minibatch(sample)
    ends = np.cumsum(sample.sequences.lengths)
    first, second, third = next(
        (end - 3, end - 2, end - 1)
        for end, length in zip(ends, sample.sequences.lengths, strict=True)
        if length >= 3 and (np.ptp(sample.sequences.segments[end - 3 : end, 0]) == 0)
    )
    done = one_hot_choices(batch.actions, behavior.spec.action_spec.discrete_branches).unsqueeze(1)

    def values(changed: int, by: float) -> Tensor:
        observations, histories = batch.inputs
        shown = [sensor.clone() for sensor in observations]
        shown[0][changed] += by
        with torch.inference_mode():
            return critics.forward(GroupInput(shown, histories), batch.present, done)[:, 0]

    moved = (values(second, 1.0) - values(second, 0.0)).abs() > 1e-7
    assert moved[[second, third]].all()
    assert not moved[first]


def gradients_of(algorithm: GroupQLearner, sample: JointSample) -> tuple[Tensor, int]:
    """The gradient of all networks by some sequences, and how many joint steps these have."""
    errors = algorithm.td_errors(algorithm.minibatch(sample))
    parameters = list(algorithm.networks["network"].parameters())
    slopes = torch.autograd.grad(errors.loss, parameters, allow_unused=True)
    flat = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, slopes, strict=True)]
    return torch.cat([each.flatten() for each in flat]), len(sample.rows)


@pytest.mark.parametrize("learner", ["vdn", "qmix"])
def test_padding_and_company_count_for_nothing(group, learner: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 5}
    algorithm, _ = lived(group(learner, memory, buffer_init_steps=4000), ticks=80)
    lengths = everything(algorithm).sequences.lengths
    chosen = [int(np.flatnonzero(lengths == length)[0]) for length in (5, 1, 2)]
    together, joint_steps = gradients_of(algorithm, everything(algorithm, *chosen, chosen[0]))
    assert joint_steps == 13
    alone = [gradients_of(algorithm, everything(algorithm, each)) for each in (*chosen, chosen[0])]
    expected = sum(gradient * count for gradient, count in alone) / 13
    torch.testing.assert_close(together, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("learner", ["vdn", "messages"])
def test_ranks_learn_together_what_one_learns(group, learner: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 4}
    algorithm, _ = lived(group(learner, memory, buffer_init_steps=4000), ticks=60)
    sample = everything(algorithm)
    whole, _ = gradients_of(algorithm, sample)
    summed = torch.zeros_like(whole)
    for rank in range(2):
        shard = Shard()
        shard.rank, shard.world = rank, 2
        own, part = part_of_sample(sample, shard)
        batch = algorithm.minibatch(own)._replace(
            share=part.share, present_in_all=torch.from_numpy(sample.present)
        )
        loss = algorithm.td_errors(batch).loss * part.share
        slopes = torch.autograd.grad(loss, list(algorithm.networks["network"].parameters()))
        summed += torch.cat([each.flatten() for each in slopes])
    torch.testing.assert_close(summed, whole, atol=1e-5, rtol=1e-4)
