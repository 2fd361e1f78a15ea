"""Dependencies that networks of groups may have, and those that they must not."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from trainer_service.config import MemorySettings, NetworkSettings
from trainer_service.learning.networks.critics.coma_critic import COMACritic
from trainer_service.learning.networks.critics.joint_critic import JointCritic
from trainer_service.learning.networks.critics.poca_critic import POCACritic
from trainer_service.learning.networks.critics.value_scale import ScaledValues
from trainer_service.learning.networks.encoders.memory import Sequences
from trainer_service.learning.networks.policies.group_actors import GroupActors
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

NUM_AGENTS, CHOICES = 3, 4
SPEC = BehaviorSpec((ObservationSpec("eyes", (5,)),), ActionSpec(0, (CHOICES,)))
SETTINGS = NetworkSettings(hidden_units=16, num_layers=1)
MEMBERS = torch.tensor([[0, 1, 2], [3, -1, 4], [5, -1, -1]])

states = pytest.mark.parametrize("state", ["joint", "agent", "own_and_joint"])


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(5)


def rows() -> tuple[Tensor, Tensor]:
    """Returns what six agents see, and what they do."""
    return torch.randn(6, 5), torch.eye(CHOICES)[torch.randint(CHOICES, (6,))]


def changed(table: Tensor, row: int) -> Tensor:
    other = table.clone()
    other[row] = table[row].roll(1) + 1.0
    return other


def joint_critic(state: str, **changes) -> JointCritic:
    given = {
        "state_sensors": [0],
        "state": state,
        "num_agents": NUM_AGENTS,
        "signals": 2,
        "members": NUM_AGENTS,
        "scaling": "none",
    }
    return JointCritic(SPEC, SETTINGS, **{**given, **changes})


@states
def test_a_joint_critic_sees_all_members_and_nobody_else(state: str) -> None:
    seen, _ = rows()
    critic = joint_critic(state)
    before, after = (critic.forward([table], MEMBERS) for table in (seen, changed(seen, 2)))
    assert not torch.equal(before[0, 0], after[0, 0])
    assert torch.equal(before[1:], after[1:])


def test_a_critic_of_the_environment_reads_any_members_state() -> None:
    seen, _ = rows()
    seen[3:5] = seen[3]
    values = joint_critic("environment").forward([seen], MEMBERS)
    alone = joint_critic("environment")
    assert values.shape == (3, NUM_AGENTS, 2)
    one, other = (alone.forward([seen], torch.tensor([members])) for members in ([3, -1, 4], [-1, 4, -1]))
    assert torch.equal(one, other)


def test_a_critic_in_two_bodies_sees_everyone_from_each_members_place() -> None:
    """Bodies that add up what they see: the own one as it is, the other times 1, 10 or 100, by who is how far on."""
    critic = joint_critic("own_and_joint", signals=1)
    assert critic.own_body is not None
    critic.own_body.forward = lambda own: own.sum(dim=-1, keepdim=True)
    weights = torch.tensor([1.0, 10.0, 100.0]).repeat_interleave(5)
    critic.body.forward = lambda inputs: (inputs[..., :15] * weights).sum(dim=-1, keepdim=True)
    critic.value.forward = lambda features: features.unsqueeze(-1)
    seen = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unsqueeze(1) * torch.tensor([1.0, 0.0, 0.0, 0.0, 0.0])
    values = critic.forward([seen], MEMBERS)[..., 0]
    # Half of own + (own + 10 next + 100 after next); of absent agents, whose values mean nothing, own ones are 0.
    expected = [[161.0, 67.0, 108.0], [254.0, 225.0, 25.0], [6.0, 300.0, 30.0]]
    assert values.tolist() == expected


def test_a_critic_with_memory_begins_each_group_trajectory_anew() -> None:
    memory = MemorySettings(memory_size=8, sequence_length=4)
    settings = NetworkSettings(hidden_units=16, num_layers=1, memory=memory)
    critic = JointCritic(
        SPEC,
        settings,
        state_sensors=[0],
        state="agent",
        num_agents=NUM_AGENTS,
        signals=1,
        members=NUM_AGENTS,
        scaling="none",
    )
    seen, _ = rows()
    together = critic.forward([seen], MEMBERS, torch.tensor([[True, True], [True, False]]))
    first = critic.forward([seen], MEMBERS[:2], torch.tensor([[True, True]]))
    second = critic.forward([seen], MEMBERS[2:], torch.tensor([[True]]))
    assert torch.allclose(together, torch.cat([first, second]), atol=1e-6)
    in_one = critic.forward([seen], MEMBERS, torch.tensor([[True, True, True]]))
    assert not torch.allclose(in_one[2], together[2], atol=1e-6)


@pytest.mark.parametrize("keep_scale", [False, True])
def test_attention_tells_how_large_inputs_are_if_asked(keep_scale: bool) -> None:
    """What it embeds is small and normalized, so that silu is nearly linear: twice the inputs are the same ones."""
    settings = NetworkSettings(hidden_units=64, num_layers=1, layer_norm=True, keep_scale=keep_scale)
    critic = POCACritic(SPEC, settings, agent_sensors=[0], signals=1)
    seen, done, members = 0.5 * torch.randn(300, 5), torch.zeros(300, CHOICES), torch.arange(300).view(100, 3)
    once, twice = (critic.forward([times * seen], done, members)[0] for times in (1.0, 2.0))
    moved = float(((twice - once).abs().mean() / once.std()).detach())
    assert (moved > 0.2) == keep_scale


def test_a_counterfactual_critic_ignores_its_own_agents_action() -> None:
    seen, done = rows()
    critic = COMACritic(
        SPEC, SETTINGS, agent_sensors=[0], state_sensors=[], num_agents=NUM_AGENTS, signals=1, scaling="none"
    )
    before, after = (critic.forward([seen], actions, MEMBERS) for actions in (done, changed(done, 1)))
    assert before.shape == (3, NUM_AGENTS, CHOICES, 1)
    assert torch.equal(before[0, 1], after[0, 1])
    assert not torch.equal(before[0, 0], after[0, 0])
    assert torch.equal(before[1:], after[1:])


WITH_IDS = BehaviorSpec(
    (ObservationSpec("eyes", (5,)), ObservationSpec("agent_id", (NUM_AGENTS,))), ActionSpec(2, (CHOICES,))
)


def own_actors(memory: MemorySettings | None = None) -> GroupActors:
    settings = NetworkSettings(hidden_units=16, num_layers=1, memory=memory)
    return GroupActors(WITH_IDS, settings, agent_sensors=[0], index_sensor=1, share="none")


def test_each_agents_actor_decides_for_it_alone() -> None:
    actors = own_actors()
    seen, who = torch.randn(7, 5), torch.randint(NUM_AGENTS, (7,))
    decided = actors.policy([seen, torch.eye(NUM_AGENTS)[who]])
    for row, actor in enumerate(who.tolist()):
        alone = list(actors)[actor].forward([seen[row : row + 1]], None)
        assert torch.allclose(decided.mean[row], alone.mean[0], atol=1e-6)
        assert torch.allclose(decided.logits[row], alone.logits[0], atol=1e-6)
        assert torch.equal(decided.log_sigma[row], alone.log_sigma)


def test_actors_of_their_own_unroll_their_own_sequences() -> None:
    actors = own_actors(MemorySettings(memory_size=8, sequence_length=4))
    seen = torch.randn(6, 5)
    who = torch.tensor([2, 2, 2, 0, 0, 2])
    filled = torch.tensor([[True, True, True], [True, True, False], [True, False, False]])
    memories = torch.randn(3, actors.memory_size)
    decided = actors.policy([seen, torch.eye(NUM_AGENTS)[who]], Sequences(memories, filled))
    start = 0
    for sequence, (actor, length) in enumerate([(2, 3), (0, 2), (2, 1)]):
        rows_of = slice(start, start + length)
        one = Sequences(memories[sequence : sequence + 1], torch.ones(1, length, dtype=torch.bool))
        alone = list(actors)[actor].forward([seen[rows_of]], one)
        assert torch.allclose(decided.mean[rows_of], alone.mean, atol=1e-6)
        start += length


def test_popart_keeps_what_it_learned_through_a_long_run() -> None:
    draws = torch.Generator().manual_seed(0)
    features = torch.randn((9, 16), generator=draws)
    values = ScaledValues(16, 1, "popart", members=NUM_AGENTS)
    values.update(torch.randn((64, 1), generator=draws) * 5 + 1000)
    before = values.raw(values.forward(features))
    for batch in torch.randn((2000, 64, 1), generator=draws) * 5 + 1000:
        values.update(batch)
    assert values.scale()[1].item() == pytest.approx(5.0, rel=0.02)
    assert torch.allclose(values.raw(values.forward(features)), before, atol=5e-3)


def test_moments_stay_on_the_cpu_without_double_precision() -> None:
    def to_device(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.dtype == torch.float64:
            raise TypeError("no float64 here")
        return tensor.clone()

    values = ScaledValues(16, 2, "popart")
    values._apply(to_device)
    values.update(torch.randn(50, 2) * 7 + 3)
    assert values.mean.dtype == torch.float64
    assert {tensor.dtype for tensor in values.scale()} == {torch.float32}
