"""Learners with teams of several behaviors: padding is no difference where there is none, and moves nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from behavior_worlds import assert_equal_states, flat
from unlike_agents import UnlikeWorld, make_team

from trainer_service.config import TrainerSettings
from trainer_service.errors import UserError
from trainer_service.learning.algorithms import Compute
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.behaviors.saving import checkpoint_of
from unity_bridge.simulators.scene import vector_sensor
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, MemberSpec
from unity_bridge.steps import ActionBatch, StepBatch

EYES = vector_sensor("eyes", 2)


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


@pytest.mark.parametrize(
    ("trainer_type", "share"),
    [
        *((each, "full") for each in ("mappo", "happo", "coma", "qmix", "dqn_consensus", "sic", "maddpg")),
        ("mappo", "none"),
        ("coma", "none"),
    ],
)
def test_like_members_learn_as_one_behavior(live, trainer_type: str, share: str) -> None:
    settings = settings_of(trainer_type, share=share)
    team = make_team(Twins.members, **settings)
    hyper = {**settings["hyperparameters"], "group_size": 2, "agent_ids": share == "full"}
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


def test_one_network_for_all_members_always_sees_ids() -> None:
    behavior = make_team(Twins.members, **settings_of("qmix", share="full", agent_ids=False))
    assert behavior.settings.hyperparameters.agent_ids
    assert behavior.collector.selector.num_agents == 2


def test_states_of_the_environment_that_differ_are_refused_by_shape() -> None:
    members = [
        MemberSpec("One", (EYES, vector_sensor(GLOBAL_STATE, 2)), ActionSpec(1), 1),
        MemberSpec("Other", (EYES, vector_sensor(GLOBAL_STATE, 3)), ActionSpec(1), 1),
    ]
    with pytest.raises(
        UserError, match=r"one 'global_state' for the whole team, .* shapes \(2,\) and \(3,\)"
    ):
        make_team(members, **settings_of("mappo", state="environment"))


def test_a_state_that_one_member_is_shown_serves_all(live) -> None:
    first, second = Choosers.members
    shown = replace(second, observation_specs=(*second.observation_specs, vector_sensor(GLOBAL_STATE, 2)))

    class World(Anything):
        members = (first, shown)

    behavior = make_team(World.members, **settings_of("qmix", state="environment"))
    live(behavior, World(1), 2)
    assert behavior.updates == 2
