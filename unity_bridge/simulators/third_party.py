"""Environments that others wrote: errors in their code, seeds of their copies, and numbers as the wire wants them."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unity_bridge.simulators.scene import SceneError

_T = TypeVar("_T")
_LARGEST = np.finfo(np.float32).max
_SEED_STRIDE = 1000
_CALLERS = ("unity_bridge", "importlib", "gymnasium.core", "gymnasium.envs.registration", "gymnasium.wrappers",
            "pettingzoo.utils")  # fmt: skip
"""Modules that only pass a call on: their frames do not tell where a mistake is."""


def call_guarded(env: str, what: str, call: Callable[[], _T]) -> _T:
    """Returns what call() returns; an exception becomes one line that says where it was raised.

    Args:
        env: as the user wrote it.
        what: what is being called, for the message.
        call: code of others.

    Raises:
        SceneError: call() raised something.
    """
    try:
        return call()
    except SceneError as error:
        raise SceneError(f"{env}: {error}") from error.__cause__
    except Exception as error:
        text = " ".join(str(error).split())
        raise SceneError(f"{env}: {what} raised {type(error).__name__}: {text}") from error


def users_traceback(error: BaseException) -> str:
    """The traceback of what code of others raised behind an error, from the first line of that code on.

    Empty where no such code is to blame: nothing was raised behind it, or only on the way to that code.
    """
    cause = error.__cause__
    chain = list(_chain(cause))
    if cause is None or not any(not _is_caller(frame) for each in chain for frame in _modules(each)):
        return ""
    first = cause.__traceback__
    while first is not None and first.tb_next is not None and _is_caller(_module(first)):
        first = first.tb_next
    return "".join(traceback.format_exception(type(cause), cause, first))


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An exception and those behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _modules(error: BaseException) -> Iterator[str]:
    """Names of the modules that an exception passed through, by frame."""
    frame = error.__traceback__
    while frame is not None:
        yield _module(frame)
        frame = frame.tb_next


def _module(frame: TracebackType) -> str:
    return str(frame.tb_frame.f_globals.get("__name__", ""))


def _is_caller(module: str) -> bool:
    return any(_is_within(module, caller) for caller in _CALLERS)


def _is_within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


def copy_seed(seed: int | None, copy: int) -> int | None:
    """seed + 1000 i for copy i of an environment; None goes on with the random numbers at hand.

    The simulators of a run have seeds that follow one another: were those of copies to follow one another too, copies
    of one simulator would live through the same as copies of the next.
    """
    return None if seed is None else (seed + _SEED_STRIDE * copy) % 2**31


def float32(values: NDArray[Any]) -> NDArray[np.float32]:
    """Casts to float32. Numbers too large for it become the largest there is; infinities and NaN stay."""
    if values.dtype == np.float64:
        values = np.where(np.isfinite(values), np.clip(values, -_LARGEST, _LARGEST), values)
    return values.astype(np.float32)
