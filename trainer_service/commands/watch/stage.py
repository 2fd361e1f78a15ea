"""The controls and the content of the page: shared by the thread that plays and the one that serves."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trainer_service.errors import UserError
from unity_bridge.errors import BridgeError
from unity_bridge.specs import ActionSpec

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""How many times the scene's own speed the page offers."""

_PICTURES_PER_S = 30.0
"""At most; drawing takes no more than half of the time."""
_LOOK_S = 1.0
"""Seconds between looks at a run that is followed."""

_logger = logging.getLogger(__name__)


class StageClosed(Exception):
    """Raised in the thread that plays when the page is closed."""


@dataclass(slots=True)
class Person:
    """The action of the person at the page."""

    has_control: bool = False
    continuous: Sequence[float] = ()
    discrete: Sequence[int] = ()

    def act(self, continuous: object, discrete: object) -> None:
        """Takes an action, as the page makes it of keys and sticks. Raises ValueError for anything else."""
        if not isinstance(continuous, list) or not isinstance(discrete, list):
            raise ValueError("continuous and discrete: expected lists")
        self.continuous = [max(-1.0, min(1.0, float(value))) for value in continuous]
        self.discrete = [int(choice) for choice in discrete]


@dataclass(frozen=True, slots=True)
class About:
    """Fixed properties of the watched environment and policy."""

    environment: str = ""
    """As users name it; empty for a program that is not known."""

    actions: Mapping[str, ActionSpec] = field(default_factory=dict)
    """By behavior id."""

    meanings: Sequence[str] = ()
    """The environment's own words for its choices, as Atari's games have them."""

    marks: bool = False
    """Whether the picture marks the watched agent among others."""

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
        self._next_picture = 0.0
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

    @property
    def draws(self) -> bool:
        """Whether a step is shown now: not where steps follow each other faster than pictures would."""
        return self._paused or time.monotonic() >= self._next_picture

    def show_step(self, figures: Mapping[str, Any], picture: Callable[[], bytes]) -> None:
        """Shows a step, if steps are shown now."""
        if self.draws:
            began = time.monotonic()
            self.show({**figures, "picture": base64.b64encode(picture()).decode()})
            took = time.monotonic() - began
            self._next_picture = time.monotonic() + max(1 / _PICTURES_PER_S - took, took)

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
                self.person.act(given.get("continuous"), given.get("discrete"))
            else:
                raise ValueError(f"no such command: {str(dict(given))[:200]}")
            self._changed.notify_all()
        self.show({})
