"""Learners from replay that decide alone and remember: what they learn from is what they lived through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import Corridor, live_in, returns_after
from replayed import learn_from, whole_sequences
from seeds import quick_where

from trainer_service.learning.algorithms.off_policy.ddpg import DDPG
from trainer_service.learning.algorithms.off_policy.dqn import DQN
from trainer_service.learning.algorithms.off_policy.sac import SAC
from trainer_service.learning.algorithms.off_policy.td3 import TD3
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.replay.transitions import Sample
from trainer_service.running.behaviors.behavior import Behavior

trainers = pytest.mark.parametrize("trainer", ["dqn", "sac", "ddpg", "td3"])
CHOOSING = ("dqn", "sac")
"""Those that take a choice here; the others take a number."""


@pytest.fixture
def walker(small) -> Callable[..., Behavior]:
    """A behavior for corridors."""

    def make(trainer: str, memory: dict[str, Any] | None, **changes: Any) -> Behavior:
        sizes = {"batch_size": 128, "buffer_size": 4096, "steps_per_update": 12}
        more = {"exploration_steps": 3000} if trainer == "dqn" else {"buffer_init_steps": 128}
        body = {"branches": (2,)} if trainer in CHOOSING else {"continuous": 1}
        settings = {"units": 16, "learning_rate": 0.01, "tau": 0.05, **sizes, **more, **changes}
        made: Behavior = small(trainer, sizes=(3,), memory=memory, time_horizon=1000, **body, **settings)
        return made

    return make


def collected(
    behavior: Behavior, lengths: tuple[int, ...] = (3, 8), ticks: int = 24
) -> DQN | SAC | DDPG | TD3:
    """The learner after living in corridors of these lengths, learning nothing."""
    choices = behavior.spec.action_spec.mask_size
    world = Corridor(1, lengths, choices)
    live_in(behavior, world, world.begin(), ticks)
    algorithm = behavior.learner
    assert isinstance(algorithm, DQN | SAC | DDPG | TD3)
    return algorithm


def all_sequences(algorithm: DQN | SAC | DDPG | TD3, *chosen: int) -> Sample:
    sample: Sample = whole_sequences(algorithm, *chosen)
    return sample


def outputs(algorithm: DQN | SAC | DDPG | TD3, seen: EncoderInput) -> list[torch.Tensor]:
    """What all networks say of these steps, [B, …] each."""
    if isinstance(algorithm, DQN):
        return [algorithm.networks["network"].encoded_q_values(seen)]
    if isinstance(algorithm, SAC):
        logits = algorithm.networks["actor"].policy_from(seen).logits
        return [logits, *algorithm.networks["critics"].encode(seen)]
    actions = algorithm.networks["actor"].forward(seen)
    values = algorithm.networks["critic"].forward(seen, torch.full_like(actions, 0.5))
    return [actions, values.movedim(-1, 0)]


@trainers
def test_sequences_give_what_acting_step_by_step_gives(walker, trainer: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 3, "type": "gru" if trainer == "td3" else "lstm"}
    given = {"buffer_init_steps": 4000, **({"noise": "ou"} if trainer == "ddpg" else {})}
    behavior = walker(trainer, memory, **given)
    algorithm = collected(behavior)
    sample = all_sequences(algorithm)
    assert sample.sequences is not None
    assert sample.sequences.lengths.max() == 3
    # What each agent remembered when it acted is what its steps from the start of the episode leave behind.
    network = algorithm.actor.network
    assert sample.sequences.memories.shape[1] == network.memory_size
    assert behavior.learner.actor.memory_size == network.memory_size + (trainer == "ddpg")
    with torch.inference_mode():
        batch = algorithm.minibatch(sample)
        now, after = (outputs(algorithm, inputs) for inputs in (batch.inputs, batch.next_inputs))
        end = 0
        for length, memories in zip(sample.sequences.lengths, sample.sequences.memories, strict=True):
            kept = torch.from_numpy(memories)[None]
            if sample.observations[0][end, 0]:
                assert not kept.any()
            for step in range(end, end + length):
                seen, next_seen = (
                    [torch.from_numpy(each[0][step][None])]
                    for each in (sample.observations, sample.next_observations)
                )
                decided, kept = network.step(seen, kept)
                following, _ = network.step(next_seen, kept)
                for found, one in ((now, decided), (after, following)):
                    wanted = one.logits[0] if trainer in CHOOSING else torch.tanh(one.mean[0])
                    torch.testing.assert_close(found[0][step], wanted, atol=1e-5, rtol=0)
            end += length
        whole = collected(walker(trainer, {**memory, "sequence_length": 64}, **given))
        uncut = all_sequences(whole)
        entire = outputs(whole, whole.minibatch(uncut).inputs)
    steps = {tuple(seen): row for row, seen in enumerate(sample.observations[0].tolist())}
    rows = [steps[tuple(seen)] for seen in uncut.observations[0].tolist()]
    assert len(rows) > 60
    for found, expected in zip(now, entire, strict=True):
        torch.testing.assert_close(found[rows], expected, atol=1e-5, rtol=0)


def gradients_of(algorithm: DQN | SAC | DDPG | TD3, *chosen: int) -> tuple[torch.Tensor, int]:
    """Gradients of all networks by some sequences, and how many steps these have; nothing is moved."""
    sample = all_sequences(algorithm, *chosen)
    learn_from(algorithm, algorithm.minibatch(sample))
    optimizers = algorithm.optimizers.values()
    return torch.cat([each.parameters.gradient for each in optimizers]).clone(), len(sample.rows)


@pytest.mark.parametrize("trainer", ["dqn", "sac", "ddpg"])
def test_padding_counts_for_nothing(walker, trainer: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 64}
    behavior = walker(trainer, memory, buffer_init_steps=4000, max_grad_norm=None, tau=0.0)
    algorithm = collected(behavior, lengths=(1, 3, 8))
    lengths = all_sequences(algorithm).sequences.lengths
    chosen = [int(np.flatnonzero(lengths == length)[0]) for length in (8, 1, 3)]
    together, steps = gradients_of(algorithm, *chosen)
    assert steps == 12
    alone = [gradients_of(algorithm, each) for each in chosen]
    torch.testing.assert_close(
        together, sum(gradient * count for gradient, count in alone) / 12, atol=1e-6, rtol=1e-4
    )


@pytest.mark.probe
@pytest.mark.parametrize(("trainer", "ticks"), [("dqn", 700), ("sac", 300), quick_where(False, "td3", 700)])
def test_it_does_at_the_end_what_it_was_told_at_the_start(walker, trainer: str, ticks: int) -> None:
    memory = {"memory_size": 16, "sequence_length": 8}
    # Guessing earns 0.
    assert returns_after(walker(trainer, memory), ticks) > 0.9
