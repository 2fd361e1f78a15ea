"""Teams of several behaviors with rollout workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_process_workers import learn_in_process, options_of
from pursuit_groups import PursuitGroups

from trainer_service.errors import UserError
from trainer_service.running.metrics import MEMBER_REWARD

SETTINGS: dict[str, Any] = {
    "trainer_type": "mappo",
    "hyperparameters": {
        "batch_size": 18,
        "buffer_size": 72,
        "learning_rate_schedule": "constant",
        "share": "none",
    },
    "network_settings": {"hidden_units": 8, "num_layers": 1, "normalize": True},
    "max_steps": 216,
    "time_horizon": 8,
}


def test_workers_collect_for_a_team(tmp_path: Path) -> None:
    # The second worker's groups are smaller.
    options = options_of({"Pursuit": SETTINGS}, teams={"Pursuit": ["Leader", "Runner"]})
    finished = learn_in_process(options, lambda number, academy: PursuitGroups(2 - number), tmp_path)
    behavior = finished.behaviors["Pursuit"]
    assert list(finished.behaviors) == ["Pursuit"]
    assert behavior.step >= 216
    assert behavior.updates >= 2
    assert [member.num_agents for member in behavior.spec.members] == [1, 2]
    series = behavior.partial_summary(0.0).series
    leader, runner = (series[f"{MEMBER_REWARD}{name}"] for name in ("Leader", "Runner"))
    assert runner.count == pytest.approx(1.5 * leader.count, abs=3)


def test_more_agents_than_expected_end_the_run(tmp_path: Path) -> None:
    options = options_of({"Pursuit": SETTINGS}, teams={"Pursuit": {"Leader": 1, "Runner": 1}})
    with pytest.raises(
        UserError, match=r"team 'Pursuit': .* at least 2 agents of 'Runner', expected at most 1"
    ):
        learn_in_process(options, lambda number, academy: PursuitGroups(2), tmp_path)
