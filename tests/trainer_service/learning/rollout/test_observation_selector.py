"""The selection of a simulator's sensors for learners."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms.common.observation_selection import selector_for
from trainer_service.learning.rollout.observation_selector import make_selector, one_hot_agent_ids
from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, ObservationSpec
from unity_bridge.steps import StepBatch

SPEC = BehaviorSpec((ObservationSpec(GLOBAL_STATE, (3,)), ObservationSpec("eyes", (2,))), ActionSpec(0, (2,)))
BATCH = step_batch(
    [np.full((2, 3), 7, np.float32), np.full((2, 2), 5, np.float32)],
    np.zeros(2, np.float32),
    agent_ids=np.arange(2),
    allowed_actions=np.ones((2, 2), np.bool_),
)


def names(spec: BehaviorSpec) -> list[str]:
    return [sensor.name for sensor in spec.observation_specs]


def settings(trainer_type: str, **hyperparameters) -> TrainerSettings:
    return TrainerSettings.model_validate(
        {"trainer_type": trainer_type, "hyperparameters": {"group_size": 2, **hyperparameters}}
        if trainer_type not in ("ppo", "sac")
        else {"trainer_type": trainer_type}
    )


@pytest.mark.parametrize("trainer_type", ["ppo", "sac", "mappo", "poca"])
def test_nobody_sees_the_global_state_unasked(trainer_type: str) -> None:
    selector = selector_for(SPEC, settings(trainer_type))
    assert names(selector.spec) == ["eyes"]
    (seen,) = selector.batch(BATCH, np.array([0, 1])).observations
    assert seen.tolist() == [[5, 5], [5, 5]]


def test_a_state_that_nobody_sends_is_named() -> None:
    blind = BehaviorSpec(SPEC.observation_specs[1:], SPEC.action_spec)
    with pytest.raises(ValueError, match=r"needs a sensor named 'global_state'.*it has eyes"):
        selector_for(blind, settings("mappo", state="environment"))


@pytest.mark.parametrize("hyper", [{}, {"state": "environment"}])
def test_agents_that_see_nothing_but_the_state_are_refused(hyper: dict[str, str]) -> None:
    blind = BehaviorSpec(SPEC.observation_specs[:1], SPEC.action_spec)
    with pytest.raises(ValueError, match=r"its only sensor is named 'global_state'.*give it another name"):
        selector_for(blind, settings("mappo", **hyper))


def test_an_agent_index_beyond_the_group_size_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 agents, expected at most 2"):
        one_hot_agent_ids(np.array([0, 2]), 2)


def group_of_three(*, ended: int = 0) -> StepBatch:
    """Agents that see their own id: two of group 7, one of group 8, one of none; the first so many have ended."""
    ids = np.array([4, 5, 6, 9])
    return step_batch(
        [np.full((4, 3), 7, np.float32), np.repeat(ids[:, None], 2, axis=1).astype(np.float32)],
        np.zeros(4, np.float32),
        agent_ids=ids,
        allowed_actions=np.ones((4, 2), np.bool_),
        terminated=np.arange(4) < ended,
        group_ids=np.array([7, 8, 7, 0]),
    )


def test_each_agent_sees_its_group_in_the_order_of_indices() -> None:
    selector = make_selector(SPEC, with_state=False, num_agents=2, shows_group=True)
    assert names(selector.spec) == ["eyes", "team_observations", "agent_id"]
    assert names(selector.inputs) == [GLOBAL_STATE, "eyes", "team_observations", "agent_id"]
    assert selector.input_sensors == (1, 2, 3)
    own, shows_group, who = selector.batch(group_of_three(), np.array([1, 0, 0, 1])).observations
    assert own[:, 0].tolist() == [4, 5, 6, 9]
    assert shows_group.tolist() == [[6, 6, 4, 4], [5, 5, 0, 0], [6, 6, 4, 4], [0, 0, 9, 9]]
    assert who.tolist() == [[0, 1], [1, 0], [1, 0], [0, 1]]


def test_who_has_left_is_not_seen_by_who_stays() -> None:
    selector = make_selector(SPEC, with_state=False, num_agents=2, shows_group=True)
    _, shows_group, _ = selector.batch(group_of_three(ended=1), np.array([1, 0, 0, 1])).observations
    assert shows_group.tolist() == [[0, 0, 4, 4], [5, 5, 0, 0], [6, 6, 0, 0], [0, 0, 9, 9]]


def test_places_before_the_first_are_refused() -> None:
    with pytest.raises(ValueError, match="counted from 0, got -1"):
        one_hot_agent_ids(np.array([0, -1]), 2)
