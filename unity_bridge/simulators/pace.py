"""A hint for runs whose single copy of an environment waits for messages most of the time."""

from __future__ import annotations

import logging
import statistics
import time
from collections.abc import Callable, Mapping

from unity_bridge.simulators.scene import Scene, Steps
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch

_logger = logging.getLogger(__name__)

MEASURED = 500
"""Steps over which medians are taken, so that updates and resets do not count."""

BOUND = 4.0
"""By how much a message must take longer than a step to be worth a word."""


class PacedScene:
    """A scene of a single copy that compares, once, the time of its steps with the time between them."""

    def __init__(
        self, scene: Scene, called: str, more: str, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """
        Args:
            scene: what is measured; everything is passed on to it.
            called: as the user wrote the environment.
            more: the flag that makes copies.
            clock: returns the time in seconds.
        """
        self._scene = scene
        self._called = called
        self._more = more
        self._clock = clock
        self._returned_at: float | None = None
        self._steps_s: list[float] = []
        self._messages_s: list[float] = []
        self.reset, self.render, self.close = scene.reset, scene.render, scene.close
        self.step: Callable[[Mapping[str, ActionBatch]], Steps] = self._measured

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return self._scene.behaviors

    @property
    def frame_s(self) -> float:
        return self._scene.frame_s

    def _measured(self, actions: Mapping[str, ActionBatch]) -> Steps:
        called_at = self._clock()
        steps = self._scene.step(actions)
        if self._returned_at is not None:
            self._messages_s.append(called_at - self._returned_at)
        self._returned_at = self._clock()
        self._steps_s.append(self._returned_at - called_at)
        if len(self._steps_s) == MEASURED:
            self._tell()
            self.step = self._scene.step  # enough is known, and nothing stands in between any more
        return steps

    def _tell(self) -> None:
        step_s, message_s = statistics.median(self._steps_s), statistics.median(self._messages_s)
        if message_s > BOUND * step_s:
            _logger.warning(
                "%s: a step takes %.2g ms, and its message to the trainer and back %.2g ms; more copies share a "
                "message: %s 8, or more, after --env-args",
                self._called,
                1000 * step_s,
                1000 * message_s,
                self._more,
            )
