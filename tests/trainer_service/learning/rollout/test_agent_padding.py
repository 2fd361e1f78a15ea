"""Padding of unlike agents to one behavior, by small batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from trainer_service.learning.rollout.agent_padding import (
    AgentPadding,
    member_choices,
    member_sensors,
    padded_spec,
    possible_choices,
)
from trainer_service.learning.rollout.observation_selector import make_selector
from unity_bridge.simulators.scene import camera_sensor, step_batch, vector_sensor
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, MemberSpec
from unity_bridge.steps import ActionBatch, Observation, StepBatch

STATE = vector_sensor(GLOBAL_STATE, 3)
LEADER = MemberSpec("Leader", (vector_sensor("eyes", 2), STATE), ActionSpec(2, (3,)), 1)
RUNNER = MemberSpec(
    "Runner", (vector_sensor("eyes", 4), camera_sensor("camera", 1, 2), STATE), ActionSpec(1, (2, 2)), 2
)
SPEC = padded_spec([LEADER, RUNNER])
EYES_2, LEADER_STATE, EYES_4, CAMERA = range(4)


def batch_of(
    member: MemberSpec, agents: Sequence[int], value: float, *, ended: int = 0, **columns: Any
) -> StepBatch:
    """Agents that all see ``value``; the first ``ended`` rows are terminated."""
    sensors: list[Observation] = [
        np.full((len(agents), *sensor.shape), value, np.float32) for sensor in member.observation_specs
    ]
    rows = np.arange(len(agents))
    return step_batch(
        columns.pop("observations", sensors),
        np.array(agents, np.float32) / 10,
        agent_ids=np.array(agents, np.int64),
        allowed_actions=columns.pop(
            "allowed_actions", np.ones((len(agents), member.action_spec.mask_size), np.bool_)
        ),
        terminated=rows < ended,
        group_ids=np.ones(len(agents), np.int64),
        group_rewards=np.array(agents, np.float32),
        **columns,
    )


def test_sensors_stand_side_by_side_and_equal_ones_are_one() -> None:
    names = [(sensor.name, sensor.shape) for sensor in SPEC.observation_specs]
    assert names == [("eyes", (2,)), (GLOBAL_STATE, (3,)), ("eyes", (4,)), ("camera", (3, 1, 2))]
    assert SPEC.action_spec == ActionSpec(2, (3, 2))
    assert SPEC.members == (LEADER, RUNNER)


def test_members_know_their_sensors_in_any_selection() -> None:
    assert member_sensors(SPEC.observation_specs, LEADER) == (EYES_2, LEADER_STATE)
    assert member_sensors(SPEC.observation_specs, RUNNER) == (EYES_4, CAMERA, LEADER_STATE)
    shown = make_selector(SPEC, with_state=False, num_agents=3).spec
    assert member_sensors(shown.observation_specs, LEADER) == (0,)
    assert member_sensors(shown.observation_specs, RUNNER) == (1, 2)


def test_members_know_their_choices() -> None:
    assert member_choices(SPEC.action_spec, LEADER).tolist() == [True, True, True, False, False]
    assert member_choices(SPEC.action_spec, RUNNER).tolist() == [True, True, False, True, True]
    assert possible_choices(SPEC.action_spec, LEADER).tolist() == [True, True, True, True, False]


def test_terminal_rows_of_all_members_come_first() -> None:
    leaders = batch_of(LEADER, [7, 1], 2, ended=1)
    runners = batch_of(RUNNER, [8, 9, 2, 3], 5, ended=2)
    batch = AgentPadding(SPEC).merge([leaders, runners])
    assert batch.agent_ids.tolist() == [7, 8, 9, 1, 2, 3]
    assert batch.members is not None
    assert batch.members.tolist() == [0, 1, 1, 0, 1, 1]
    assert batch.num_terminal == 3
    assert batch.rewards.tolist() == pytest.approx([0.7, 0.8, 0.9, 0.1, 0.2, 0.3])
    assert batch.group_rewards.tolist() == [7, 8, 9, 1, 2, 3]
    assert set(batch.group_ids.tolist()) == {1}


def test_agents_see_zeros_where_they_have_no_sensor() -> None:
    batch = AgentPadding(SPEC).merge([batch_of(LEADER, [1], 2), batch_of(RUNNER, [2], 5)])
    assert batch.observations[EYES_2].tolist() == [[2, 2], [0, 0]]
    assert batch.observations[EYES_4].tolist() == [[0] * 4, [5] * 4]
    assert batch.observations[LEADER_STATE].tolist() == [[2] * 3, [5] * 3]
    assert batch.observations[CAMERA].reshape(2, 6).tolist() == [[0] * 6, [5] * 6]


def test_pictures_stay_bytes_unless_somebody_sends_floats() -> None:
    padding = AgentPadding(SPEC)
    as_bytes = batch_of(RUNNER, [2], 5)
    seen = (*as_bytes.observations[:1], np.full((1, 3, 1, 2), 255, np.uint8), as_bytes.observations[2])
    runners = batch_of(RUNNER, [2], 5, observations=seen)
    batch = padding.merge([batch_of(LEADER, [1], 2), runners])
    assert batch.observations[CAMERA].dtype == np.uint8
    assert batch.observations[CAMERA].reshape(2, 6).tolist() == [[0] * 6, [255] * 6]
    other = MemberSpec("Other", RUNNER.observation_specs, ActionSpec(1), 1)
    both = AgentPadding(padded_spec([RUNNER, other])).merge([runners, batch_of(other, [3], 0.5)])
    assert both.observations[1].dtype == np.float32
    assert both.observations[1].reshape(2, 6).tolist() == [[1] * 6, [0.5] * 6]


def test_choices_that_a_member_lacks_are_masked() -> None:
    forbidding = np.array([[False, True, True]])
    leaders = batch_of(LEADER, [1], 2, allowed_actions=forbidding)
    runners = batch_of(RUNNER, [2], 5, allowed_actions=np.array([[True, False, False, True]]))
    batch = AgentPadding(SPEC).merge([leaders, runners])
    assert batch.allowed_actions.tolist() == [
        [False, True, True, True, False],  # no second branch: its first choice alone
        [True, False, False, False, True],
    ]


@pytest.mark.parametrize("runners", [None, batch_of(RUNNER, [], 0)])
def test_a_member_may_be_missing_in_a_tick(runners: StepBatch | None) -> None:
    batch = AgentPadding(SPEC).merge([batch_of(LEADER, [1, 4], 2), runners])
    assert batch.agent_ids.tolist() == [1, 4]
    assert batch.members is not None
    assert batch.members.tolist() == [0, 0]
    assert [sensor.shape for sensor in batch.observations] == [(2, 2), (2, 3), (2, 4), (2, 3, 1, 2)]
    assert batch.observations[CAMERA].dtype == np.uint8  # costs a quarter, and stands for the same zeros


@pytest.mark.parametrize("ended", [0, 1])
def test_an_agent_of_two_behaviors_is_refused(ended: int) -> None:
    with pytest.raises(ValueError, match="agent 3 stands in two behaviors"):
        AgentPadding(SPEC).merge(
            [batch_of(LEADER, [3], 2, ended=ended), batch_of(RUNNER, [3, 2], 5, ended=ended)]
        )


def test_actions_are_cut_to_each_members_own() -> None:
    actions = ActionBatch(
        np.arange(6, dtype=np.float32).reshape(3, 2), np.array([[2, 0], [1, 1], [0, 1]], np.int32)
    )
    leaders, runners = AgentPadding(SPEC).split(actions, np.array([0, 1, 1]))
    assert leaders.continuous.tolist() == [[0, 1]]
    assert leaders.discrete.tolist() == [[2]]
    assert runners.continuous.tolist() == [[2], [4]]
    assert runners.discrete.tolist() == [[1, 1], [0, 1]]
