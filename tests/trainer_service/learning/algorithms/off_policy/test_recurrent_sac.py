"""Soft actor-critic that remembers: what it learns from is what it lived through, and it learns what others cannot."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import CORRIDORS, Corridor, live_in
from replayed import learn_from
from seeds import seeds

from trainer_service.errors import UserError
from trainer_service.learning.algorithms import SAC
from trainer_service.learning.replay.sequence_replay import SequenceReplay
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.policy import Policy
from unity_bridge.steps import StepBatch

each_seed = seeds(1, 2, 3)
kinds = pytest.mark.parametrize("kind", ["lstm", "gru"])
SMALL = {"network_settings": {"hidden_units": 8}}
replays = pytest.mark.parametrize("replay", ["uniform", "prioritized"])


@pytest.fixture
def walker(make_behavior) -> Callable[..., Behavior]:
    """A behavior for corridors; ``memory`` None takes it from it."""

    def make(
        memory: dict[str, Any] | None,
        seed: int = 1,
        continuous: int = 0,
        branches: tuple[int, ...] = (2,),
        **changes: Any,
    ) -> Behavior:
        hyperparameters = {
            "batch_size": 128,
            "buffer_size": 4096,
            "learning_rate": 0.01,
            "tau": 0.05,
            "init_entcoef": 0.05,
            "steps_per_update": 12,
        }
        signals = changes.pop("reward_signals", {"extrinsic": {"gamma": 0.99, "strength": 1.0}})
        made: Behavior = make_behavior(
            sizes=(3,),
            continuous=continuous,
            branches=branches,
            seed=seed,
            trainer_type="sac",
            hyperparameters={**hyperparameters, **changes},
            network_settings={"hidden_units": 16, "num_layers": 1, "memory": memory},
            reward_signals=signals,
            time_horizon=3,
            max_steps=10**6,
        )
        return made

    return make


def collected(behavior: Behavior, lengths: tuple[int, ...] = (3, 8), ticks: int = 24) -> SAC:
    """After living in corridors of these lengths, learning nothing."""
    world = Corridor(1, lengths)
    live_in(behavior, world, world.begin(), ticks)
    algorithm = behavior.learner
    assert isinstance(algorithm, SAC)
    return algorithm


def all_sequences(algorithm: SAC) -> Any:
    replay = algorithm.replay.buffer
    assert isinstance(replay, SequenceReplay)
    return replay._gather_whole(np.arange(len(replay._starts) - 1), None)


@kinds
@pytest.mark.parametrize("sequence_length", [1, 2, 5, 64])
def test_sequences_are_seen_as_they_were_lived_through(walker, kind: str, sequence_length: int) -> None:
    memory = {"memory_size": 6, "sequence_length": sequence_length, "type": kind}
    algorithm = collected(walker(memory, continuous=1, buffer_init_steps=4000))
    sample = all_sequences(algorithm)
    assert sample.sequences.lengths.max() == min(sequence_length, 8)
    batch = algorithm.minibatch(sample)
    policy, critics_now, critics_then = (
        algorithm.networks[name] for name in ("actor", "critics", "target_critics")
    )
    with torch.inference_mode():
        now, after = policy.policy_from(batch.inputs), policy.policy_from(batch.next_inputs)
        critics, targets = (
            critics_now.encode(batch.inputs),
            critics_then.encode(batch.next_inputs),
        )
        # Step by step, as when acting.
        end = 0
        for length, memories in zip(
            sample.sequences.lengths, torch.from_numpy(sample.sequences.memories), strict=True
        ):
            kept = memories[None]
            for step in range(end, end + length):
                seen = [torch.from_numpy(sample.observations[0][step][None])]
                following = [torch.from_numpy(sample.next_observations[0][step][None])]
                expected, _ = policy.step(seen, kept)
                sums = [trunk.step(seen, kept)[0][0] for trunk in critics_now._trunks()]
                _, kept = algorithm.actor.network.step(seen, kept)
                expected_after, _ = policy.step(following, kept)
                sums_after = [trunk.step(following, kept)[0][0] for trunk in critics_then._trunks()]
                for found, wanted in zip((now, after), (expected, expected_after), strict=True):
                    assert found.has_continuous is None
                    assert wanted.has_continuous is None
                    for part, value in zip(found[:3], wanted[:3], strict=True):
                        torch.testing.assert_close(part[step], value[0], atol=1e-5, rtol=0)
                for found, wanted in zip(critics + targets, sums + sums_after, strict=True):
                    torch.testing.assert_close(found[step], wanted, atol=1e-5, rtol=0)
            end += length
    # And that is how it was: the same steps, had they never been cut.
    whole = collected(walker({**memory, "sequence_length": 64}, continuous=1, buffer_init_steps=4000))
    uncut = whole.minibatch(all_sequences(whole))
    with torch.inference_mode():
        logits = whole.networks["actor"].policy_from(uncut.inputs).logits
    steps = {tuple(seen): row for row, seen in enumerate(sample.observations[0].tolist())}
    compared = 0
    for row, seen in enumerate(all_sequences(whole).observations[0].tolist()):
        torch.testing.assert_close(now.logits[steps[tuple(seen)]], logits[row], atol=1e-5, rtol=0)
        compared += 1
    assert compared > 60
    assert np.abs(sample.sequences.memories).max() > 1e-3 or sequence_length >= 8


def judged(algorithm: SAC, numbers: np.ndarray) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Critics' losses on some sequences, all networks' gradients, and how many steps that was; nothing is moved."""
    replay = algorithm.replay.buffer
    assert isinstance(replay, SequenceReplay)
    sample = replay._gather_whole(numbers, None)
    told = learn_from(algorithm, algorithm.minibatch(sample))
    losses = torch.tensor([told["Losses/Q1 Loss"], told["Losses/Q2 Loss"]])
    gradients = [
        algorithm.optimizers[f"{part}_optimizer"].parameters.gradient for part in ("critic", "actor")
    ]
    return losses, torch.cat(gradients).clone(), len(sample.rows)


@kinds
def test_padding_counts_for_nothing(walker, kind: str) -> None:
    # Together, shorter sequences are padded; by themselves they are not. Choices need no chance, so nothing differs.
    memory = {"memory_size": 6, "sequence_length": 64, "type": kind}
    algorithm = collected(walker(memory, buffer_init_steps=4000), lengths=(1, 3, 8))
    sample = all_sequences(algorithm)
    lengths = sample.sequences.lengths
    assert {1, 3, 8} <= set(lengths.tolist())
    chosen = np.array([int(np.flatnonzero(lengths == length)[0]) for length in (8, 1, 3)])
    losses, gradient, steps = judged(algorithm, chosen)
    assert steps == 12
    alone = [judged(algorithm, chosen[[place]]) for place in range(3)]
    torch.testing.assert_close(losses, sum(loss * count for loss, _, count in alone) / 12)
    torch.testing.assert_close(
        gradient, sum(slope * count for _, slope, count in alone) / 12, atol=1e-6, rtol=1e-4
    )


@pytest.mark.parametrize(("batch_size", "sequences"), [(4, 1), (9, 2), (64, 16)])
def test_a_minibatch_holds_as_many_full_sequences_as_fit(walker, batch_size: int, sequences: int) -> None:
    behavior = walker({"memory_size": 4, "sequence_length": 4}, batch_size=batch_size)
    algorithm = collected(behavior, ticks=3)
    assert behavior.learner.horizon == 4
    live_in(behavior, world := Corridor(3, (9,)), world.begin(), 12)
    sample = algorithm.replay.sample(np.random.default_rng(1))
    assert len(sample.sequences.lengths) == sequences
    assert (
        sample.sequences.memories.shape == (sequences, behavior.learner.actor.memory_size) == (sequences, 12)
    )


@pytest.mark.parametrize("sequence_length", [2, 64])
@pytest.mark.parametrize("ends", ["terminated", "truncated"])
def test_only_an_end_is_worth_nothing_afterwards(walker, sequence_length: int, ends: str) -> None:
    class Ending(Corridor):
        def rows(self, who: np.ndarray, rewards: np.ndarray, **given: Any) -> StepBatch:
            return super().rows(who, rewards, **({ends: given["terminated"]} if given else {}))

    behavior = walker({"memory_size": 4, "sequence_length": sequence_length}, buffer_init_steps=4000)
    world = Ending(1, (5,))
    live_in(behavior, world, world.begin(), 21)
    algorithm = behavior.learner
    sample = all_sequences(algorithm)
    continues = 1.0 - algorithm.minibatch(sample).terminated.numpy()
    is_choice = sample.observations[0][:, 1] == 1.0
    assert is_choice.sum() == 4 * CORRIDORS
    expected = np.where(is_choice & (ends == "terminated"), 0.0, 1.0)
    np.testing.assert_array_equal(continues, expected)
    # What is seen next is of the same episode: a cue is only ever seen first.
    assert np.all(sample.next_observations[0][:, 0] == 0.0)


def test_a_memory_of_another_size_cannot_be_resumed(walker) -> None:
    four, eight = (walker({"memory_size": size, "sequence_length": 5}) for size in (4, 8))
    expected = "does not fit the configured networks: network_settings.memory.memory_size was 4, now 8"
    with pytest.raises(UserError, match=expected):
        restore(eight, checkpoint_of(four))


@replays
def test_rewards_of_our_own_making_are_for_steps_of_sequences(walker, replay: str) -> None:
    signals = {
        name: {"gamma": 0.9, "strength": 0.5, **units}
        for name, units in (("extrinsic", {}), ("curiosity", SMALL), ("rnd", SMALL))
    }
    memory = {"memory_size": 6, "sequence_length": 5}
    behavior = walker(memory, continuous=1, reward_signals=signals, batch_size=40, replay={"type": replay})
    world = Corridor(1, (3, 8))
    live_in(behavior, world, world.begin(), 40)
    algorithm = behavior.learner
    batch = algorithm.minibatch(sample := algorithm.replay.sample(np.random.default_rng(1)))
    assert batch.rewards.shape == (len(sample.rows), 3)
    assert batch.rewards[:, 1:].min() >= 0.0
    assert (batch.rewards[:, 1:] > 0.0).all(dim=1).float().mean() > 0.9
    tags = set(behavior.summarize(0.0).series)
    assert {"Losses/Curiosity Forward Loss", "Losses/RND Loss", "Policy/Rnd Value"} <= tags


def likeliest_returns(behavior: Behavior, seed: int, episodes: int = 60) -> float:
    """Mean return of the likeliest actions in corridors of the same kind."""
    policy = Policy(checkpoint_of(behavior))
    world = Corridor(seed + 100, choices=policy.spec.action_spec.mask_size)
    batch, memories, starts = world.begin(), None, None
    while len(world.returns) < episodes:
        seen = batch.observations[0][batch.num_terminal :]
        actions, memories = policy.predict([seen], memories, episode_starts=starts)
        batch = world.step(actions)
        starts = np.isin(np.arange(CORRIDORS), batch.agent_ids[: batch.num_terminal])
    return float(np.mean(world.returns))


def learned(behavior: Behavior, seed: int, ticks: int = 200) -> float:
    """Mean return after so many ticks in corridors."""
    world = Corridor(seed, choices=behavior.spec.action_spec.mask_size)
    live_in(behavior, world, world.begin(), ticks)
    return likeliest_returns(behavior, seed)


@each_seed
@pytest.mark.parametrize(
    ("continuous", "branches"), [(0, (2,)), (1, ()), (1, (2,))], ids=["choice", "number", "both"]
)
def test_a_cue_is_remembered_to_the_end_of_the_corridor(walker, seed: int, continuous: int, branches) -> None:
    behavior = walker({"memory_size": 16, "sequence_length": 4}, seed, continuous, branches)
    assert learned(behavior, seed) > 0.9


@each_seed
@replays
def test_a_gru_remembers_too(walker, seed: int, replay: str) -> None:
    memory = {"memory_size": 16, "sequence_length": 4, "type": "gru"}
    assert learned(walker(memory, seed, replay={"type": replay}), seed) > 0.9


@each_seed
def test_without_memory_returns_are_those_of_chance(walker, seed: int) -> None:
    assert abs(learned(walker(None, seed), seed)) < 0.4
