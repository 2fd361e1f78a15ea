"""PPO with memory: it learns from the memories it acted with, and learns what others cannot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from behavior_worlds import CORRIDORS, Corridor, observe, returns_after
from seeds import quick_where

from trainer_service.learning.algorithms import PPO
from trainer_service.learning.algorithms.common.on_policy.rollout import SequenceSampler
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.collector import BehaviorTick


@pytest.fixture
def walker(small) -> Callable[..., Behavior]:
    """A behavior for corridors; ``memory`` None takes it from it."""
    sizes = {"batch_size": 64, "buffer_size": 256, "num_epoch": 4, "time_horizon": 64}
    rates = {"learning_rate": 0.005, "learning_rate_schedule": "constant", "beta": 0.001}
    made = partial(small, "ppo", sizes=(3,), branches=(2,), units=16, **sizes, **rates)
    return lambda memory, **changes: made(memory=memory, **changes)


def collected(behavior: Behavior, world: Corridor, ticks: int) -> tuple[PPO, Trajectories]:
    """Trajectories that a behavior collected in some ticks, before it learned."""
    batch = world.begin()
    for _ in range(ticks):
        observe(behavior, BehaviorTick(0, 0, batch))
        batch = world.step(behavior.collector.act()[0])
    ppo = behavior.learner
    assert isinstance(ppo, PPO)
    trajectories = ppo.buffer.peek()
    assert trajectories is not None
    return ppo, trajectories


@pytest.mark.parametrize(
    ("kind", "shared_critic", "time_horizon", "sequence_length"),
    [
        ("lstm", False, 64, 64),
        ("gru", False, 5, 2),
        ("lstm", True, 5, 2),
        ("gru", True, 3, 64),
        ("lstm", False, 1, 1),
    ],
)
def test_unrolled_sequences_equal_the_steps_that_were_taken(
    walker, kind: str, shared_critic: bool, time_horizon: int, sequence_length: int
) -> None:
    memory = {"memory_size": 6, "sequence_length": sequence_length, "type": kind}
    behavior = walker(memory, time_horizon=time_horizon, shared_critic=shared_critic)
    ppo, trajectories = collected(behavior, Corridor(1, (3, 8)), ticks=50)
    order = SequenceSampler(trajectories, sequence_length, 64, torch.device("cpu"))
    network, observations = ppo.actor.network, [torch.from_numpy(trajectories.observations[0])]
    with torch.inference_mode():
        parameters, values = network.policy_and_values(observations, order.sequences)
        log_probs = network.actions.log_prob(
            parameters,
            None,
            torch.from_numpy(trajectories.continuous_actions),
            torch.from_numpy(trajectories.discrete_actions),
        )
    np.testing.assert_allclose(log_probs.numpy(), trajectories.log_probs, atol=1e-5)
    # Values are not stored, but what they come from is: a sequence of one step from each stored memory.
    alone = SequenceSampler(trajectories, 1, 1, torch.device("cpu"))
    torch.testing.assert_close(network.values(observations, alone.sequences), values, atol=1e-5, rtol=0)
    assert np.ptp(values.numpy()) > 1e-3
    assert np.abs(trajectories.memories).max() > 1e-3


def test_the_final_value_of_a_segment_uses_its_final_memory(walker) -> None:
    memory = {"memory_size": 6, "sequence_length": 64}
    ppo, trajectories = collected(walker(memory, time_horizon=3), Corridor(1, (9,)), ticks=20)
    order = SequenceSampler(trajectories, 64, 64, torch.device("cpu"))
    ends = ppo.actor.network.values(
        [torch.from_numpy(trajectories.final_observations[0])], order.final_sequences
    )
    starts = SequenceSampler(trajectories, 1, 64, torch.device("cpu")).sequences
    values = ppo.actor.network.values([torch.from_numpy(trajectories.observations[0])], starts)
    # Where a segment was cut, the next of the same agent begins with what the last one ended with.
    first = np.cumsum(trajectories.lengths) - trajectories.lengths
    compared = 0
    for segment in np.flatnonzero(~trajectories.terminated):
        following = segment + CORRIDORS
        if following < len(first):
            torch.testing.assert_close(ends[segment], values[first[following]], atol=1e-6, rtol=0)
            compared += 1
    assert compared >= CORRIDORS


@pytest.mark.parametrize(("batch_size", "sequences"), [(4, 1), (9, 2)])
def test_minibatches_hold_whole_sequences_and_every_step_once(
    walker, batch_size: int, sequences: int
) -> None:
    behavior = walker({"memory_size": 4, "sequence_length": 4}, batch_size=batch_size)
    _, trajectories = collected(behavior, Corridor(2, (3, 10)), ticks=40)
    order = SequenceSampler(trajectories, 4, batch_size, torch.device("cpu"))
    steps, minibatches = order.shuffle(torch.Generator().manual_seed(1))
    assert sorted(steps.tolist()) == list(range(len(trajectories)))
    counts = []
    for chunk, share, some in minibatches:
        assert share == 1.0
        assert some is not None
        chosen = steps[chunk]
        assert len(chosen) == some.filled.sum()
        for memories, own in zip(
            some.memories, torch.split(chosen, some.filled.sum(dim=1).tolist()), strict=True
        ):
            assert own.tolist() == list(range(own[0], own[0] + len(own)))
            np.testing.assert_array_equal(memories.numpy(), trajectories.memories[own[0]])
        counts.append(len(some.memories))
    assert set(counts[:-1]) <= {sequences}
    assert 1 <= counts[-1] <= sequences
    again, _ = order.shuffle(torch.Generator().manual_seed(2))
    assert not torch.equal(again, steps)


@pytest.mark.probe
@pytest.mark.parametrize(
    ("kind", "shared_critic"),
    [("lstm", False), quick_where(False, "lstm", True), quick_where(False, "gru", False)],
)
def test_a_cue_is_remembered_to_the_end_of_the_corridor(walker, kind: str, shared_critic: bool) -> None:
    behavior = walker({"memory_size": 16, "sequence_length": 8, "type": kind}, shared_critic=shared_critic)
    assert returns_after(behavior, 1200) > 0.9


@pytest.mark.probe
def test_without_memory_returns_are_those_of_chance(walker) -> None:
    assert abs(returns_after(walker(None), 600, episodes=200)) < 0.4
