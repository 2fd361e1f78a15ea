"""Spaces of any nesting: whatever is drawn from one is read in silence, and whatever is decided is a member."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st

from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.masks import laid_out
from unity_bridge.simulators.foreign.spaces import sensors
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.steps import as_floats

WHOLE = [np.int8, np.uint8, np.int16, np.int32, np.int64, np.uint32]


@st.composite
def whole_boxes(draw: Any) -> spaces.Box:
    dtype = draw(st.sampled_from(WHOLE))
    limits = np.iinfo(dtype)
    low = draw(st.integers(max(int(limits.min), -(10**6)), 10))
    high = draw(st.integers(low, min(int(limits.max), 10**6)))
    return spaces.Box(low, high, draw(shapes), dtype)


@st.composite
def float_boxes(draw: Any) -> spaces.Box:
    low = draw(st.sampled_from([-np.inf, -1.0, 0.0, 3.0]))
    high = draw(st.sampled_from([np.inf, 3.5, 255.0]))
    return spaces.Box(low, high, draw(shapes), draw(st.sampled_from([np.float32, np.float64])))


def cards(sizes: list[int]) -> spaces.MultiDiscrete:
    return spaces.MultiDiscrete(sizes, start=[i - 1 for i in range(len(sizes))])


shapes = st.sampled_from([(), (1,), (3,), (2, 3), (1, 2, 2), (20, 20, 3), (3, 21, 20), (2, 20, 20, 1)])
small = st.integers(1, 4)
flat = st.one_of(
    whole_boxes(),
    float_boxes(),
    st.builds(lambda n, start: spaces.Discrete(n, start=start), small, st.integers(-3, 3)),
    st.builds(cards, st.lists(small, min_size=1, max_size=3)),
    st.builds(spaces.MultiBinary, st.sampled_from([1, 3, (2, 2)])),
)
keys = st.sampled_from(["a", "b.c", "global_state", "é" * 150])
any_space = st.recursive(
    flat,
    lambda inner: st.one_of(
        st.builds(spaces.Tuple, st.lists(inner, min_size=1, max_size=2)),
        st.builds(spaces.Dict, st.dictionaries(keys, inner, min_size=1, max_size=2)),
    ),
    max_leaves=4,
)


@given(any_space, st.integers(0, 2**31 - 1))
@settings(max_examples=150, deadline=None)
def test_members_of_any_space_are_read_in_their_sensors_shape(space: Any, seed: int) -> None:
    found = sensors(space, Silent("gym:Env"))
    assert len({sensor.spec.name for sensor in found}) == len(found)
    space.seed(seed)
    members = [space.sample() for _ in range(3)]
    for sensor in found:
        seen = sensor.read_all(members)
        assert seen.shape == (3, *sensor.spec.shape)
        if sensor.spec.is_picture:
            assert 0 <= as_floats(seen).min() <= as_floats(seen).max() <= 1


@given(any_space, st.integers(0, 2**31 - 1))
@settings(max_examples=150, deadline=None)
def test_any_decision_is_a_member_of_the_space(space: Any, seed: int) -> None:
    does, rng = actuator(space), np.random.default_rng(seed)
    numbers = rng.uniform(-1, 1, (3, does.spec.continuous_size))
    choices = np.array(
        [[rng.integers(size) for size in does.spec.discrete_branches] for _ in range(3)], np.int64
    )
    actions = does.build(numbers, choices)
    assert len(actions) == 3
    for action in actions:
        assert space.contains(action), f"{action} is not in {space}"
    assert space.contains(does.idle())


def in_batch(space: Any, member: Any) -> Any:
    """A batch of one member: arrays whose first dimension is 1."""
    if isinstance(space, spaces.Dict):
        return {key: in_batch(space[key], member[key]) for key in space}
    if isinstance(space, spaces.Tuple):
        return tuple(in_batch(inner, value) for inner, value in zip(space, member, strict=True))
    return np.array([member])


def assert_equal_members(space: Any, ours: Any, theirs: Any) -> None:
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        for key in space if isinstance(space, spaces.Dict) else range(len(space)):
            assert_equal_members(space[key], ours[key], theirs[key])
    else:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@given(any_space, st.integers(0, 2**31 - 1))
@settings(max_examples=150, deadline=None)
def test_an_action_that_was_read_is_built_again(space: Any, seed: int) -> None:
    does = actuator(space)
    space.seed(seed)
    member = space.sample()
    continuous, discrete = does.read(in_batch(space, member))
    assert continuous.shape == (1, does.spec.continuous_size)
    assert discrete.shape == (1, does.spec.discrete_size)
    assert_equal_members(space, does.build(continuous, discrete)[0], member)


@given(any_space, st.integers(0, 2**31 - 1))
@settings(max_examples=150, deadline=None)
def test_a_flat_mask_and_one_for_each_branch_say_the_same(space: Any, seed: int) -> None:
    does, rng = actuator(space), np.random.default_rng(seed)
    if not does.spec.mask_size:
        with pytest.raises(ValueError, match="all actions are continuous"):
            laid_out(np.ones(1), does)
        return
    branches = [rng.integers(0, 2, size) for size in does.spec.discrete_branches]
    for branch in branches:
        branch[rng.integers(len(branch))] = 1
    want = np.concatenate(branches).astype(bool).tolist()
    assert laid_out(np.concatenate(branches), does).tolist() == want
    if not isinstance(space, (spaces.Tuple, spaces.Dict)) and len(branches) > 1:
        assert laid_out(tuple(branches), does).tolist() == want


class Silent(ForeignCode):
    """Code whose observations are all in their spaces: nothing is to be said of them."""

    def warn(self, topic: str, text: str) -> None:
        raise AssertionError(text)
