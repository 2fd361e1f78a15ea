"""The learning half of a run, as simulators of the trainer's own process reach it."""

from __future__ import annotations

import logging

from trainer_service.running.behaviors.registry import MAX_LOGGED_BEHAVIORS, Behaviors
from trainer_service.running.collection.channels import Channels
from trainer_service.running.collection.collector import Collector
from trainer_service.running.collection.router import BehaviorId, Deliver
from trainer_service.running.training.recorder import Recorder
from unity_bridge.server.bridge import Bridge
from unity_bridge.side_channels import StatMessage
from unity_bridge.specs import BehaviorSpec
from unity_bridge.throttled_logger import ThrottledLogger

_logger = logging.getLogger(__name__)


class LocalLearners:
    """The behaviors of a run, as simulators of its own process reach them: by calls."""

    def __init__(self, behaviors: Behaviors, recorder: Recorder, channels: Channels, bridge: Bridge) -> None:
        self._behaviors = behaviors
        self._recorder = recorder
        self._channels = channels
        self._bridge = bridge
        self._throttled = ThrottledLogger(_logger)

    def declare(
        self, simulator: int, behavior_id: BehaviorId, spec: BehaviorSpec, group_size: int
    ) -> tuple[Collector, Deliver]:
        """The two halves of a behavior, which is made where it is new. Raises UserError like ``Behaviors.declare``."""
        is_new = behavior_id.name not in self._behaviors
        behavior = self._behaviors.declare(simulator, behavior_id, spec, group_size)
        if is_new:
            self._recorder.add(behavior)
            self._channels.announce(behavior.name, behavior.settings, self._bridge)
            line = f"Connected new brain: {behavior_id.in_words(behavior.spec)}"
            self._throttled.log("new", line, most=MAX_LOGGED_BEHAVIORS, level=logging.INFO)
        return behavior.collector, behavior.add

    def remove(self, simulator: int) -> None:
        """Drops a departed simulator, and its behaviors without experience that no other simulator has."""
        self._behaviors.remove(simulator)
        for behavior in self._behaviors.forget_unused():
            self._recorder.forget(behavior)

    def add_stat(self, behavior: str, stat: StatMessage) -> bool:
        """Adds a simulator's statistic to the behavior's next summary. False where there are too many names."""
        return self._behaviors[behavior].add_stat(stat)
