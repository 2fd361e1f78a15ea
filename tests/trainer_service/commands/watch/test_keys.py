"""Keys and sticks as actions."""

from __future__ import annotations

import numpy as np
import pytest

from trainer_service.commands.watch.keys import KeyMap
from unity_bridge.specs import ActionSpec


def allowed(spec: ActionSpec, *forbidden: int) -> np.ndarray:
    mask = np.ones(spec.mask_size, np.bool_)
    mask[list(forbidden)] = False
    return mask


@pytest.mark.parametrize(
    "spec",
    [
        ActionSpec(2),
        ActionSpec(4),
        ActionSpec(0, (3,)),
        ActionSpec(0, (5, 3, 2)),
        ActionSpec(2, (2, 4)),
        ActionSpec(9, (12,)),
    ],
)
def test_every_key_stands_for_one_thing(spec: ActionSpec) -> None:
    bindings = KeyMap(spec).bindings
    assert bindings
    assert len({each.key for each in bindings}) == len(bindings)


def test_every_choice_of_usual_branches_has_a_key() -> None:
    found = {(each.index, each.value) for each in KeyMap(ActionSpec(0, (3, 5, 2))).bindings}
    assert found == {(0, 1.0), (0, 2.0), *((1, float(choice)) for choice in range(1, 5)), (2, 1.0)}


def test_opposite_keys_cancel() -> None:
    keys = KeyMap(ActionSpec(2))
    mask = np.ones(0, np.bool_)
    assert keys.action({"ArrowLeft"}, [], mask).continuous.tolist() == [[-1.0, 0.0]]
    assert keys.action({"ArrowLeft", "ArrowRight", "ArrowUp"}, [], mask).continuous.tolist() == [[0.0, 1.0]]


def test_a_stick_out_of_its_centre_wins_over_keys() -> None:
    keys = KeyMap(ActionSpec(2))
    action = keys.action({"ArrowLeft", "ArrowUp"}, [0.5, 0.1, 0.9], np.ones(0, np.bool_))
    assert action.continuous.tolist() == [[0.5, 1.0]]


def test_no_key_is_choice_zero_unless_it_is_forbidden() -> None:
    spec = ActionSpec(0, (3, 2))
    keys = KeyMap(spec)
    assert keys.action((), [], allowed(spec)).discrete.tolist() == [[0, 0]]
    assert keys.action((), [], allowed(spec, 0)).discrete.tolist() == [[1, 0]]
    assert keys.action({"ArrowRight"}, [], allowed(spec, 2)).discrete.tolist() == [[0, 0]]
