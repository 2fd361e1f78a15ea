"""Observation spaces as an agent's sensors: nested spaces become a list of vectors and pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from unity_bridge.arrays import Floats, Floats32, Integers
from unity_bridge.names import shortened
from unity_bridge.simulators.foreign.actions import UNBOUNDED, unsupported_space
from unity_bridge.simulators.scene import SceneError, vector_sensor
from unity_bridge.simulators.third_party import ForeignCode
from unity_bridge.specs import GLOBAL_STATE, PICTURE, ObservationSpec
from unity_bridge.steps import Observation

Space = gymnasium.Space[Any]
Path = tuple[str | int, ...]

SMALLEST_PICTURE = 20
"""Pixels; what is lower or narrower is a board, and becomes a vector."""

_LARGEST = np.finfo(np.float32).max
_LARGEST_SQUARED = float(_LARGEST) ** 2
_BYTES = 255
_ROUNDING = 1e-5
"""The part of a bound by which a float may exceed it unnoticed: bounds are often rounded to float32."""

_RESERVED = frozenset({GLOBAL_STATE})
"""Names that mean something to the trainer."""

Reader = Callable[[NDArray[Any]], Observation]
"""Encodes the observations of N agents. Shapes [N, *space.shape] to [N, *sensor.shape]. A partial function and no
closure, so that it can be sent to other processes."""


@dataclass(frozen=True, slots=True)
class Sensor:
    """One vector or picture out of an environment's observation."""

    spec: ObservationSpec
    path: Path
    """The keys that lead to it."""
    membership: _Membership
    reader: Reader

    def read_all(self, observations: Sequence[Any]) -> Observation:
        """Reads the sensor from N observations; pictures of bytes stay bytes. Shape [N, *shape].

        Raises:
            SceneError: an observation is not in its space; names the value and the space.
        """
        try:
            members = [self._at(each) for each in observations] if self.path else list(observations)
            values = np.array(members)
        except (LookupError, TypeError, ValueError) as error:
            raise SceneError(f"sensor '{self.spec.name}' cannot read an observation: {error}") from None
        if values.dtype.kind not in "biuf":
            shown = repr(self._at(observations[0]))
            raise SceneError(
                f"sensor '{self.spec.name}' cannot read an observation: expected numbers, got {shown:.60}"
            )
        return self._read(values)

    def read_batch(self, observations: Any) -> Observation:
        """Reads the sensor from N observations that lie side by side: arrays whose first dimension is N.

        Raises:
            SceneError: an observation is not in its space; names the value and the space.
        """
        return self._read(np.asarray(self._at(observations)))

    def _read(self, values: NDArray[Any]) -> Observation:
        return self.reader(self.membership.check(self._in_shape(values)))

    def _at(self, observation: Any) -> Any:
        for key in self.path:
            observation = observation[key]
        return observation

    def _in_shape(self, values: NDArray[Any]) -> NDArray[Any]:
        shape = self.membership.space.shape or ()
        if values.shape[1:] == shape:
            return values
        # The shape of a single number is unambiguous; environments return a scalar for a Box of (1,), or the reverse.
        if math.prod(values.shape[1:]) != 1 or math.prod(shape) != 1:
            raise SceneError(f"sensor '{self.spec.name}': expected shape {shape}, got {values.shape[1:]}")
        return values.reshape(len(values), *shape)


def sensors(
    space: Space, code: ForeignCode, prefix: Path = (), reserved: frozenset[str] = _RESERVED
) -> list[Sensor]:
    """The vectors and pictures of an observation space.

    A Box is flattened, a Discrete becomes one-hot, a MultiDiscrete one-hots side by side, a MultiBinary
    zeros and ones. The members of a Dict (by sorted key) and of a Tuple become sensors of their own, called
    by their path (``robot.arm``); a space that is no Dict and no Tuple is called ``observation``.

    Pictures are Boxes of 20 × 20 pixels or more: bytes with or without channels, or other numbers from 0 to one bound
    with channels. Channels are the last or the first dimension, whichever is smaller. Pictures of bytes in a stack
    have a dimension more, the first; their channels lie one picture after the other. Bytes from 0 to 255 stay
    bytes; all other pictures are scaled from their bounds to [0, 1].

    Texts beside something else, such as the mission of a MiniGrid, are left out with a warning that names them.

    Args:
        space: the observation space of an agent.
        code: takes the warnings of this call and of the sensors.
        prefix: the path at the beginning of each sensor's name.
        reserved: names that no sensor gets.

    Raises:
        SceneError: nothing but texts, a graph, a sequence or another space that holds no vectors. Names it.
    """
    leaves = list(_leaves(space, ()))
    texts = [(leaf, path) for leaf, path in leaves if _is_text(leaf)]
    if len(texts) == len(leaves):
        if not texts:
            raise SceneError("an observation space without members; expected at least one")
        raise unsupported_space(texts[0][0], _called((*prefix, *texts[0][1])))
    if texts:
        names = ", ".join(_called((*prefix, *path)) for _, path in texts)
        code.warn(f"texts {names}", f"{names}: a text, which no network reads; left out of observations")
    found: list[Sensor] = []
    for leaf, path in leaves:
        if not _is_text(leaf):
            taken = reserved | {sensor.spec.name for sensor in found}
            found.append(_sensor(leaf, path, _free_name(_name((*prefix, *path)), taken), code))
    return found


def _leaves(space: Space, path: Path) -> Iterator[tuple[Space, Path]]:
    """The spaces within a space that hold values, with the keys that lead to them."""
    if isinstance(space, spaces.Dict):
        for key in sorted(space.spaces):
            yield from _leaves(space.spaces[key], (*path, key))
    elif isinstance(space, spaces.Tuple):
        for i, member in enumerate(space.spaces):
            yield from _leaves(member, (*path, i))
    else:
        yield space, path


def _is_text(space: Space) -> bool:
    """Whether members of a space are texts: of Gymnasium's own, or of one that a library defines, such as MiniGrid."""
    if type(space).__module__.partition(".")[0] == "gymnasium":
        return isinstance(space, spaces.Text)
    try:
        return isinstance(space.sample(), str)
    except Exception:
        return False


def _name(path: Path) -> str:
    return ".".join(str(key) for key in path) or "observation"


def _called(path: Path) -> str:
    return f"observation '{_name(path)}'"


def _free_name(name: str, taken: frozenset[str] | set[str]) -> str:
    """The name, short enough; with ``observation.`` before it or a number behind it where it is taken."""
    candidates = [name, f"observation.{name}", *(f"{name}.{i}" for i in range(2, len(taken) + 3))]
    return next(short for short in map(shortened, candidates) if short not in taken)


def _sensor(space: Space, path: Path, name: str, code: ForeignCode) -> Sensor:
    if isinstance(space, spaces.Box) and is_picture(space):
        shape, read = _picture(space)
        spec = ObservationSpec(name, shape, PICTURE)
    else:
        size, read = _vector(space, f"observation '{name}'")
        spec = vector_sensor(name, size)
    return Sensor(spec, path, _Membership(space, name, code), read)


def is_picture(space: spaces.Box) -> bool:
    """Whether a Box looks like one; see sensors()."""
    shape = _picture_shape(space)
    if len(shape) not in (2, 3) or min(_sides(shape)) < SMALLEST_PICTURE:
        return False
    if space.dtype == np.uint8:
        return True
    high = float(space.high.flat[0])
    return (
        len(shape) == 3
        and 0 < high < UNBOUNDED
        and bool((space.low == 0).all() and (space.high == high).all())
    )


def _picture_shape(space: spaces.Box) -> tuple[int, ...]:
    """The shape of a single picture, where pictures are stacked."""
    is_stack = len(space.shape) == 4 and space.dtype == np.uint8
    return space.shape[1:] if is_stack else space.shape


def _channels_first(shape: tuple[int, ...]) -> bool:
    return len(shape) == 3 and shape[0] < shape[2]


def _sides(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:] if _channels_first(shape) else shape[:2]


def _picture(space: spaces.Box) -> tuple[tuple[int, int, int], Reader]:
    """The shape of a picture, channels first, and its reader."""
    shape = _picture_shape(space)
    height, width = _sides(shape)
    channels = int(np.prod(space.shape)) // (height * width)
    last = len(shape) == 3 and not _channels_first(shape)
    return (channels, height, width), partial(_read_picture, _scale(space), last, (channels, height, width))


def _read_picture(scale: Reader, last: bool, shape: tuple[int, ...], values: NDArray[Any]) -> Observation:
    """last: whether channels are the last dimension."""
    pixels = scale(values)
    if last:
        pixels = np.moveaxis(pixels, -1, -3)
    pictures: Any = np.ascontiguousarray(pixels).reshape(len(values), *shape)
    return pictures  # type: ignore[no-any-return]  # NumPy's stubs forget the type of a reshaped array


def _scale(space: spaces.Box) -> Reader:
    """Converts pixels to bytes from 0 to 255, or to floats from 0 to 1."""
    low, high = space.low.astype(np.float32), space.high.astype(np.float32)
    if np.issubdtype(space.dtype, np.integer) and (low == 0).all() and (high == _BYTES).all():
        return partial(_cast, np.uint8)
    if (low == 0).all() and (high == 1).all():
        return partial(_cast, np.float32)
    return partial(_to_unit, low, np.where(high > low, high - low, 1))


def _cast(dtype: Any, values: NDArray[Any]) -> Observation:
    return values.astype(dtype, copy=False)


def _to_unit(low: Floats32, width: Floats32, values: NDArray[Any]) -> Observation:
    return ((values.astype(np.float32) - low) / width).astype(np.float32, copy=False)


def _vector(space: Space, where: str) -> tuple[int, Reader]:
    """The length of a flat space's vector, and how to make it."""
    if isinstance(space, (spaces.Box, spaces.MultiBinary)):
        size = int(np.prod(space.shape))
        if size < 1:
            raise SceneError(f"{where} is empty; expected at least one number")
        return size, partial(_flat, size)
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):
        sizes = np.ravel(space.n if isinstance(space, spaces.Discrete) else space.nvec)
        offsets = np.concatenate([[0], np.cumsum(sizes)[:-1]]) - np.ravel(space.start)
        return int(sizes.sum()), partial(_one_hot, int(sizes.sum()), offsets)
    raise unsupported_space(space, where)


def _flat(size: int, values: NDArray[Any]) -> Floats32:
    return float32(values.reshape(-1, size))


def _one_hot(total: int, offsets: Integers, values: NDArray[Any]) -> Floats32:
    vectors = np.zeros((len(values), total), np.float32)
    choices = values.reshape(len(values), -1).astype(np.int64)
    vectors[np.arange(len(values))[:, None], choices + offsets] = 1
    return vectors


_LARGEST_EXACT = 1 << 24
"""Integers up to this one are exact as float32."""


class _Membership:
    """Holds observations against their space.

    Whole numbers outside of their space are refused. Floats outside of theirs are told once and continue as they
    are: networks take them, and many environments declare bounds that they exceed a little.
    """

    def __init__(self, space: Space, name: str, code: ForeignCode) -> None:
        self.space = space
        self._name = name
        self._code = code
        self._low, self._high = _bounds(space)
        self._is_whole = space.dtype is None or space.dtype.kind != "f"
        slack = 0.0 if self._is_whole else _ROUNDING
        self._least = self._low - slack * np.maximum(np.abs(self._low), 1)
        self._largest = self._high + slack * np.maximum(np.abs(self._high), 1)
        self._allows_all_bytes = bool((self._low == 0).all() and (self._high == _BYTES).all())
        self._is_free = bool((self._low <= -UNBOUNDED).all() and (self._high >= UNBOUNDED).all())
        self._may_be_rounded = bool(max(np.abs(self._low).max(), np.abs(self._high).max()) > _LARGEST_EXACT)

    def check(self, values: NDArray[Any]) -> NDArray[Any]:
        """Returns the values as they are. Shape [N, *space.shape]. Raises SceneError."""
        if self._allows_all_bytes and values.dtype == np.uint8:
            return values
        if self._is_whole and self._may_be_rounded and (values.astype(np.float32) != values).any():
            self._code.warn(
                f"rounded {self._name}",
                f"sensor '{self._name}': integers beyond {_LARGEST_EXACT} lose digits on their way to the trainer",
            )
        if not self._is_free or self._is_whole:
            self._require_inside(values)
        if _may_exceed_float32(values) and (np.isfinite(values) & (np.abs(values) > _LARGEST)).any():
            self._code.warn(
                f"large {self._name}",
                f"sensor '{self._name}': numbers beyond {_LARGEST:.3g}, the largest float32, become 0 in the trainer",
            )
        return values

    def _require_inside(self, values: NDArray[Any]) -> None:
        outside = (values < self._least) | (values > self._largest)
        if self._is_whole and values.dtype.kind == "f":
            outside |= values != np.rint(values)
        if not outside.any():
            return
        row, *place = np.argwhere(outside)[0].tolist()
        value, low, high = values[(row, *place)], self._low[tuple(place)], self._high[tuple(place)]
        space = " ".join(f"{self.space}".split())
        text = f"sensor '{self._name}': {value:.10g} is outside its space {space:.80}"
        if self._is_whole:
            raise SceneError(text)
        self._code.warn(
            f"outside {self._name}",
            f"{text}, whose bounds are {low:.6g} and {high:.6g} there; such values are sent as they are",
        )


def _bounds(space: Space) -> tuple[Floats, Floats]:
    """The least and the largest value of each number of a flat space, in the space's shape."""
    if isinstance(space, spaces.Box):
        return space.low.astype(np.float64), space.high.astype(np.float64)
    if isinstance(space, spaces.Discrete):
        return np.array(float(space.start)), np.array(float(space.start + space.n - 1))
    if isinstance(space, spaces.MultiDiscrete):
        return space.start.astype(np.float64), (space.start + space.nvec - 1).astype(np.float64)
    return np.zeros(space.shape or ()), np.ones(space.shape or ())


def _may_exceed_float32(values: NDArray[Any]) -> bool:
    """Whether some of these may be too large for float32, or NaN. The sum of squares is the cheapest thing to ask."""
    return values.dtype == np.float64 and not np.vdot(values, values) <= _LARGEST_SQUARED


def float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Casts to float32. Numbers too large for it become the largest there is; infinities and NaN stay."""
    if _may_exceed_float32(values):
        values = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
    return values.astype(np.float32, copy=False)
