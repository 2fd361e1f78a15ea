"""What a scene's expert would do, on its way to the trainer."""

from __future__ import annotations

import numpy as np
import pytest

from unity_bridge.errors import WireError
from unity_bridge.side_channels import EXPERT, SideChannelRecord, expert_record, parse_expert
from unity_bridge.specs import ActionSpec
from unity_bridge.steps import ActionBatch

SPEC = ActionSpec(2, (3, 200))
SHOWN = ActionBatch(np.array([[0.5, -1.0], [0.25, 0.0]], np.float32), np.array([[2, 199], [0, 7]], np.int32))


def test_an_experts_actions_arrive_as_they_were() -> None:
    records = (SideChannelRecord(EXPERT, b""), expert_record({"Duel?team=0": SHOWN}))
    found = parse_expert(records, "Duel?team=0", 2, SPEC)
    assert found is not None
    np.testing.assert_array_equal(found.continuous, SHOWN.continuous)
    np.testing.assert_array_equal(found.discrete, SHOWN.discrete)


def test_a_behavior_without_an_expert_has_no_actions() -> None:
    assert parse_expert((), "Duel?team=0", 2, SPEC) is None
    assert parse_expert((expert_record({"Duel?team=0": SHOWN}),), "Duel?team=1", 2, SPEC) is None


@pytest.mark.parametrize("body", [b"\xff\xff\xff", expert_record({"A": SHOWN}).body[:-3]])
def test_damaged_actions_are_refused(body: bytes) -> None:
    with pytest.raises(WireError, match="the expert's actions"):
        parse_expert((SideChannelRecord(EXPERT, body),), "A", 2, SPEC)


def test_too_few_actions_are_refused() -> None:
    with pytest.raises(WireError, match="'A': expected actions for 3 agents, got 2"):
        parse_expert((expert_record({"A": SHOWN}),), "A", 3, SPEC)
