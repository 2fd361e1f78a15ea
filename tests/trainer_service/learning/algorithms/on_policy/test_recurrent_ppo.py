"""PPO with memory: it learns from the memories it acted with, and learns what others cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import observe
from seeds import seeds

from trainer_service.learning.algorithms import PPO
from trainer_service.learning.algorithms.common.on_policy.rollout import SequenceSampler
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

AGENTS = 6
IDS = np.arange(AGENTS, dtype=np.int64)

each_seed = seeds(1, 2, 3)
kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])
critics = pytest.mark.parametrize("shared_critic", [False, True], ids=["own-critic", "shared-critic"])


class Corridor:
    """A cue at the start, nothing to see on the way, and at the end a choice that should equal the cue."""

    def __init__(self, seed: int, lengths: tuple[int, ...] = (4,)) -> None:
        self.rng = np.random.default_rng(seed)
        self.lengths = lengths
        self.returns: list[float] = []

    def begin(self) -> StepBatch:
        self.cue = np.empty(AGENTS)
        self.time = np.empty(AGENTS, np.int64)
        self.end = np.empty(AGENTS, np.int64)
        everyone = np.ones(AGENTS, np.bool_)
        self._enter(everyone)
        return self._rows(everyone, np.zeros(AGENTS))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        right = actions.discrete[:, 0] == (self.cue > 0)
        ended = self.time == self.end
        paid = np.where(ended, np.where(right, 1.0, -1.0), 0.0)
        self.returns += paid[ended].tolist()
        terminal = self._rows(ended, paid, terminated=np.ones(ended.sum(), np.bool_))
        self._enter(ended)
        return concatenate(terminal, self._rows(np.ones(AGENTS, np.bool_), paid))

    def _enter(self, who: np.ndarray) -> None:
        self.time[who] = 0
        self.cue[who] = self.rng.choice([-1.0, 1.0], who.sum())
        self.end[who] = self.rng.choice(self.lengths, who.sum())

    def _rows(self, who: np.ndarray, rewards: np.ndarray, **ends: Any) -> StepBatch:
        """Observations: the cue at first, and whether this is the choice."""
        seen = np.stack([np.where(self.time == 0, self.cue, 0.0), self.time == self.end - 1], axis=1)
        return step_batch(
            [seen[who].astype(np.float32)],
            rewards[who].astype(np.float32),
            agent_ids=IDS[who],
            allowed_actions=np.ones((int(who.sum()), 2), np.bool_),
            **ends,
        )


@pytest.fixture
def walker(make_behavior) -> Callable[..., Behavior]:
    """A behavior for corridors; ``memory`` None takes it from it."""

    def make(memory: dict[str, Any] | None, seed: int = 1, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 64,
            "buffer_size": 256,
            "learning_rate": 0.005,
            "learning_rate_schedule": "constant",
            "beta": 0.001,
            "num_epoch": 4,
        }
        horizon = changes.pop("time_horizon", 64)
        made: Behavior = make_behavior(
            sizes=(2,),
            branches=(2,),
            seed=seed,
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 16, "num_layers": 1, "memory": memory},
            time_horizon=horizon,
            max_steps=10**6,
        )
        return made

    return make


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


@kinds
@critics
@pytest.mark.parametrize(("time_horizon", "sequence_length"), [(64, 64), (5, 2), (3, 64), (1, 1)])
def test_unrolled_sequences_equal_the_steps_that_were_taken(
    walker, kind: str, shared_critic: bool, time_horizon: int, sequence_length: int
) -> None:
    memory = {"memory_size": 6, "sequence_length": sequence_length, "type": kind}
    behavior = walker(memory, time_horizon=time_horizon, shared_critic=shared_critic)
    ppo, trajectories = collected(behavior, Corridor(1, lengths=(3, 8)), ticks=50)
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
    ppo, trajectories = collected(walker(memory, time_horizon=3), Corridor(1, lengths=(9,)), ticks=20)
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
        following = segment + AGENTS
        if following < len(first):
            torch.testing.assert_close(ends[segment], values[first[following]], atol=1e-6, rtol=0)
            compared += 1
    assert compared >= AGENTS


@pytest.mark.parametrize(("batch_size", "sequences"), [(4, 1), (9, 2), (64, 16)])
def test_minibatches_hold_whole_sequences_and_every_step_once(
    walker, batch_size: int, sequences: int
) -> None:
    behavior = walker({"memory_size": 4, "sequence_length": 4}, batch_size=batch_size)
    _, trajectories = collected(behavior, Corridor(2, lengths=(3, 10)), ticks=40)
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


def likeliest_returns(behavior: Behavior, seed: int, episodes: int = 60) -> float:
    """Mean return of the likeliest actions in corridors of the same kind."""
    policy, world = Policy(checkpoint_of(behavior)), Corridor(seed + 100)
    batch, memories, starts = world.begin(), None, None
    while len(world.returns) < episodes:
        seen = batch.observations[0][batch.num_terminal :]
        if policy.memory_size:
            actions, memories = policy.predict([seen], memories, episode_starts=starts)
        else:
            actions = policy.act([seen])
        batch = world.step(actions)
        starts = np.isin(IDS, batch.agent_ids[: batch.num_terminal])
    return float(np.mean(world.returns))


@each_seed
@critics
@pytest.mark.probe
def test_a_cue_is_remembered_to_the_end_of_the_corridor(walker, live, seed: int, shared_critic: bool) -> None:
    behavior = walker({"memory_size": 16, "sequence_length": 8}, seed=seed, shared_critic=shared_critic)
    live(behavior, Corridor(seed), 25)
    assert likeliest_returns(behavior, seed) > 0.9


@each_seed
@pytest.mark.probe
def test_a_gru_remembers_too(walker, live, seed: int) -> None:
    behavior = walker({"memory_size": 16, "sequence_length": 8, "type": "gru"}, seed=seed)
    live(behavior, Corridor(seed), 25)
    assert likeliest_returns(behavior, seed) > 0.9


@each_seed
@pytest.mark.probe
def test_without_memory_returns_are_those_of_chance(walker, live, seed: int) -> None:
    behavior = walker(None, seed=seed)
    live(behavior, Corridor(seed), 25)
    assert abs(likeliest_returns(behavior, seed, episodes=200)) < 0.4
