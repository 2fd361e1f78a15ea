"""Learners with teams of several behaviors: padding is no difference where there is none, and moves nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat, observe
from unlike_agents import UnlikeWorld, make_team

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.learning.algorithms.common.actor import ActRequest
from trainer_service.learning.networks.groups.histories import GroupInput
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of, restore
from trainer_service.running.collection.records import BehaviorTick
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch, StepBatch

EYES = vector_sensor("eyes", 2)
KEEPER = MemberSpec("Keeper", (EYES,), ActionSpec(2, (3,)), 1)
PLAYER = MemberSpec("Player", (EYES, vector_sensor("feet", 1)), ActionSpec(1, (2, 2)), 1)


def settings_of(trainer_type: str, **changes: Any) -> dict[str, Any]:
    sizes = {"batch_size": 32, "buffer_size": 64}
    if trainer_type in ("mappo", "happo", "poca"):
        sizes["num_epoch"] = 2
    elif trainer_type != "coma":
        sizes |= {"buffer_size": 500, "steps_per_update": 32}
    if trainer_type == "maddpg":
        sizes["buffer_init_steps"] = 64
    return {
        "trainer_type": trainer_type,
        "hyperparameters": {**sizes, **changes},
        "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
        "max_steps": 10**6,
    }


class Anything(UnlikeWorld):
    """Pays for whatever is done."""

    copies = 8

    def see(self) -> list[list[np.ndarray]]:
        return [
            [self.rng.normal(5.0, 2.0, (self.copies, sensor.size)) for sensor in member.observation_specs]
            for member in self.members
        ]

    def pay(self, actions: Sequence[ActionBatch]) -> tuple[Sequence[np.ndarray], np.ndarray]:
        self.done = actions
        own = [batch.discrete.sum(axis=1) + batch.continuous.sum(axis=1) for batch in actions]
        return own, own[0] * own[1]


class Twins(Anything):
    """Both members see and do the same."""

    members = (
        MemberSpec("One", (EYES,), ActionSpec(0, (3,)), 1),
        MemberSpec("Other", (EYES,), ActionSpec(0, (3,)), 1),
    )


class KeeperAndPlayer(Anything):
    members = (KEEPER, PLAYER)


class Choosers(Anything):
    """Unlike agents that have choices alone."""

    members = (
        MemberSpec("Keeper", (EYES,), ActionSpec(0, (3,)), 1),
        MemberSpec("Player", (EYES, vector_sensor("feet", 1)), ActionSpec(0, (2, 2)), 1),
    )


class AsOne:
    """A world of a team, seen as if all its agents were of one behavior."""

    def __init__(self, world: UnlikeWorld) -> None:
        self.world = world

    def begin(self) -> StepBatch:
        return replace(self.world.begin(), members=None)

    def step(self, actions: ActionBatch) -> StepBatch:
        return replace(self.world.step(actions), members=None)


IDENTICAL = ["mappo", "happo", "coma", "idqn", "vdn", "qmix", "dqn_share", "dqn_consensus", "sic", "maddpg"]


@pytest.mark.parametrize("trainer_type", IDENTICAL)
def test_like_members_that_share_all_learn_as_one_behavior(live, trainer_type: str) -> None:
    settings = settings_of(trainer_type, share="full")
    team = make_team(Twins.members, **settings)
    hyper = {**settings["hyperparameters"], "group_size": 2, "agent_ids": True}
    one = Behavior(
        "Team",
        BehaviorSpec((EYES,), ActionSpec(0, (3,))),
        TrainerSettings.model_validate({**settings, "hyperparameters": hyper}),
        Compute(torch.device("cpu"), 1),
    )
    one.prepare()
    live(team, Twins(1), 3)
    live(one, AsOne(Twins(1)), 3)
    ours, theirs = (flat(checkpoint_of(behavior).algorithm) for behavior in (team, one))
    assert_equal_states(ours, theirs)


@pytest.mark.parametrize("trainer_type", ["mappo", "happo", "coma"])
def test_like_members_with_actors_of_their_own_learn_as_one_behavior(live, trainer_type: str) -> None:
    settings = settings_of(trainer_type, share="none")
    team = make_team(Twins.members, **settings)
    hyper = {**settings["hyperparameters"], "group_size": 2}
    one = Behavior(
        "Team",
        BehaviorSpec((EYES,), ActionSpec(0, (3,))),
        TrainerSettings.model_validate({**settings, "hyperparameters": hyper}),
        Compute(torch.device("cpu"), 1),
    )
    one.prepare()
    live(team, Twins(1), 3)
    live(one, AsOne(Twins(1)), 3)
    assert_equal_states(*(flat(checkpoint_of(behavior).algorithm) for behavior in (team, one)))


@pytest.mark.parametrize("share", ["group", "none", "full"])
@pytest.mark.parametrize("trainer_type", ["mappo", "poca", "maddpg"])
def test_an_agent_never_does_what_it_lacks(live, trainer_type: str, share: str) -> None:
    changes = {"noise": "ou", "exploration_noise": 1.0} if trainer_type == "maddpg" else {}
    behavior, world = (
        make_team(KeeperAndPlayer.members, **settings_of(trainer_type, share=share, **changes)),
        Spy(1),
    )
    live(behavior, world, 3)
    keepers, players = world.padded[:, :8], world.padded[:, 8:]
    assert keepers[..., 0].any()
    assert players[..., 0].any()
    assert keepers[..., 1].any()
    assert not players[..., 1].any()


class Spy(KeeperAndPlayer):
    """Remembers all numbers that the learner gave, padded."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.heard: list[np.ndarray] = []

    @property
    def padded(self) -> np.ndarray:
        return np.stack(self.heard)

    def step(self, actions: ActionBatch) -> StepBatch:
        self.heard.append(actions.continuous.copy())
        return super().step(actions)


@pytest.mark.parametrize("trainer_type", ["mappo", "maddpg"])
def test_statistics_of_sensors_are_their_owners(live, trainer_type: str) -> None:
    behavior = make_team(KeeperAndPlayer.members, **settings_of(trainer_type))
    live(behavior, KeeperAndPlayer(1), 2)
    means = checkpoint_of(behavior).algorithm["normalizer"]
    assert means["_normalizers.0.mean"].mean().item() == pytest.approx(5.0, abs=0.7)
    assert means["_normalizers.1.mean"].mean().item() == pytest.approx(5.0, abs=0.7)


@pytest.mark.parametrize(
    ("trainer_type", "networks"),
    [("mappo", 2), ("happo", 3), ("vdn", 2), ("maddpg", 2), ("dqn_share", 2), ("sic", 2)],
)
def test_by_default_agents_of_one_member_share(trainer_type: str, networks: int) -> None:
    members = [replace(Choosers.members[0]), replace(Choosers.members[1], num_agents=2)]
    behavior = make_team(members, **settings_of(trainer_type))
    assert behavior.settings.hyperparameters.share == ("none" if trainer_type == "happo" else "group")
    state = checkpoint_of(behavior).algorithm
    names = state[{"mappo": "actors", "happo": "actors", "maddpg": "actors"}.get(trainer_type, "network")]
    if trainer_type in ("dqn_share", "sic"):
        assert {tensor.shape[0] for tensor in names.values()} == {networks}
    else:
        found = {name.partition("each.")[2].partition(".")[0] for name in names if "each." in name}
        assert len(found) == networks


@pytest.mark.parametrize("trainer_type", ["mappo", "coma", "qmix", "poca"])
def test_one_network_for_all_members_always_sees_ids(trainer_type: str) -> None:
    behavior = make_team(Twins.members, **settings_of(trainer_type, share="full", agent_ids=False))
    assert behavior.settings.hyperparameters.agent_ids
    assert behavior.collector.selector.num_agents == 2


def test_without_members_a_group_is_one_kind(make_behavior) -> None:
    behavior = make_behavior(trainer_type="mappo", hyperparameters={"share": "group", "group_size": 2})
    assert behavior.settings.hyperparameters.share == "full"
    assert not behavior.settings.hyperparameters.needs_agent_index


def test_states_of_the_environment_that_differ_are_refused_by_shape() -> None:
    members = [
        MemberSpec("One", (EYES, vector_sensor(GLOBAL_STATE, 2)), ActionSpec(1), 1),
        MemberSpec("Other", (EYES, vector_sensor(GLOBAL_STATE, 3)), ActionSpec(1), 1),
    ]
    with pytest.raises(
        UserError, match=r"one 'global_state' for the whole team, .* shapes \(2,\) and \(3,\)"
    ):
        make_team(members, **settings_of("mappo", state="environment"))


@pytest.mark.parametrize("trainer_type", ["mappo", "qmix", "coma"])
def test_a_state_that_one_member_is_shown_serves_all(live, trainer_type: str) -> None:
    first, second = Choosers.members if trainer_type != "coma" else Twins.members
    shown = replace(second, observation_specs=(*second.observation_specs, vector_sensor(GLOBAL_STATE, 2)))

    class World(Anything):
        members = (first, shown)

    behavior = make_team(World.members, **settings_of(trainer_type, state="environment"))
    live(behavior, World(1), 2)
    assert behavior.updates == 2


def test_what_a_critic_of_actions_is_given_of_absent_branches() -> None:
    """A branch that an agent lacks adds nothing to the value of what it chooses."""
    behavior = make_team(Choosers.members, **settings_of("vdn"))
    network = behavior.learner.networks["network"].network  # type: ignore[attr-defined]
    q = network.group_outputs(GroupInput([torch.randn(4, 2, 2), torch.randn(4, 2, 1)]))
    assert q.shape == (4, 2, 5)
    assert not q[:, 0, 3:].any()
    assert not q[:, 1, 2].any()


@pytest.mark.parametrize("share", ["group", "none", "full"])
@pytest.mark.parametrize("trainer_type", ["mappo", "poca", "coma", "vdn", "dqn_share", "maddpg"])
def test_unlike_agents_learn_with_memory_and_act_alike_afterwards(
    live, trainer_type: str, share: str
) -> None:
    world: type[UnlikeWorld] = KeeperAndPlayer if trainer_type in ("mappo", "poca", "maddpg") else Choosers
    if trainer_type == "coma":
        world = Twins
    settings = settings_of(trainer_type, share=share)
    settings["network_settings"]["memory"] = {"memory_size": 4, "sequence_length": 4}
    behavior = make_team(world.members, **settings)
    live(behavior, world(1), 2)
    again = make_team(world.members, 9, **settings)
    restore(again, checkpoint_of(behavior))
    seen = world(5).begin()
    batch = replace(seen, agent_ids=seen.agent_ids + 1000)
    for each in (behavior, again):
        each.collector.drop(0)
    decided = [_decisions(each, batch) for each in (behavior, again)]
    np.testing.assert_array_equal(decided[0], decided[1])


def _decisions(behavior: Behavior, batch: StepBatch) -> np.ndarray:
    """What a behavior remembers after one step of agents that are new."""
    observe(behavior, BehaviorTick(0, 0, batch))
    algorithm = behavior.learner
    selected = behavior.collector.selector.batch(batch, np.repeat([0, 1], 8))
    memories = np.zeros((len(batch), algorithm.actor.memory_size), np.float32)
    decisions = algorithm.actor.act(ActRequest(selected.observations, batch.allowed_actions, memories, True))
    return np.concatenate(
        [decisions.continuous_actions, decisions.discrete_actions, decisions.memories], axis=1
    )
