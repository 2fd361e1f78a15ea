"""Action spaces as an agent's continuous actions and branches: a decision becomes an environment's action, and back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.arrays import Floats, Integers
from unity_bridge.simulators.scene import SceneError
from unity_bridge.specs import ActionSpec

_Pair = tuple[Floats, Floats]

UNBOUNDED = 1e30
"""A bound beyond this is a way to say that there is none."""


@dataclass(frozen=True, slots=True)
class Actuator:
    """Converts agents' continuous and discrete actions into an environment's own actions."""

    space: gymnasium.Space[Any]
    spec: ActionSpec
    build: Callable[[Floats, Integers], Sequence[Any]]
    """Takes shapes [N, continuous size] and [N, branches]; returns N new members of the space."""
    read: Callable[[Any], tuple[Floats, Integers]]
    """Takes T members: an array [T, *space.shape], or a dictionary or tuple of such. Returns the arguments with which
    ``build`` makes them, shapes [T, continuous size] and [T, branches]."""

    def idle(self) -> Any:
        """An action for an agent that does not decide: each first choice, the middle of each range."""
        nothing = np.zeros((1, self.spec.continuous_size)), np.zeros((1, self.spec.discrete_size), np.int64)
        return self.build(*nothing)[0]


def actuator(space: Any, where: str = "action") -> Actuator:
    """How to fill an action space.

    A number in [−1, 1] is spread over [low, high] where a Box has both bounds, and passed through (within
    the one bound) where it has not; integers and booleans are rounded to the nearest member. A Discrete is a branch, a
    MultiDiscrete several, a MultiBinary branches of two. Members of a Dict (by sorted key) and of a Tuple follow one
    another.

    Raises:
        SceneError: a space that is none of these. Names it.
    """
    if isinstance(space, spaces.Box):
        return _box(space)
    if isinstance(space, spaces.Discrete):
        return _branches(np.array(space.n), np.array(space.start), space)
    if isinstance(space, spaces.MultiDiscrete):
        return _branches(space.nvec, space.start, space)
    if isinstance(space, spaces.MultiBinary):
        return _branches(np.full(space.shape, 2), np.zeros(space.shape, np.int64), space)
    if isinstance(space, spaces.Tuple):
        members = [actuator(member, f"{where}.{i}") for i, member in enumerate(space.spaces)]
        return _side_by_side(space, members, range(len(members)))
    if isinstance(space, spaces.Dict):
        keys = sorted(space.spaces)
        members = [actuator(space.spaces[key], f"{where}.{key}") for key in keys]
        return _side_by_side(space, members, keys)
    raise unsupported_space(space, where)


def unsupported_space(space: Any, where: str) -> SceneError:
    """The error for a space that holds no vectors, pictures or choices."""
    return SceneError(
        f"{where} is a {type(space).__name__} space; "
        "expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )


def _box(space: spaces.Box) -> Actuator:
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    bounded = (low > -UNBOUNDED) & (high < UNBOUNDED)
    center, half = np.zeros_like(low), np.ones_like(low)
    center[bounded] = (low[bounded] + high[bounded]) / 2
    half[bounded] = (high[bounded] - low[bounded]) / 2
    # A single bound beyond [−1, 1] would leave one action to choose from: the range of 2 that begins there is used.
    center = np.where(~bounded & (low >= 1), low + 1, np.where(~bounded & (high <= -1), high - 1, center))
    if space.dtype.kind in "iu" and space.dtype.itemsize == 8:
        largest = float(np.iinfo(str(space.dtype)).max)  # rounds up to a number that the type does not hold
        high = np.where(high >= largest, np.nextafter(largest, 0), high)

    return Actuator(
        space,
        ActionSpec(len(low)),
        partial(_build_box, space, (center, half), (low, high)),
        partial(_read_box, center, half),
    )


# Partial functions and no closures, so that an actuator can be sent to other processes.


def _build_box(
    space: spaces.Box, scale: _Pair, bounds: _Pair, continuous: Floats, _: Integers
) -> list[NDArray[Any]]:
    (center, half), (low, high) = scale, bounds
    # Much faster than np.clip on a handful of numbers.
    values = np.minimum(np.maximum(center + half * continuous, low), high)
    whole = space.dtype.kind in "iub"
    members = (np.rint(values) if whole else values).astype(space.dtype).reshape(-1, *space.shape)
    return [members[i, ...] for i in range(len(continuous))]


def _read_box(center: Floats, half: Floats, actions: Any) -> tuple[Floats, Integers]:
    values = np.asarray(actions, np.float64).reshape(len(actions), len(center))
    return (values - center) / np.where(half > 0, half, 1), np.zeros((len(values), 0), np.int64)


def _branches(sizes: Integers, starts: Integers, space: Any) -> Actuator:
    spec = ActionSpec(0, tuple(int(size) for size in sizes.ravel()))
    return Actuator(space, spec, partial(_build_branches, starts, space), partial(_read_branches, starts))


def _build_branches(starts: Integers, space: Any, _: Floats, discrete: Integers) -> list[Any]:
    return list((discrete.reshape(-1, *starts.shape) + starts).astype(space.dtype))


def _read_branches(starts: Integers, actions: Any) -> tuple[Floats, Integers]:
    choices = np.asarray(actions).reshape(len(actions), starts.size).astype(np.int64) - starts.ravel()
    return np.zeros((len(choices), 0)), choices


def _side_by_side(space: Any, members: Sequence[Actuator], keys: Sequence[Any]) -> Actuator:
    continuous = sum(member.spec.continuous_size for member in members)
    branches = tuple(size for member in members for size in member.spec.discrete_branches)
    return Actuator(
        space,
        ActionSpec(continuous, branches),
        partial(_build_members, space, members, keys),
        partial(_read_members, members, keys),
    )


def _build_members(
    space: Any, members: Sequence[Actuator], keys: Sequence[Any], continuous: Floats, discrete: Integers
) -> list[Any]:
    columns = []
    for member in members:
        n, b = member.spec.continuous_size, member.spec.discrete_size
        columns.append(member.build(continuous[:, :n], discrete[:, :b]))
        continuous, discrete = continuous[:, n:], discrete[:, b:]
    rows = ([column[i] for column in columns] for i in range(len(continuous)))
    if isinstance(space, spaces.Dict):
        return [dict(zip(keys, row, strict=True)) for row in rows]
    return [tuple(row) for row in rows]


def _read_members(members: Sequence[Actuator], keys: Sequence[Any], actions: Any) -> tuple[Floats, Integers]:
    parts = [member.read(actions[key]) for member, key in zip(members, keys, strict=True)]
    return np.concatenate([part[0] for part in parts], axis=1), np.concatenate(
        [part[1] for part in parts], axis=1
    )
