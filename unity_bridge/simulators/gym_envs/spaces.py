"""Gymnasium spaces as an agent's sensors and actions: nested spaces become lists of sensors and branches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.arrays import Floats, Integers
from unity_bridge.simulators.scene import SceneError, vector_sensor
from unity_bridge.simulators.third_party import float32
from unity_bridge.specs import PICTURE, ActionSpec, ObservationSpec
from unity_bridge.steps import Observation

_logger = logging.getLogger(__name__)

Space = gymnasium.Space[Any]

UNBOUNDED = 1e30
"""A bound beyond this is a way to say that there is none."""


SMALLEST_PICTURE = 20
"""Pixels; what is lower or narrower is a board, and becomes a vector."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One vector or picture out of an environment's observation."""

    spec: ObservationSpec
    read: Callable[[Any], NDArray[Any]]
    """Takes the whole observation; returns the sensor's observation, in the shape of the spec."""

    def read_all(self, observations: Sequence[Any]) -> Observation:
        """Reads several observations; pictures of bytes stay bytes. Shape [N, *shape].

        Raises:
            SceneError: an observation is no member of its space.
        """
        try:
            seen = np.array([self.read(observation) for observation in observations])
            seen = seen if seen.dtype == np.uint8 and seen.ndim == 4 else float32(seen)
        except (LookupError, TypeError, ValueError) as error:
            raise SceneError(f"sensor '{self.spec.name}' cannot read an observation: {error}") from None
        if seen.shape[1:] != self.spec.shape:
            raise SceneError(
                f"sensor '{self.spec.name}': expected shape {self.spec.shape}, got {seen.shape[1:]}"
            )
        return seen


@dataclass(frozen=True, slots=True)
class Actuator:
    """How an agent's numbers and choices become an environment's own action."""

    spec: ActionSpec
    build: Callable[[Floats, Integers], Any]
    """Takes shapes [continuous size] and [branches]."""


def sensors(space: Space, path: tuple[str | int, ...] = ()) -> list[Sensor]:
    """The vectors and pictures of an observation space.

    A Box is flattened, a Discrete becomes one-hot, a MultiDiscrete one-hots side by side, a MultiBinary
    zeros and ones. The members of a Dict (by sorted key) and of a Tuple become sensors of their own, called
    by their path (``robot.arm``); a space that is no Dict and no Tuple is called ``observation``.

    Pictures are Boxes of 20 × 20 pixels or more: bytes with or without channels, or numbers from 0 to 1 with
    channels. Channels are the last or the first dimension, whichever is smaller. Pictures of bytes in a stack have a
    dimension more, the first; their channels lie one picture after the other.

    Texts beside something else, such as the mission of a MiniGrid, are left out with a warning that names them.

    Raises:
        SceneError: nothing but texts, a graph, a sequence or another space that holds no vectors. Names it.
    """
    texts = list(_texts(space, path))
    found = _sensors(space, path)
    if texts and not found:
        raise _unsupported(*texts[0])
    if texts:
        names = ", ".join(where for _, where in texts)
        _logger.warning("%s: a text, which no network here reads; left out of what agents see", names)
    return found


def _texts(space: Space, path: tuple[str | int, ...]) -> Iterator[tuple[Space, str]]:
    """The spaces of texts within a space, and what they are called."""
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from _texts(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, member in enumerate(space.spaces):
            yield from _texts(member, (*path, i))
    elif _is_text(space):
        yield space, f"observation '{_name(path)}'"


def _is_text(space: Space) -> bool:
    """Whether members of a space are texts: of Gymnasium's own, or of one that a library defines, such as MiniGrid."""
    if type(space).__module__.partition(".")[0] == "gymnasium":
        return isinstance(space, spaces.Text)
    try:
        return isinstance(space.sample(), str)
    except Exception:
        return False


def _name(path: tuple[str | int, ...]) -> str:
    return ".".join(str(key) for key in path) or "observation"


def _sensors(space: Space, path: tuple[str | int, ...]) -> list[Sensor]:
    if isinstance(space, spaces.Dict):
        return [sensor for key in sorted(space.spaces) for sensor in _member(space.spaces[key], key, path)]
    if isinstance(space, spaces.Tuple):
        return [sensor for i, member in enumerate(space.spaces) for sensor in _member(member, i, path)]
    if _is_text(space):
        return []
    name = _name(path)
    if isinstance(space, spaces.Box) and is_picture(space):
        return [_picture(space, name)]
    size, read_vector = _vector(space, f"observation '{name}'")
    return [Sensor(vector_sensor(name, size), read_vector)]


def _member(space: Space, key: str | int, path: tuple[str | int, ...]) -> list[Sensor]:
    def read(inner: Sensor) -> Callable[[Any], NDArray[Any]]:
        return lambda observation: inner.read(observation[key])

    return [Sensor(sensor.spec, read(sensor)) for sensor in _sensors(space, (*path, key))]


def is_picture(space: spaces.Box) -> bool:
    """Whether a Box looks like one; see sensors()."""
    shape = _picture_shape(space)
    if len(shape) not in (2, 3) or min(_sides(shape)) < SMALLEST_PICTURE:
        return False
    if space.dtype == np.uint8:
        return True
    shares = bool(np.all(space.low == 0) and np.all(space.high == 1))
    return shares and len(shape) == 3 and np.issubdtype(space.dtype, np.floating)


def _picture_shape(space: spaces.Box) -> tuple[int, ...]:
    """Of a single picture, where there is a stack of them."""
    is_stack = len(space.shape) == 4 and space.dtype == np.uint8
    return space.shape[1:] if is_stack else space.shape


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] < shape[2]


def _sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:] if _channels_first(shape) else shape[:2]


def _picture(space: spaces.Box, name: str) -> Sensor:
    shape = _picture_shape(space)
    height, width = _sides(shape)

    def read(pixels: Any) -> NDArray[Any]:
        picture = np.asarray(pixels, space.dtype)
        if picture.ndim == 2:
            return picture[None]
        first = picture if _channels_first(shape) else np.moveaxis(picture, -1, -3)
        return first.reshape(-1, height, width) if first.ndim == 4 else first

    channels = int(np.prod(space.shape)) // (height * width)
    return Sensor(ObservationSpec(name, (channels, height, width), PICTURE), read)


def _vector(space: Space, where: str) -> tuple[int, Callable[[Any], NDArray[Any]]]:
    """The length of a flat space's vector, and how to make it."""
    if isinstance(space, spaces.Box):
        return _at_least_one(int(np.prod(space.shape)), where), np.ravel
    if isinstance(space, spaces.MultiBinary):
        return _at_least_one(int(np.prod(space.shape)), where), np.ravel
    if isinstance(space, spaces.Discrete):
        return int(space.n), _one_hot(np.array([space.n]), np.array([space.start]))
    if isinstance(space, spaces.MultiDiscrete):
        return int(space.nvec.sum()), _one_hot(space.nvec.ravel(), space.start.ravel())
    raise _unsupported(space, where)


def _at_least_one(size: int, where: str) -> int:
    if size < 1:
        raise SceneError(f"{where} is empty; expected at least one number")
    return size


def _one_hot(sizes: Integers, starts: Integers) -> Callable[[Any], NDArray[Any]]:
    offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]) - starts
    total = int(sizes.sum())

    def read(choices: Any) -> NDArray[np.float32]:
        vector = np.zeros(total, np.float32)
        vector[offsets + np.ravel(choices)] = 1
        return vector

    return read


def actuator(space: Space, where: str = "action") -> Actuator:
    """How to fill an action space.

    A number in [−1, 1] is spread over [low, high] where a Box has both bounds, and passed through (within
    the one bound) where it has not; integers are rounded. A Discrete is a branch, a MultiDiscrete several, a
    MultiBinary branches of two. Members of a Dict (by sorted key) and of a Tuple follow one another.

    Raises:
        SceneError: a space that is none of these. Names it.
    """
    if isinstance(space, spaces.Box):
        return _box(space)
    if isinstance(space, spaces.Discrete):
        start = int(space.start)
        return Actuator(ActionSpec(0, (int(space.n),)), lambda _, choices: int(choices[0]) + start)
    if isinstance(space, spaces.MultiDiscrete):
        return _branches(space.nvec, space.start, space)
    if isinstance(space, spaces.MultiBinary):
        return _branches(np.full(space.shape, 2), np.zeros(space.shape, np.int64), space)
    if isinstance(space, spaces.Tuple):
        members = [actuator(member, f"{where}.{i}") for i, member in enumerate(space.spaces)]
        return _side_by_side(members, tuple)
    if isinstance(space, spaces.Dict):
        keys = sorted(space.spaces)
        members = [actuator(space.spaces[key], f"{where}.{key}") for key in keys]
        return _side_by_side(members, lambda actions: dict(zip(keys, actions, strict=True)))
    raise _unsupported(space, where)


def _box(space: spaces.Box) -> Actuator:
    low, high = space.low.astype(np.float64).ravel(), space.high.astype(np.float64).ravel()
    bounded = (low > -UNBOUNDED) & (high < UNBOUNDED)
    center, half = np.zeros_like(low), np.ones_like(low)
    center[bounded] = (low[bounded] + high[bounded]) / 2
    half[bounded] = (high[bounded] - low[bounded]) / 2
    whole = np.issubdtype(space.dtype, np.integer)

    def build(numbers: Floats, _: Integers) -> NDArray[Any]:
        values = np.clip(center + half * numbers, low, high)
        return (np.rint(values) if whole else values).astype(space.dtype).reshape(space.shape)

    return Actuator(ActionSpec(len(low)), build)


def _branches(sizes: Integers, starts: Integers, space: Space) -> Actuator:
    def build(_: Floats, choices: Integers) -> NDArray[Any]:
        return (choices.reshape(sizes.shape) + starts).astype(space.dtype)

    return Actuator(ActionSpec(0, tuple(int(size) for size in sizes.ravel())), build)


def _side_by_side(members: Sequence[Actuator], join: Callable[[list[Any]], Any]) -> Actuator:
    def build(numbers: Floats, choices: Integers) -> Any:
        actions = []
        for member in members:
            n, b = member.spec.continuous_size, member.spec.discrete_size
            actions.append(member.build(numbers[:n], choices[:b]))
            numbers, choices = numbers[n:], choices[b:]
        return join(actions)

    continuous = sum(member.spec.continuous_size for member in members)
    branches = tuple(size for member in members for size in member.spec.discrete_branches)
    return Actuator(ActionSpec(continuous, branches), build)


def allowed_actions(mask: Any, spec: ActionSpec) -> NDArray[np.bool_]:
    """An environment's ``info["action_mask"]`` (1 = allowed) over all branches, shape [sum of branches].

    One array, or one for each branch. A mask that does not fit, or leaves a branch without a choice, allows
    everything.
    """
    everything = np.ones(spec.mask_size, np.bool_)
    if mask is None:
        return everything
    parts = mask if isinstance(mask, (tuple, list)) else [mask]
    try:
        flat = np.concatenate([np.ravel(np.asarray(part, np.float64)) for part in parts]) != 0
    except (TypeError, ValueError):
        return everything
    if len(flat) != spec.mask_size:
        return everything
    branches = np.split(flat, np.cumsum(spec.discrete_branches)[:-1])
    return flat if all(branch.any() for branch in branches) else everything


def _unsupported(space: Space, where: str) -> SceneError:
    return SceneError(
        f"{where} is a {type(space).__name__} space; "
        "expected Box, Discrete, MultiDiscrete, MultiBinary, Dict or Tuple"
    )
