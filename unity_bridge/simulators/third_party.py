"""Code of other libraries and of users: its errors in one line, warnings about it, and where it raised something."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from unity_bridge.simulators.scene import SceneError

_logger = logging.getLogger(__name__)

_P = ParamSpec("_P")
_T = TypeVar("_T")
_CALLERS = ("unity_bridge", "importlib", "gymnasium.core", "gymnasium.envs.registration", "gymnasium.wrappers",
            "pettingzoo.utils")  # fmt: skip
"""Modules that only pass a call on: their frames do not tell where a mistake is."""


_HELD: dict[int, Any] = {}
"""The innermost environments of all open scenes of this process, however they are wrapped, by ``id``."""


class ForeignCode:
    """Code of another library or of the user, and the name by which messages call it."""

    def __init__(self, name: str) -> None:
        """name: the environment as the user wrote it."""
        self.name = name
        self._told: set[str] = set()
        self._held: list[int] = []

    def hold(self, made: Iterable[Any]) -> None:
        """Keeps environments from other copies and other scenes, whose resets would end their episodes.

        Raises SceneError for one that is held already.
        """
        for env in made:
            inner = getattr(env, "unwrapped", env)
            if id(inner) in _HELD:
                raise self.error("the function returned the same environment twice; make a new one each time")
            _HELD[id(inner)] = inner
            self._held.append(id(inner))

    def release(self) -> None:
        """Holds nothing any more."""
        while self._held:
            del _HELD[self._held.pop()]

    def call(self, what: str, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Returns what a function returns; an exception becomes one line that says where it was raised.

        Args:
            what: the function, for messages.
            function, args, kwargs: foreign code, and its arguments.

        Raises:
            SceneError: it raised something.
        """
        try:
            return function(*args, **kwargs)
        except SceneError as error:
            if str(error).startswith(f"{self.name}: "):
                raise
            raise self.error(str(error)) from error.__cause__
        except Exception as error:
            text = " ".join(str(error).split())
            raise self.error(f"{what} raised {type(error).__name__}: {text}") from error

    def close(self, function: Callable[[], object]) -> None:
        """Calls an environment's ``close``. An error there is a warning: it hides no earlier one, and ends no run."""
        try:
            function()
        except Exception as error:
            self.warn("close", f"close() raised {type(error).__name__}: {' '.join(str(error).split())}")

    def error(self, text: str) -> SceneError:
        """An error that names the environment."""
        return SceneError(f"{self.name}: {text}")

    def warn(self, topic: str, text: str) -> None:
        """Logs a warning that names the environment, the first time on a topic.

        A trainer logs a topic once, whichever simulator says it first.
        """
        if topic not in self._told:
            self._told.add(topic)
            _logger.warning("%s: %s", self.name, text, extra={"topic": topic})


def users_traceback(error: BaseException) -> str:
    """Returns the third-party part of an error's traceback, from the first line of third-party code on.

    Empty if no third-party code raised: the error has no cause, or the cause arose before that code ran.
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
    """Yields an exception and its chain of causes."""
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
