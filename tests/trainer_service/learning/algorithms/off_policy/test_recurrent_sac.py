"""Soft actor-critic that remembers: what it learns from is what it lived through, and it learns what others cannot."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import CORRIDORS, Corridor, live_in, returns_after
from replayed import learn_from, whole_sequences

from trainer_service.learning.algorithms import SAC
from trainer_service.running.behaviors.behavior import Behavior
from unity_bridge.steps import StepBatch


@pytest.fixture
def walker(small) -> Callable[..., Behavior]:
    """A behavior for corridors, with a memory."""
    body = {"sizes": (3,), "branches": (2,), "time_horizon": 3, "units": 16}
    sizes = {"batch_size": 128, "buffer_size": 4096, "steps_per_update": 12}
    made = partial(small, "sac", learning_rate=0.01, tau=0.05, init_entcoef=0.05, **body, **sizes)
    return lambda memory, **changes: made(memory=memory, **changes)


def collected(behavior: Behavior, lengths: tuple[int, ...] = (3, 8), ticks: int = 24) -> SAC:
    """After living in corridors of these lengths, learning nothing."""
    world = Corridor(1, lengths)
    live_in(behavior, world, world.begin(), ticks)
    algorithm = behavior.learner
    assert isinstance(algorithm, SAC)
    return algorithm


def all_sequences(algorithm: SAC) -> Any:
    return whole_sequences(algorithm)


@pytest.mark.parametrize(("kind", "sequence_length"), [("lstm", 2), ("gru", 5), ("lstm", 64)])
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
        critics, targets = (critics_now.encode(batch.inputs), critics_then.encode(batch.next_inputs))
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
    sample = whole_sequences(algorithm, *numbers)
    told = learn_from(algorithm, algorithm.minibatch(sample))
    losses = torch.tensor([told["Losses/Q1 Loss"], told["Losses/Q2 Loss"]])
    gradients = [
        algorithm.optimizers[f"{part}_optimizer"].parameters.gradient for part in ("critic", "actor")
    ]
    return losses, torch.cat(gradients).clone(), len(sample.rows)


def test_padding_counts_for_nothing(walker) -> None:
    # Together, shorter sequences are padded; by themselves they are not. Choices need no chance, so nothing differs.
    memory = {"memory_size": 6, "sequence_length": 64}
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


@pytest.mark.parametrize(("ends", "sequence_length"), [("terminated", 2), ("truncated", 64)])
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


def test_a_number_and_a_choice_recall_a_cue(walker) -> None:
    assert returns_after(walker({"memory_size": 16, "sequence_length": 4}, continuous=1), 200) > 0.9
