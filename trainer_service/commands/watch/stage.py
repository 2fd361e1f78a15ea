"""The controls and the content of the page: shared by the thread that plays and the one that serves."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer_service.errors import UserError
from unity_bridge.errors import BridgeError

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""How many times the scene's own speed the page offers."""

_PICTURES_PER_S = 30.0
_LOOK_S = 1.0
"""Seconds between looks at a run that is followed."""

_logger = logging.getLogger(__name__)


class StageClosed(Exception):
    """Raised in the thread that plays when the page is closed."""


@dataclass(slots=True)
class Person:
    """The input of the person at the page."""

    has_control: bool = False
    pressed: Collection[str] = ()
    axes: Sequence[float] = ()

    def press(self, pressed: object, axes: object) -> None:
        """Takes the keys that are down and a gamepad's axes. Raises ValueError for anything else."""
        if not isinstance(pressed, list) or not isinstance(axes, list):
            raise ValueError("pressed and axes: expected lists")
        self.pressed = {str(key) for key in pressed[:32]}
        self.axes = [max(-1.0, min(1.0, float(value))) for value in axes[:8]]


@dataclass(frozen=True, slots=True)
class About:
    """Fixed properties of the watched environment and policy."""

    keys: tuple[tuple[str, str], ...] = ()
    """Each key's name in the browser, and a line on it."""

    branches: tuple[int, ...] = ()
    """Choices of each discrete branch of the watched agent."""

    has_scene: bool = True
    """Whether there is a picture; a Unity build shows itself."""

    has_run: bool = False
    """Whether there are checkpoints to choose from, and a curve."""


class Stage:
    """Controls that the page sets, and the newest picture and figures for it."""

    def __init__(self, *, follows: bool = False, person_plays: bool = False) -> None:
        """
        Args:
            follows: whether every checkpoint that a run saves is wanted.
            person_plays: whether the person is in control from the beginning; then it begins paused.
        """
        self.about = About()
        self.person = Person(person_plays)
        self.follows = follows
        self._changed = threading.Condition()
        self._closed, self._paused = False, person_plays
        self._steps_due = 0
        self._speed = 1.0
        self._due = time.monotonic()
        self._drawn = 0.0
        self._wanted: str | None = None
        self._frame: dict[str, Any] = {"number": 0}
        self._look: Callable[[], None] = lambda: None
        self._looked = 0.0

    @property
    def frame(self) -> Mapping[str, Any]:
        """The newest picture and figures, as JSON can say them; ``number`` grows with each."""
        return self._frame

    @property
    def closed(self) -> bool:
        """Whether nothing follows."""
        return self._closed

    def close(self) -> None:
        """Ends what plays, at its next step."""
        self.show({"over": True})
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def every_second(self, look: Callable[[], None]) -> None:
        """Calls a function in the thread that plays, between its steps."""
        self._look = look

    def run(self, play: Callable[[], None]) -> None:
        """Plays until the page is closed. What fails is shown on the page, and raised again."""
        try:
            play()
        except StageClosed:
            return
        except (BridgeError, UserError) as error:
            self.show({"error": str(error)})
            raise
        except Exception as error:  # of the environment
            self.show({"error": f"{type(error).__name__}: {error}"})
            _logger.exception("The environment failed.")
            raise

    def wait(self, frame_s: float | None) -> None:
        """Waits until the next step is due. frame_s: seconds between two steps at speed 1; None shows no scene.

        Raises:
            StageClosed: there is none any more.
        """
        while True:
            if self._closed:
                raise StageClosed
            if time.monotonic() - self._looked >= _LOOK_S or self._wanted is not None:
                self._looked = time.monotonic()
                self._look()
            with self._changed:
                if frame_s is None or (self._paused and not self._steps_due):
                    self._changed.wait(timeout=0.25)
                    self._due = time.monotonic()
                    continue
                left = self._due - time.monotonic()
                if left > 0 and not self._steps_due:
                    self._changed.wait(timeout=min(left, 0.25))
                    continue
                self._steps_due = max(self._steps_due - 1, 0)
                pause_s = frame_s / self._speed
                self._due = max(self._due + pause_s, time.monotonic() - pause_s)
                return

    def show_step(self, figures: Mapping[str, Any], picture: Callable[[], bytes]) -> None:
        """Shows a step, unless steps follow each other faster than pictures would."""
        now = time.monotonic()
        if self._paused or now - self._drawn >= 1 / _PICTURES_PER_S:
            self._drawn = now
            self.show({**figures, "picture": base64.b64encode(picture()).decode()})

    def show(self, figures: Mapping[str, Any]) -> None:
        """Replaces some of the figures."""
        with self._changed:
            before = self._frame
            state = {
                "paused": self._paused, "speed": self._speed, "control": self.person.has_control,
                "follows": self.follows,
            }  # fmt: skip
            changed = {**before, **figures, **state}
            if changed != before:
                self._frame = {**changed, "number": before["number"] + 1}

    def wanted_checkpoint(self) -> str | None:
        """The checkpoint that the page asked for since the last call."""
        wanted, self._wanted = self._wanted, None
        return wanted

    def command(self, given: Mapping[str, Any]) -> None:
        """Executes a command of the page. Raises ValueError for a command that is none."""
        do, value = given.get("do"), given.get("value")
        with self._changed:
            if do in ("pause", "play"):
                self._paused = do == "pause"
            elif do == "step":
                self._paused, self._steps_due = True, self._steps_due + 1
            elif do == "speed" and value in SPEEDS:
                self._speed = float(value)
            elif do == "checkpoint" and isinstance(value, str) and self.about.has_run:
                self._wanted, self.follows = value, False
            elif do == "follow" and self.about.has_run:
                self.follows = bool(value)
            elif do == "control" and self.about.has_scene:
                self.person.has_control = bool(value)
            elif do == "input" and self.about.has_scene:
                self.person.press(given.get("pressed", []), given.get("axes", []))
            else:
                raise ValueError(f"no such command: {str(dict(given))[:200]}")
            self._changed.notify_all()
        self.show({})
