"""Environments that somebody else wrote: what goes wrong in them, and numbers as the wire wants them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.scene import SceneError

_T = TypeVar("_T")
_LARGEST = np.finfo(np.float32).max
_SEED_STRIDE = 1000


def guarded(env: str, what: str, call: Callable[[], _T]) -> _T:
    """What call() returns; whatever it raises becomes one line that says where.

    Args:
        env: as the user wrote it.
        what: what is being called, for the message.
        call: somebody else's code.

    Raises:
        SceneError: call() raised something.
    """
    try:
        return call()
    except SceneError as error:
        raise SceneError(f"{env}: {error}") from None
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"{env}: {what} raised {type(error).__name__}: {text}") from error


def seed_of_copy(seed: int | None, copy: int) -> int | None:
    """seed + 1000 i for copy i of an environment; None goes on with the random numbers at hand.

    The simulators of a run have seeds that follow one another: were those of copies to follow one another too, copies
    of one simulator would live through the same as copies of the next.
    """
    return None if seed is None else (seed + _SEED_STRIDE * copy) % 2**31


def float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Numbers too large for float32 become the largest there is; infinities and NaN stay."""
    if values.dtype == np.float64:
        values = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
    return values.astype(np.float32)
