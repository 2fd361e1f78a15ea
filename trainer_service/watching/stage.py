"""The thread that plays a scene for the page, and the commands that the page gives it."""

from __future__ import annotations

import base64
import logging
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from trainer_service.errors import UserError
from trainer_service.watching.scene_player import ScenePlayer
from trainer_service.watching.sources import Acting, RunSource
from unity_bridge.errors import BridgeError

SPEEDS = (0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 16.0)
"""How many times the scene's own speed the page offers."""

_PICTURES_PER_S = 30.0
_LOOK_S = 1.0
"""Seconds between looks at a run that is followed."""

_logger = logging.getLogger(__name__)


class Stage:
    """A scene that plays in a thread, as fast as it should look, and its newest picture with figures.

    Without a scene (a Unity build shows itself) it has the run's curve alone.
    """

    def __init__(
        self,
        player: ScenePlayer | None,
        run: RunSource | None = None,
        *,
        name: str = "",
        use: Callable[[Acting], None] = lambda acting: None,
        follows: bool = False,
    ) -> None:
        """
        Args:
            player: of the scene; None for none.
            run: that the policies are of, if they are of one.
            name: of the policy that acts.
            use: called with policies that are to act from now on; it raises UserError where they do not fit.
            follows: whether to take every checkpoint that the run saves.
        """
        self._player = player
        self._run = run
        self._use = use
        self._follows = follows
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._play, name="watching", daemon=True)
        self._stopped = self._paused = False
        self._steps_due = 0
        self._speed = 1.0
        self._wanted: str | None = None
        self._frame: dict[str, Any] = {"number": 0, "policy": name}
        self._error: str | None = None

    @property
    def frame(self) -> Mapping[str, Any]:
        """The newest picture and figures, as JSON can say them; ``number`` grows with each."""
        return self._frame

    def start(self) -> None:
        """Begins to play."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread, after the step that it is in."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        self._thread.join()

    def about(self) -> dict[str, Any]:
        """What the page shows once: keys, speeds, checkpoints."""
        keys = [] if self._player is None else [
            {"key": each.key, "text": each.text} for each in self._player.keys.bindings
        ]  # fmt: skip
        spec = None if self._player is None else self._player.scene.behaviors[self._player.behavior_id].action_spec
        return {
            "speeds": SPEEDS,
            "keys": keys,
            "has_scene": self._player is not None,
            "has_run": self._run is not None,
            "follows": self._follows,
            "branches": [] if spec is None else list(spec.discrete_branches),
            "continuous": 0 if spec is None else spec.continuous_size,
            "behavior": "" if self._player is None else self._player.behavior_id,
        }

    def command(self, given: Mapping[str, Any]) -> None:
        """Does what the page says. Raises ValueError for a command that is none."""
        do, value = given.get("do"), given.get("value")
        with self._changed:
            if do in ("pause", "play"):
                self._paused = do == "pause"
            elif do == "step":
                self._paused, self._steps_due = True, self._steps_due + 1
            elif do == "speed" and value in SPEEDS:
                self._speed = float(value)
            elif do == "checkpoint" and isinstance(value, str) and self._run is not None:
                self._wanted, self._follows = value, False
            elif do == "follow" and self._run is not None:
                self._follows = bool(value)
            elif do in ("control", "input") and self._player is not None:
                self._take_input(str(do), given)
            else:
                raise ValueError(f"no such command: {str(dict(given))[:200]}")
            self._changed.notify_all()

    def _take_input(self, do: str, given: Mapping[str, Any]) -> None:
        assert self._player is not None
        person = self._player.person
        if do == "control":
            person.has_control = bool(given.get("value"))
            return
        pressed, axes = given.get("pressed", []), given.get("axes", [])
        if not isinstance(pressed, list) or not isinstance(axes, list):
            raise ValueError("pressed and axes: expected lists")
        person.pressed = {str(key) for key in pressed[:32]}
        person.axes = [float(value) for value in axes[:8]]

    def _play(self) -> None:
        looked, drawn, due = 0.0, 0.0, time.monotonic()
        try:
            while not self._stopped:
                now = time.monotonic()
                if now - looked >= _LOOK_S or self._wanted is not None:
                    looked = now
                    self._look_at_run()
                due = self._wait(due)
                if self._stopped:
                    return
                if self._player is None or (self._paused and not self._steps_due):
                    self._show({})
                    continue
                figures = self._player.advance()
                if self._steps_due:
                    self._steps_due -= 1
                if self._paused or time.monotonic() - drawn >= 1 / _PICTURES_PER_S:
                    drawn = time.monotonic()
                    self._show(figures | {"picture": base64.b64encode(self._player.picture()).decode()})
        except (BridgeError, UserError) as error:
            self._error = str(error)
            _logger.error("%s", error)
        except Exception as error:  # of the environment: the page shows it
            self._error = f"{type(error).__name__}: {error}"
            _logger.exception("The environment failed.")
        self._show({})

    def _wait(self, due: float) -> float:
        """Waits until the next step is due. Returns when the one after it is."""
        with self._changed:
            if self._player is None or (self._paused and not self._steps_due):
                self._changed.wait(timeout=0.25)
                return time.monotonic()
            pause_s = self._player.scene.frame_s / self._speed
            late = time.monotonic() - due
            if late < 0:
                self._changed.wait(timeout=-late)
            return max(due + pause_s, time.monotonic() - pause_s)

    def _look_at_run(self) -> None:
        if self._run is None:
            return
        wanted, self._wanted = self._wanted, None
        acting = None
        if wanted is not None:
            try:
                acting = self._run.load(wanted)
            except UserError as error:
                self._show({"note": str(error)})
        elif self._follows:
            acting = self._run.newer()
        if acting is not None:
            try:
                self._use(acting)
            except UserError as error:
                self._show({"note": str(error)})
            else:
                self._show({"policy": acting.name, "note": ""})
        self._show({"curve": self._run.curve()})

    def _show(self, figures: Mapping[str, Any]) -> None:
        before = self._frame
        has_control = self._player is not None and self._player.person.has_control
        state = {
            "paused": self._paused, "speed": self._speed, "control": has_control, "follows": self._follows,
            "error": self._error,
        }  # fmt: skip
        changed = {**before, **figures, **state}
        if changed != before:
            self._frame = {**changed, "number": before["number"] + 1}
