"""Learners of groups that remember: they learn from what each agent lived through, whoever comes and goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from behavior_worlds import observe
from group_lives import NUM_AGENTS, GroupLife
from seeds import seeds
from torch import Tensor

from trainer_service.learning.algorithms.common.off_policy.group_q_learner import GroupQLearner
from trainer_service.learning.algorithms.common.off_policy.joint_minibatch import JointMinibatch
from trainer_service.learning.algorithms.common.off_policy.replay_learner import ReplayLearner
from trainer_service.learning.algorithms.common.off_policy.replay_sampler import part_of_sample
from trainer_service.learning.algorithms.off_policy.maddpg import MADDPG
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.learning.networks.groups.stacked_actor_critic import StackedActors
from trainer_service.learning.networks.shard import Shard
from trainer_service.learning.replay.joint_sequence_replay import JointSequenceReplay
from trainer_service.learning.replay.joint_transitions import JointSample
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.ops.gumbel import one_hot_choices
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from trainer_service.running.collection.collector import BehaviorTick
from trainer_service.running.interop.onnx_export import to_onnx
from trainer_service.running.policy import Policy
from unity_bridge.simulators.scene import concatenate, step_batch
from unity_bridge.steps import ActionBatch, StepBatch

kinds = pytest.mark.parametrize("kind", ["lstm", pytest.param("gru", marks=pytest.mark.thorough)])
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
learners = pytest.mark.parametrize("learner", LEARNERS)
lengths = pytest.mark.parametrize(
    "sequence_length", [3, *(pytest.param(length, marks=pytest.mark.thorough) for length in (1, 64))]
)


@pytest.fixture
def group(make_behavior) -> Callable[..., Behavior]:
    """A behavior of groups with memory; ``memory`` None takes it from it."""

    def make(learner: str, memory: dict[str, Any] | None, seed: int = 1, **changes: Any) -> Behavior:
        trainer, more = LEARNERS.get(learner, (learner, {}))
        network = {"hidden_units": 8, "num_layers": 1, "memory": memory, **changes.pop("network", {})}
        hyperparameters = {"group_size": NUM_AGENTS, "batch_size": 64, "buffer_size": 4000, **more}
        made: Behavior = make_behavior(
            sizes=changes.pop("sizes", (3,)),
            branches=(2,),
            seed=seed,
            trainer_type=trainer,
            hyperparameters={**hyperparameters, **changes},
            network_settings=network,
            max_steps=10**6,
        )
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
    replay = algorithm.replay.buffer
    assert isinstance(replay, JointSequenceReplay)
    return replay._gather_whole(np.array(chosen) if chosen else np.arange(len(replay._starts) - 1), None)


@learners
@kinds
@lengths
def test_sequences_give_what_acting_step_by_step_gave(
    group, learner: str, kind: str, sequence_length: int
) -> None:
    memory = {"memory_size": 6, "sequence_length": sequence_length, "type": kind}
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


@pytest.mark.parametrize(("share", "ids"), [("none", False), ("full", True), ("full", False)])
def test_what_imitates_is_what_acts(group, share: str, ids: bool) -> None:
    behavior = group("maddpg", {"memory_size": 6, "sequence_length": 3}, share=share, agent_ids=ids)
    actors = behavior.learner.actor.network
    rng = torch.Generator().manual_seed(1)
    seen, memories = torch.randn(4, 3, generator=rng), torch.randn(4, 6, generator=rng)
    for agent in range(NUM_AGENTS):
        one_hot = torch.eye(NUM_AGENTS)[[agent] * 4]
        expected, kept = actors.step([seen, one_hot], memories)
        imitators = actors.imitators()
        imitator = imitators[agent % len(imitators)]
        assert imitator.memory is not None
        remembered, its = imitator.memory.step(imitator.encode([seen]), memories)
        torch.testing.assert_close(imitator.decide(remembered).logits, expected.logits)
        torch.testing.assert_close(its, kept)


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
@kinds
def test_padding_and_company_count_for_nothing(group, learner: str, kind: str) -> None:
    memory = {"memory_size": 6, "sequence_length": 5, "type": kind}
    algorithm, _ = lived(group(learner, memory, buffer_init_steps=4000), ticks=80)
    lengths = everything(algorithm).sequences.lengths
    chosen = [int(np.flatnonzero(lengths == length)[0]) for length in (5, 1, 2)]
    together, joint_steps = gradients_of(algorithm, everything(algorithm, *chosen, chosen[0]))
    assert joint_steps == 13
    alone = [gradients_of(algorithm, everything(algorithm, each)) for each in (*chosen, chosen[0])]
    expected = sum(gradient * count for gradient, count in alone) / 13
    torch.testing.assert_close(together, expected, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("learner", ["apart", "vdn", "messages"])
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


@learners
@kinds
def test_an_exported_model_remembers_as_the_policy_does(group, learner: str, kind: str) -> None:
    behavior = group(learner, {"memory_size": 6, "sequence_length": 4, "type": kind})
    with torch.no_grad():
        for parameter in behavior.learner.networks["network"].parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    policy = Policy(checkpoint_of(behavior))
    network = policy.network()
    session = onnxruntime.InferenceSession(to_onnx(network, policy.inputs))
    rng, rows = np.random.default_rng(1), 7
    remembered, memories = np.zeros((rows, 1, 6), np.float32), torch.zeros(rows, 6)
    for _ in range(4):
        shapes = [sensor.shape for sensor in policy.inputs.observation_specs]
        seen = [rng.normal(size=(rows, *shape)).astype(np.float32) for shape in shapes]
        if len(shapes) > 1:
            seen[-1] = np.eye(NUM_AGENTS, dtype=np.float32)[rng.integers(NUM_AGENTS, size=rows)]
        inputs = {f"obs_{i}": sensor for i, sensor in enumerate(seen)}
        inputs |= {"action_masks": np.ones((rows, 2), np.float32), "recurrent_in": remembered}
        chosen, remembered = session.run(["deterministic_discrete_actions", "recurrent_out"], inputs)
        with torch.inference_mode():
            parameters, memories = network.step([torch.from_numpy(sensor) for sensor in seen], memories)
        np.testing.assert_allclose(remembered[:, 0], memories, atol=1e-5)
        np.testing.assert_array_equal(chosen[:, 0], parameters.logits.argmax(dim=1))
    assert np.abs(remembered).max() > 0.01


class Cues:
    """Pairs that see a cue each at first, nothing for some steps, and are paid at the end for doing what they saw."""

    pairs = 8

    def __init__(self, seed: int, length: int = 2) -> None:
        self.rng = np.random.default_rng(seed)
        self.length = length
        self.scores: list[float] = []
        self.ids = np.arange(2 * self.pairs)

    def begin(self) -> StepBatch:
        self.time, self.cue = 0, self.rng.choice([-1.0, 1.0], 2 * self.pairs)
        self._look()
        return self.rows(np.zeros(2 * self.pairs))

    def step(self, actions: ActionBatch) -> StepBatch:
        self.time += 1
        self._look()
        if self.time < self.length:
            return self.rows(np.zeros(2 * self.pairs))
        right = (actions.discrete[:, 0] == (self.cue > 0)).reshape(-1, 2).mean(axis=1)
        self.scores.append(float(right.mean()))
        ends = self.rows(np.repeat(right, 2), terminated=np.ones(2 * self.pairs, np.bool_))
        return concatenate(ends, self.begin())

    def _look(self) -> None:
        shown = [
            np.where(self.time == 0, self.cue, 0.0),
            np.full(2 * self.pairs, self.time == self.length - 1),
        ]
        self.seen = np.stack(shown, axis=1).astype(np.float32)

    def rows(self, paid: np.ndarray, **ends: Any) -> StepBatch:
        return step_batch(
            [self.seen],
            np.zeros(2 * self.pairs, np.float32),
            agent_ids=self.ids,
            allowed_actions=np.ones((2 * self.pairs, 2), np.bool_),
            group_ids=1 + self.ids // 2,
            group_rewards=paid.astype(np.float32),
            **ends,
        )


def learned(behavior: Behavior, seed: int, ticks: int) -> float:
    """The share of cues that are followed at last."""
    world = Cues(seed)
    batch = world.begin()
    for _ in range(ticks):
        observe(behavior, BehaviorTick(0, 0, batch))
        if behavior.ready_to_update():
            behavior.update()
        batch = world.step(behavior.collector.act()[0])
    return float(np.mean(world.scores[-20:]))


PROBE = {
    "sizes": (2,),
    "group_size": 2,
    "learning_rate": 0.01,
    "tau": 0.05,
    "steps_per_update": 32,
    "exploration_steps": 3000,
    "exploration_final": 0.0,
}


@pytest.mark.probe
@seeds(1, 2)
@pytest.mark.parametrize(
    "learner", ["vdn", *(pytest.param(each, marks=pytest.mark.thorough) for each in ("qmix", "messages"))]
)
def test_a_pair_does_at_the_end_what_each_was_told_at_the_start(group, learner: str, seed: int) -> None:
    memory = {"memory_size": 16, "sequence_length": 8}
    # Guessing follows half of them.
    assert learned(group(learner, memory, seed, **PROBE), seed, 500) > 0.95


@pytest.mark.probe
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_actors_do_at_the_end_what_each_was_told_at_the_start(group, seed: int) -> None:
    changes = {key: value for key, value in PROBE.items() if "exploration" not in key}
    behavior = group("maddpg", {"memory_size": 16, "sequence_length": 8}, seed, **changes)
    # Choices are drawn, so a few are others than the best.
    assert learned(behavior, seed, 1000) > 0.85


@pytest.mark.probe
@pytest.mark.thorough
@pytest.mark.parametrize("seed", [1, 2])
def test_without_memory_a_pair_can_only_guess(group, seed: int) -> None:
    assert abs(learned(group("vdn", None, seed, **PROBE), seed, 300) - 0.5) < 0.2
