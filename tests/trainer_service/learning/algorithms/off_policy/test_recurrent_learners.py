"""Learners from replay that decide alone and remember: what they learn from is what they lived through."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from behavior_worlds import CORRIDORS, Corridor, live_in
from replayed import learn_from
from seeds import seeds

from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.algorithms.off_policy.ddpg import DDPG
from trainer_service.learning.algorithms.off_policy.dqn import DQN
from trainer_service.learning.algorithms.off_policy.td3 import TD3
from trainer_service.learning.networks.encoders.memory import EncoderInput
from trainer_service.learning.replay.sequence_replay import SequenceReplay
from trainer_service.learning.replay.transitions import Sample
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.interop.onnx_export import to_onnx
from trainer_service.running.policy import Policy

kinds = pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.thorough)])
trainers = pytest.mark.parametrize("trainer", ["dqn", "ddpg", "td3"])


@pytest.fixture
def walker(make_behavior) -> Callable[..., Behavior]:
    """A behavior for corridors."""

    def make(trainer: str, memory: dict[str, Any] | None, seed: int = 1, **changes: Any) -> Behavior:
        hyperparameters = {
            "batch_size": 128,
            "buffer_size": 4096,
            "learning_rate": 0.01,
            "tau": 0.05,
            "steps_per_update": 12,
        }
        more = {"exploration_steps": 3000} if trainer == "dqn" else {"buffer_init_steps": 128}
        network = {"hidden_units": 16, "num_layers": 1, "memory": memory, **changes.pop("network", {})}
        made: Behavior = make_behavior(
            sizes=(3,),
            continuous=0 if trainer == "dqn" else 1,
            branches=(2,) if trainer == "dqn" else (),
            seed=seed,
            trainer_type=trainer,
            hyperparameters={**hyperparameters, **more, **changes},
            network_settings=network,
            max_steps=10**6,
        )
        return made

    return make


def collected(behavior: Behavior, lengths: tuple[int, ...] = (3, 8), ticks: int = 24) -> DQN | DDPG | TD3:
    """The learner after living in corridors of these lengths, learning nothing."""
    choices = behavior.spec.action_spec.mask_size
    world = Corridor(1, lengths, choices)
    live_in(behavior, world, world.begin(), ticks)
    algorithm = behavior.learner
    assert isinstance(algorithm, DQN | DDPG | TD3)
    return algorithm


def all_sequences(algorithm: DQN | DDPG | TD3, *chosen: int) -> Sample:
    replay = algorithm.replay.buffer
    assert isinstance(replay, SequenceReplay)
    numbers = np.arange(len(replay._starts) - 1)
    return replay._gather_whole(numbers[list(chosen)] if chosen else numbers, None)


def outputs(algorithm: DQN | DDPG | TD3, seen: EncoderInput) -> list[torch.Tensor]:
    """What all networks say of these steps, [B, …] each."""
    if isinstance(algorithm, DQN):
        return [algorithm.networks["network"].encoded_q_values(seen)]
    actions = algorithm.networks["actor"].forward(seen)
    values = algorithm.networks["critic"].forward(seen, torch.full_like(actions, 0.5))
    return [actions, values.movedim(-1, 0)]


@trainers
@kinds
@pytest.mark.parametrize(
    "sequence_length", [3, *(pytest.param(each, marks=pytest.mark.thorough) for each in (1, 64))]
)
def test_sequences_give_what_acting_step_by_step_gives(
    walker, trainer: str, kind: str, sequence_length: int
) -> None:
    memory = {"memory_size": 6, "sequence_length": sequence_length, "type": kind}
    given = {"buffer_init_steps": 4000, **({"noise": "ou"} if trainer == "ddpg" else {})}
    behavior = walker(trainer, memory, **given)
    algorithm = collected(behavior)
    sample = all_sequences(algorithm)
    assert sample.sequences is not None
    assert sample.sequences.lengths.max() == min(sequence_length, 8)
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
                    wanted = one.logits[0] if trainer == "dqn" else torch.tanh(one.mean[0])
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


@trainers
def test_the_next_inputs_are_n_steps_later_or_after_the_end(walker, trainer: str) -> None:
    memory = {"memory_size": 4, "sequence_length": 5}
    algorithm = collected(walker(trainer, memory, n_step=3, buffer_init_steps=4000))
    sample = all_sequences(algorithm)
    following = algorithm.minibatch(sample).next_inputs
    np.testing.assert_array_equal(following.select(following.observations[0]), sample.next_observations[0])
    assert sample.discounts is not None
    np.testing.assert_allclose(np.unique(sample.discounts), [0.99**3, 0.99**2, 0.99], rtol=1e-6)


def gradients_of(algorithm: DQN | DDPG | TD3, *chosen: int) -> tuple[torch.Tensor, int]:
    """Gradients of all networks by some sequences, and how many steps these have; nothing is moved."""
    sample = all_sequences(algorithm, *chosen)
    learn_from(algorithm, algorithm.minibatch(sample))
    optimizers = algorithm.optimizers.values()
    return torch.cat([each.parameters.gradient for each in optimizers]).clone(), len(sample.rows)


@kinds
def test_of_single_decisions_the_loss_is_that_of_a_network_without_history(walker, kind: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 1, "type": kind}
    behavior = walker("dqn", memory, buffer_init_steps=4000, max_grad_norm=None)
    algorithm = collected(behavior, lengths=(1,))
    sample = all_sequences(algorithm)
    assert sample.terminated.all()
    assert not sample.sequences.memories.any()
    seen = [torch.from_numpy(sample.observations[0])]
    network = algorithm.networks["network"]
    q, _ = network.step_outputs(seen, torch.zeros(len(sample.rows), 6))
    chosen = q.gather(1, torch.from_numpy(sample.discrete_actions))[:, 0]
    loss = (chosen - torch.from_numpy(sample.task_rewards)).square().mean()
    slopes = torch.autograd.grad(loss, list(network.parameters()))
    told = learn_from(algorithm, algorithm.minibatch(sample))
    gradient = torch.cat([each.flatten() for each in slopes])
    torch.testing.assert_close(
        algorithm.optimizers["optimizer"].parameters.gradient, gradient, atol=1e-6, rtol=1e-4
    )
    assert told["Losses/Value Loss"] == pytest.approx(loss.item(), rel=1e-5)


@pytest.mark.parametrize("trainer", ["dqn", "ddpg"])
@kinds
def test_padding_counts_for_nothing(walker, trainer: str, kind: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 64, "type": kind}
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


@pytest.mark.parametrize("trainer", ["dqn", "td3"])
@kinds
def test_an_exported_model_remembers_as_the_policy_does(walker, trainer: str, kind: str) -> None:
    behavior = walker(trainer, {"memory_size": 6, "sequence_length": 4, "type": kind})
    collected(behavior, ticks=30)
    policy = Policy(checkpoint_of(behavior))
    session = onnxruntime.InferenceSession(to_onnx(policy.network(), policy.inputs))
    numbers = np.random.default_rng(1).normal(size=(5, CORRIDORS, 3)).astype(np.float32)
    remembered, memories = np.zeros((CORRIDORS, 1, 6), np.float32), None
    for seen in numbers:
        inputs = {"obs_0": seen, "recurrent_in": remembered}
        if trainer == "dqn":
            inputs["action_masks"] = np.ones((CORRIDORS, 2), np.float32)
        done = "deterministic_discrete_actions" if trainer == "dqn" else "deterministic_continuous_actions"
        found, remembered = session.run([done, "recurrent_out"], inputs)
        actions, memories = policy.predict([seen], memories, deterministic=True)
        wanted = actions.discrete if trainer == "dqn" else actions.continuous
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        np.testing.assert_allclose(remembered[:, 0], memories, atol=1e-5)


@trainers
def test_a_copy_that_acts_remembers_as_the_learner_does(walker, trainer: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 4}
    more = {} if trainer == "dqn" else {"noise": "ou"}
    learner = collected(walker(trainer, memory, **more), ticks=40)
    copy_of_it = walker(trainer, memory, seed=2, **more).learner
    copy_of_it.actor.load_state_dict(learner.actor.state_dict(), seed=5)
    learner.actor.stream.manual_seed(5)
    rng = np.random.default_rng(1)
    seen = [rng.normal(size=(CORRIDORS, 3)).astype(np.float32)]
    memories = rng.normal(size=(CORRIDORS, learner.actor.memory_size)).astype(np.float32)
    allowed = np.ones((CORRIDORS, 2 if trainer == "dqn" else 0), np.bool_)
    one, other = (each.actor.act(ActRequest(seen, allowed, memories)) for each in (learner, copy_of_it))
    np.testing.assert_array_equal(one.memories, other.memories)
    np.testing.assert_array_equal(one.continuous_actions, other.continuous_actions)
    np.testing.assert_array_equal(one.discrete_actions, other.discrete_actions)
    assert (one.memories != memories).all()


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


def learned(behavior: Behavior, seed: int, ticks: int) -> float:
    """Mean return after so many ticks in corridors."""
    world = Corridor(seed, choices=behavior.spec.action_spec.mask_size)
    live_in(behavior, world, world.begin(), ticks)
    return likeliest_returns(behavior, seed)


@pytest.mark.probe
@pytest.mark.parametrize("trainer", ["dqn", "ddpg", pytest.param("td3", marks=pytest.mark.thorough)])
@seeds(1, 2, 3)
def test_it_does_at_the_end_what_it_was_told_at_the_start(walker, trainer: str, seed: int) -> None:
    memory = {"memory_size": 16, "sequence_length": 8}
    # Guessing earns 0.
    assert learned(walker(trainer, memory, seed), seed, 700) > 0.9


@pytest.mark.probe
@seeds(1, 2)
def test_without_memory_values_cannot_tell_what_was_said(walker, seed: int) -> None:
    assert abs(learned(walker("dqn", None, seed), seed, 500)) < 0.35
