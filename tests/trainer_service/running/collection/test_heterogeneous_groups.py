"""Ticks of a team's behaviors as those of one, and actions back to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from trainer_service.errors import UserError
from trainer_service.running.collection.heterogeneous_groups import HeterogeneousGroups, with_agent_counts
from unity_bridge.errors import WireError
from unity_bridge.server.bridge import Tick
from unity_bridge.simulators.scene import step_batch, vector_sensor
from unity_bridge.specs import ActionSpec, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

LEADER = BehaviorSpec((vector_sensor("sight", 2),), ActionSpec(2))
RUNNER = BehaviorSpec((vector_sensor("touch", 1),), ActionSpec(0, (3,)))
PURSUIT = {"Pursuit": ("Leader", "Runner")}


def batch(spec: BehaviorSpec, agents: Sequence[int], groups: Sequence[int] | None = None) -> StepBatch:
    count = len(agents)
    return step_batch(
        [np.full((count, *sensor.shape), 1, np.float32) for sensor in spec.observation_specs],
        np.ones(count, np.float32),
        agent_ids=np.array(agents, np.int64),
        allowed_actions=np.ones((count, spec.action_spec.mask_size), np.bool_),
        group_ids=np.ones(count, np.int64) if groups is None else np.array(groups),
    )


def first_tick(
    leaders: Sequence[int] = (0,), runners: Sequence[int] = (1, 2), *, team: int = 0, simulator: int = 0
) -> Tick:
    ids = f"Leader?team={team}", f"Runner?team={team}"
    steps = {ids[0]: batch(LEADER, leaders), ids[1]: batch(RUNNER, runners)}
    return Tick(simulator, dict(zip(ids, (LEADER, RUNNER), strict=True)), steps)


def test_a_team_is_one_behavior_with_the_agents_of_its_members() -> None:
    merged = HeterogeneousGroups(PURSUIT).merge(first_tick(team=1))
    assert list(merged.new_specs) == list(merged.steps) == ["Pursuit?team=1"]
    (spec,) = merged.new_specs.values()
    assert [(member.behavior, member.num_agents) for member in spec.members] == [("Leader", 1), ("Runner", 2)]
    (steps,) = merged.steps.values()
    assert steps.agent_ids.tolist() == [0, 1, 2]
    assert steps.members is not None
    assert steps.members.tolist() == [0, 1, 1]


def test_actions_go_back_under_the_simulators_own_ids() -> None:
    teams = HeterogeneousGroups(PURSUIT)
    merged = teams.merge(first_tick())
    chosen = ActionBatch(np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[0], [1], [2]], np.int32))
    replies = teams.split(merged, {"Pursuit?team=0": chosen})
    assert replies["Leader?team=0"].continuous.tolist() == [[0, 1]]
    assert replies["Runner?team=0"].discrete.tolist() == [[1], [2]]
    later = teams.merge(Tick(0, {}, {"Runner?team=0": batch(RUNNER, [2])}))
    replies = teams.split(later, {"Pursuit?team=0": ActionBatch(chosen.continuous[:1], chosen.discrete[2:])})
    assert list(replies) == ["Runner?team=0"]  # the leader was not asked


SPECS = {"Leader?team=0": LEADER, "Runner?team=0": RUNNER}


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ({"Leader?team=0": LEADER}, r"team 'Pursuit' \(team=0\): .* got 'Leader\?team=0' without 'Runner'$"),
        ({"Leader": LEADER, "runner?team=0": RUNNER}, r"without 'Runner' \(is 'runner' meant\?\)"),
        ({"Leader?team=0": LEADER, "Runner?team=1": RUNNER}, r"without 'Runner'"),
        ({**SPECS, "Leader": LEADER}, r"'Leader': expected one id .* 'Leader\?team=0' means the same"),
        ({"Pursuit": LEADER}, r"'Pursuit': the configuration has a team of this name, of 'Leader', 'Runner'"),
    ],
)
def test_a_team_that_is_not_complete_is_refused(declared: Mapping[str, BehaviorSpec], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        HeterogeneousGroups(PURSUIT).merge(Tick(0, declared, {}))


def test_an_agent_of_two_members_is_the_simulators_fault() -> None:
    with pytest.raises(WireError, match="agent 1 stands in two behaviors"):
        HeterogeneousGroups(PURSUIT).merge(first_tick(leaders=[1], runners=[1]))


def test_simulators_are_apart_and_forgotten_when_they_leave() -> None:
    teams = HeterogeneousGroups(PURSUIT)
    teams.merge(first_tick())
    teams.merge(first_tick(simulator=1, runners=[1]))
    teams.drop(0)
    unknown = Tick(0, {}, {"Runner?team=0": batch(RUNNER, [2])})
    assert list(teams.merge(unknown).steps) == ["Runner?team=0"]
    assert list(teams.merge(Tick(1, {}, unknown.steps)).steps) == ["Pursuit?team=0"]


def test_numbers_of_agents_are_configured_or_trained_or_seen() -> None:
    (seen,) = HeterogeneousGroups(PURSUIT).merge(first_tick()).new_specs.values()
    trained = with_agent_counts("Pursuit", seen, {"Leader": 2, "Runner": 4}, None)
    assert trained.agent_members == (0, 0, 1, 1, 1, 1)
    with pytest.raises(
        UserError, match=r"team 'Pursuit': .* at least 2 agents of 'Runner', expected at most 1"
    ):
        with_agent_counts("Pursuit", seen, {"Leader": 1, "Runner": 1}, None)
    nothing = dict.fromkeys(("Leader", "Runner"))
    assert with_agent_counts("Pursuit", seen, nothing, trained) == trained
    assert with_agent_counts("Pursuit", seen, {"Leader": None, "Runner": 3}, trained).agent_members == (
        0,
        0,
        1,
        1,
        1,
    )
    assert with_agent_counts("Pursuit", seen, nothing, None) == seen
