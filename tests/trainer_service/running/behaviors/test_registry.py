"""Behavior ids, the behaviors that they mean, and the actions that go to each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from behaviors_of_simulators import BehaviorsOfSimulators

from trainer_service.errors import OutOfMemory, UserError
from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator
from trainer_service.learning.rollout.assembler import TrajectoryAssembler
from trainer_service.learning.rollout.group_returns import GroupReturns
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.callbacks import CallbackList
from trainer_service.running.collection.router import parse_behavior_id
from trainer_service.running.runs.files import SaveError
from unity_bridge.server.bridge import Tick
from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec((ObservationSpec("sensor_0", (1,)),), ActionSpec(1))


@pytest.mark.parametrize(
    ("behavior_id", "expected"),
    [
        ("Walker?team=0", ("Walker", 0)),
        ("Walker?team=12", ("Walker", 12)),
        ("Walker", ("Walker", 0)),
        ("My Walker 2?team=1", ("My Walker 2", 1)),
        ("Walker?side=left&team=3&more=x", ("Walker", 3)),
    ],
)
def test_an_id_is_a_name_and_a_team(behavior_id: str, expected: tuple[str, int]) -> None:
    assert parse_behavior_id(behavior_id) == expected


@pytest.mark.parametrize("behavior_id", ["", "?team=1", "../up?team=0", "Walker?team=-1", "a\nb", "x" * 201])
def test_an_id_that_could_be_no_folder_is_refused(behavior_id: str) -> None:
    with pytest.raises(UserError, match="behavior"):
        parse_behavior_id(behavior_id)


@pytest.mark.parametrize("team", ["9" * 4301, "1073741824", "\u0661"])
def test_a_team_number_of_more_than_nine_digits_is_refused(team: str) -> None:
    with pytest.raises(UserError, match=r"behavior id 'Walker\?team=.*: expected ") as refusal:
        parse_behavior_id(f"Walker?team={team}")
    assert len(str(refusal.value)) < 200


@pytest.fixture
def made(make_behavior) -> Callable[..., BehaviorsOfSimulators]:
    """Behaviors with as many numbers to say as is declared, and these settings."""

    def make(settings: Mapping[str, Any] | None = None, **more: Any) -> BehaviorsOfSimulators:
        def create(name: str, spec: BehaviorSpec, group: int) -> Behavior:
            behavior: Behavior = make_behavior(
                name=name, continuous=spec.action_spec.continuous_size, **(settings or {})
            )
            return behavior

        return BehaviorsOfSimulators(create, **more)

    return make


@pytest.fixture
def behaviors(made) -> BehaviorsOfSimulators:
    behaviors: BehaviorsOfSimulators = made()
    return behaviors


def asks(*agents: int) -> StepBatch:
    ids = np.array(agents, np.int64)
    allowed = np.ones((len(ids), 0), np.bool_)
    zeros = np.zeros((len(ids), 1), np.float32)
    return step_batch([zeros], zeros[:, 0], agent_ids=ids, allowed_actions=allowed)


def test_a_behavior_that_is_declared_differently_is_refused(behaviors: BehaviorsOfSimulators) -> None:
    behaviors.connect(0, "Walker?team=0", SPEC)
    other = BehaviorSpec((ObservationSpec("sensor_0", (1,)),), ActionSpec(2))
    with pytest.raises(
        UserError, match=r"'Walker' differs from what simulator 0 declared before: actions were"
    ):
        behaviors.connect(0, "Walker?team=1", other)


def declare(behaviors: BehaviorsOfSimulators, behavior_id: str, spec: BehaviorSpec = SPEC) -> None:
    """Declares a behavior in each of the simulators that these tests know."""
    for simulator in (0, 4, 9):
        behaviors.connect(simulator, behavior_id, spec)


def observe(behaviors: BehaviorsOfSimulators, *ticks: Tick) -> None:
    for tick in ticks:
        behaviors.observe(tick)


def test_the_same_id_in_two_teams_is_two_agents(behaviors: BehaviorsOfSimulators) -> None:
    for team in (0, 1):
        declare(behaviors, f"Walker?team={team}", SPEC)
    tick = Tick(0, {}, {"Walker?team=0": asks(7), "Walker?team=1": asks(7)})
    for _ in range(2):
        observe(behaviors, tick)
        behaviors.act()
    assert behaviors["Walker"].step == 2


def test_agents_of_a_dropped_simulator_get_no_action(behaviors: BehaviorsOfSimulators) -> None:
    for behavior_id in ("Walker?team=0", "Flyer?team=0"):
        declare(behaviors, behavior_id, SPEC)
    observe(
        behaviors,
        Tick(4, {}, {"Flyer?team=0": asks(1), "Walker?team=0": asks(1, 2, 3)}),
        Tick(9, {}, {"Walker?team=0": asks(5)}),
    )
    behaviors.drop(4)
    assert {number: list(reply) for number, reply in behaviors.act().items()} == {9: ["Walker?team=0"]}
    observe(behaviors, Tick(4, {}, {"Walker?team=0": asks(1)}), Tick(9, {}, {"Walker?team=0": asks(5)}))
    assert behaviors["Walker"].step == 1


def test_a_behavior_absent_for_too_long_is_not_waited_for(made) -> None:
    for absence_timeout_s, waits in ((0.0, False), (1000.0, True)):
        behaviors = made({"max_steps": 100}, absence_timeout_s=absence_timeout_s)
        behaviors.connect(0, "Walker?team=0", SPEC)
        behaviors.connect(1, "Walker?team=0", SPEC)
        behaviors.connect(1, "Other?team=0", SPEC)
        behaviors["Walker"].step = 100
        assert behaviors.unfinished == ["Other"]
        assert not behaviors.finished
        behaviors.disconnect(1)
        assert behaviors.is_absent("Other")
        assert not behaviors.is_absent("Walker")
        assert behaviors.unfinished == (["Other"] if waits else [])
        assert list(behaviors.awaited) == (["Walker", "Other"] if waits else ["Walker"])
        assert behaviors.finished is not waits
        behaviors.connect(2, "Other?team=1", SPEC)
        assert not behaviors.finished


def test_behaviors_that_the_configuration_does_not_name_are_bounded(
    made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer_service.running.behaviors.registry.MAX_UNLISTED", 2)
    behaviors = made(listed=["Walker", "Flyer"])
    for name in ("A", "Walker", "B"):
        behaviors.connect(0, name, SPEC)
    with pytest.raises(
        UserError, match="behavior 'C': expected at most 2 behaviors that only default_settings"
    ):
        behaviors.connect(0, "C", SPEC)
    behaviors.connect(0, "A?team=1", SPEC)
    behaviors.connect(0, "Flyer", SPEC)


def test_no_behavior_shares_a_folder_with_one_of_the_configuration(made) -> None:
    behaviors = made(listed=["Walker"])
    with pytest.raises(
        UserError, match="'WALKER': expected a name that differs in more than case from 'Walker'"
    ):
        behaviors.connect(0, "WALKER", SPEC)
    behaviors.connect(1, "Walker", SPEC)
    behaviors.connect(1, "Other", SPEC)
    with pytest.raises(
        UserError, match="'other': expected a name that differs in more than case from 'Other'"
    ):
        behaviors.connect(2, "other", SPEC)
    assert list(behaviors) == ["Walker", "Other"]


def test_a_simulator_has_a_bounded_number_of_ids(
    behaviors: BehaviorsOfSimulators, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainer_service.running.collection.router.MAX_IDS", 3)
    for simulator in (0, 1):
        for team in (0, 1, 2):
            behaviors.connect(simulator, f"Walker?team={team}", SPEC)
    with pytest.raises(UserError, match=r"'Walker\?team=3': expected at most 3 of one simulator"):
        behaviors.connect(0, "Walker?team=3", SPEC)


def test_two_ids_of_one_name_and_team_are_refused(behaviors: BehaviorsOfSimulators) -> None:
    behaviors.connect(0, "Walker?team=1", SPEC)
    with pytest.raises(UserError, match=r"'Walker\?x=1&team=1': expected one id for each name and team"):
        behaviors.connect(0, "Walker?x=1&team=1", SPEC)
    behaviors.connect(1, "Walker?x=1&team=1", SPEC)


HALF_WAY: list[tuple[type, str]] = [
    (AgentIndexAllocator, "assign"),
    (TrajectoryAssembler, "observe"),
    (GroupReturns, "observe"),
    (CallbackList, "on_collection"),
]
"""Where in the way of a tick something fails."""


@pytest.mark.parametrize(("owner", "method"), HALF_WAY)
def test_a_simulator_that_fails_half_way_leaves_nothing_behind(
    made, monkeypatch: pytest.MonkeyPatch, owner: type, method: str
) -> None:
    behaviors = made({"trainer_type": "mappo", "time_horizon": 2})
    plain, broken = getattr(owner, method), False

    def fail(*arguments: object) -> object:
        result = plain(*arguments)
        if broken:
            raise RuntimeError("half-way")
        return result

    monkeypatch.setattr(owner, method, fail)
    behaviors.connect(0, "Walker", SPEC)
    rows = set()
    for visitor in range(1, 6):
        behaviors.connect(visitor, "Walker", SPEC)
        for tick in range(4):
            behaviors.observe(Tick(0, {}, {"Walker": asks(1, 2, 3)}))
            if tick < 2:
                behaviors.observe(Tick(visitor, {}, {"Walker": asks(1, 2, 3)}))
            elif tick == 2:
                broken = True
                with pytest.raises(RuntimeError):
                    behaviors.observe(Tick(visitor, {}, {"Walker": asks(1, 2, 3, 4)}))
                broken = False
                behaviors.disconnect(visitor)
            replies = behaviors.act()
            assert {number: len(reply["Walker"]) for number, reply in replies.items()} == (
                {0: 3, visitor: 3} if tick < 2 else {0: 3}
            )
        rows.add(behaviors["Walker"].collector._assembler._agents.capacity)
    assert len(rows) == 1


OTHER_SPEC = BehaviorSpec((ObservationSpec("sensor_0", (1,)),), ActionSpec(2))


def test_a_behavior_without_experience_goes_with_its_last_simulator(
    behaviors: BehaviorsOfSimulators,
) -> None:
    behaviors.connect(0, "Walker", OTHER_SPEC)
    behaviors.connect(1, "Walker", OTHER_SPEC)
    behaviors.disconnect(0)
    assert behaviors.forget_unused() == []
    behaviors.disconnect(1)
    assert [each.name for each in behaviors.forget_unused()] == ["Walker"]
    assert not behaviors
    assert not behaviors.finished
    behaviors.connect(2, "Walker", SPEC)
    assert behaviors["Walker"].spec.action_spec == SPEC.action_spec
    assert not behaviors.is_absent("Walker")


def test_a_behavior_with_experience_outlives_its_simulators(behaviors: BehaviorsOfSimulators) -> None:
    behaviors.connect(0, "Walker", SPEC)
    behaviors.observe(Tick(0, {}, {"Walker": asks(1)}))
    behaviors.act()
    behaviors.observe(Tick(0, {}, {"Walker": asks(1)}))
    behaviors.disconnect(0)
    assert behaviors.forget_unused() == []
    with pytest.raises(UserError, match="differs from what simulator 0 declared before"):
        behaviors.connect(1, "Walker", OTHER_SPEC)


def test_unlisted_behaviors_share_one_budget_of_memory(made) -> None:
    behaviors = made(
        listed=["Walker"],
        memory_need=lambda name, spec, group: 100 * 2**20,
        available_memory=lambda: 800 * 2**20,
    )
    behaviors.connect(0, "Walker", SPEC)
    behaviors.connect(1, "A", SPEC)
    behaviors.connect(2, "B", SPEC)  # leaves (800 + 200) / 4 - 200 MiB
    with pytest.raises(UserError, match=r"'C': its networks .* need 100 MiB, expected at most 50 MiB for"):
        behaviors.connect(3, "C", SPEC)
    behaviors.disconnect(1)
    behaviors.forget_unused()
    behaviors.connect(3, "C", SPEC)


def test_networks_beyond_all_memory_are_refused_where_listed() -> None:
    created: list[str] = []
    behaviors = BehaviorsOfSimulators(
        lambda name, spec, group: created.append(name),
        listed=["Walker"],
        memory_need=lambda name, spec, group: 3 * 2**30,
        available_memory=lambda: 2**30,
    )
    with pytest.raises(
        UserError, match="need 3,072 MiB, expected at most the 1,024 MiB of memory that are free"
    ):
        behaviors.connect(0, "Walker", SPEC)
    assert created == []


@pytest.mark.parametrize(
    "error",
    [
        SaveError(Path("events"), OSError(28, "No space left on device")),
        OutOfMemory("out of memory for the networks"),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 8 GiB"),
    ],
    ids=["disk", "memory", "GPU"],
)
def test_what_an_unlisted_behavior_finds_missing_costs_its_simulator_alone(error: Exception) -> None:
    def create(name: str, spec: BehaviorSpec, group: int) -> Behavior:
        raise error

    behaviors = BehaviorsOfSimulators(create, listed=["Walker"])
    with pytest.raises(UserError, match=r"^behavior 'Other': .*(No space left|out of memory)") as refusal:
        behaviors.connect(0, "Other", SPEC)
    assert type(refusal.value) is UserError
    with pytest.raises(type(error)):
        behaviors.connect(0, "Walker", SPEC)
    assert not behaviors
