"""Runs on goal environments whose reward chance hardly ever finds: learned with goals achieved later, not without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from goal_environments import PointReach
from goal_learning import CASES, KINDS, Case

from trainer_service import evaluate, train
from trainer_service.errors import UserError

QUICK = {"batch_size": 16, "buffer_init_steps": 20, "steps_per_update": 4, "save_replay_buffer": True}


@pytest.mark.probe
@pytest.mark.thorough
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.trainer_type)
def test_a_sparse_goal_is_learned_with_hindsight_and_not_without(workplace: Path, case: Case) -> None:
    rates = {kind: case.success_rate(kind, 1, workplace) for kind in KINDS}
    assert rates["hindsight"] >= 0.8
    assert rates["uniform"] <= 0.3


def test_a_run_with_copies_is_resumed_and_scored(workplace: Path) -> None:
    case = CASES[1]
    given = case.settings("hindsight", **QUICK)
    copies = {"env_args": ["--copies", "3"], "run_id": "goals", "verbose": 0}
    first = train({**given, "max_steps": 60}, case.make, **copies)
    resumed = train({**given, "max_steps": 120}, case.make, **copies, resume=True)
    (before,), (after,) = first.steps.values(), resumed.steps.values()
    assert 60 <= before < 120 <= after
    assert evaluate("goals", case.make, episodes=2)


class Praised(PointReach):
    """An environment that adds to the reward of a goal that was achieved."""

    def step(self, action: Any) -> Any:
        seen, reward, ended, *rest = super().step(action)
        return seen, reward + 5 * ended, ended, *rest


def test_a_run_whose_rewards_differ_ends_with_both_numbers(workplace: Path) -> None:
    settings = CASES[1].settings("hindsight", **QUICK)
    with pytest.raises(UserError, match="got 0 where it paid 5"):
        train(settings, lambda: Praised(tolerance=0.6), run_id="goals", verbose=0, seed=1)
    assert Path("results", "goals", "Praised").is_dir()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"env": "sim:3dball"}, "sim:3dball: it has no compute_reward that the trainer could call"),
        ({"env": "gym:CartPole-v1"}, "gym:CartPole-v1: expected observations in a Dict"),
        ({"env": None}, "got simulators that attach"),
        ({"env": PointReach, "num_learners": 2}, "expected distributed.num_learners 1, got 2"),
    ],
)
def test_a_simulator_without_goals_is_refused_before_the_run_has_a_folder(
    workplace: Path, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(UserError) as caught:
        train(CASES[0].settings("hindsight"), **given, run_id="goals", verbose=0)
    assert said in str(caught.value)
    assert str(caught.value).startswith("hyperparameters.replay.type: hindsight")
    assert not Path("results").exists()
