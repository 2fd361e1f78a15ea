"""What learners are shown of a simulator's sensors."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.algorithms.team_view import view_for
from trainer_service.config import TrainerSettings
from trainer_service.rollout.views import one_hot, view_of
from unity_bridge.simulators.scene import step_batch
from unity_bridge.specs import GLOBAL_STATE, ActionSpec, BehaviorSpec, ObservationSpec

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
    view = view_for(SPEC, settings(trainer_type))
    assert names(view.spec) == ["eyes"]
    (seen,) = view.batch(BATCH, np.array([0, 1])).observations
    assert seen.tolist() == [[5, 5], [5, 5]]


@pytest.mark.parametrize("trainer_type", ["mappo", "happo", "coma"])
def test_a_central_critic_sees_it_if_it_shall(trainer_type: str) -> None:
    view = view_for(SPEC, settings(trainer_type, state="environment", share="full", agent_ids=False))
    assert names(view.spec) == [GLOBAL_STATE, "eyes"]


def test_a_state_that_nobody_sends_is_named() -> None:
    blind = BehaviorSpec(SPEC.observation_specs[1:], SPEC.action_spec)
    with pytest.raises(ValueError, match=r"needs a sensor named 'global_state'.*it has eyes"):
        view_for(blind, settings("mappo", state="environment"))


def test_ids_come_last() -> None:
    view = view_of(SPEC, with_state=False, places=2)
    assert names(view.spec) == ["eyes", "agent_id"]
    assert names(view.inputs) == [GLOBAL_STATE, "eyes", "agent_id"]
    assert view.picks == (1, 2)
    assert view.batch(BATCH, np.array([1, 0])).observations[1].tolist() == [[0, 1], [1, 0]]


def test_a_place_that_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 3 agents came, 2 were expected"):
        one_hot(np.array([0, 2]), 2)
