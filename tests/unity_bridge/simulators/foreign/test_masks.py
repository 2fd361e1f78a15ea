from __future__ import annotations

import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces

from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.environment import AgentStep
from unity_bridge.simulators.foreign.masks import MaskReader, laid_out, mask_member, mask_method
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

BRANCHES = actuator(spaces.MultiDiscrete([2, 3]))


@pytest.mark.parametrize(
    ("mask", "complaint"),
    [
        (np.ones(4), r"expected 5 values, one for each choice of \(2, 3\), got 4"),
        (np.zeros(5), "no choice is left in branch 0"),
        (np.array([1, 0, 0, 0, 0]), "no choice is left in branch 1"),
        (np.array([1, 1, 1, 1, 2]), "expected 0 or 1 for each choice, got 2"),
        (np.array([1, 1, 1, 1, np.nan]), "expected 0 or 1 for each choice, got nan"),
        (((0, 1, 1), (1, 1, 0)), "expected 5 values, .* got 6"),  # a third choice for a branch of two
        ("mask", "expected zeros and ones, got 'mask'"),
        ({"left": 1}, "expected zeros and ones"),
        ((), "expected 5 values, .* got 0"),
    ],
    ids=str,
)
def test_a_mask_that_does_not_fit_is_explained(mask: Any, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        laid_out(mask, BRANCHES)


def test_continuous_actions_beside_branches_take_no_room_in_a_mask() -> None:
    both = actuator(spaces.Tuple([spaces.Box(-1, 1, (3,)), spaces.Discrete(2)]))
    for mask in (np.array([0, 1]), (None, np.array([0, 1]))):
        assert laid_out(mask, both).tolist() == [False, True]
    with pytest.raises(ValueError, match="all actions are continuous"):
        laid_out(np.ones(3), actuator(spaces.Box(-1, 1, (3,))))


def test_a_mask_of_bits_forces_values_or_leaves_them_free() -> None:
    bits = actuator(spaces.MultiBinary(3))
    assert laid_out(np.array([0, 1, 2]), bits).tolist() == [True, False, False, True, True, True]


@pytest.mark.parametrize(
    ("key", "control", "told"),
    [
        (
            "mask",
            spaces.Discrete(5),
            r"observation\['mask'\] looks like an action mask and is observed instead",
        ),
        (
            "action_mask",
            spaces.Box(-1, 1, (2,)),
            r"observation\['action_mask'\]: continuous actions have no mask",
        ),
    ],
)
def test_a_mask_that_is_observed_instead_is_told(
    key: str, control: Any, told: str, caplog: pytest.LogCaptureFixture
) -> None:
    space = spaces.Dict({key: spaces.MultiBinary(5), "obs": spaces.Discrete(2)})
    assert mask_member(space, actuator(control), ForeignCode("gym:Env")) is None
    [message] = caplog.messages
    assert re.search(f"^gym:Env: {told}", message)


def test_masks_that_do_not_fit_are_passed_over_told_or_refused(caplog: pytest.LogCaptureFixture) -> None:
    reader = MaskReader("Env", actuator(spaces.Discrete(2)), None, ForeignCode("gym:Env"))
    steps = [AgentStep(0, None, mask) for mask in (np.array([1, 0]), np.zeros(2), None)]
    assert reader.read(steps, deciding=False).tolist() == [[True, False], [True, True], [True, True]]
    assert not caplog.records, "a player that has lost has no move, and needs none"
    assert reader.read(steps, deciding=True).tolist() == [[True, False], [True, True], [True, True]]
    assert len(caplog.records) == 1
    with pytest.raises(
        SceneError, match="gym:Env: behavior 'Env': action mask: no choice is left in branch 0"
    ):
        reader.read(steps, deciding=True, refuses=True)  # as a policy that is called directly does


class Chooser(gymnasium.Env[Any, Any]):
    """An environment with methods around masks."""

    def action_mask(self, state: int) -> Any:
        """Not what is allowed now, but in some state: as Taxi-v3 has it."""

    def action_masks(self) -> list[bool]:
        return [True]


@pytest.mark.parametrize(
    ("env", "arguments", "name"),
    [
        (Chooser(), 0, "action_masks"),
        (gymnasium.wrappers.OrderEnforcing(Chooser()), 0, "action_masks"),
        (Chooser(), 1, "action_mask"),
        (SimpleNamespace(get_avail_actions=lambda: []), 0, "<lambda>"),
        (SimpleNamespace(action_masks=np.ones(3)), 0, None),
        (SimpleNamespace(), 0, None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_method_counts_if_it_takes_what_it_is_asked_with(
    env: Any, arguments: int, name: str | None
) -> None:
    found: Callable[..., Any] | None = mask_method(env, arguments)
    assert (found and found.__name__) == name
