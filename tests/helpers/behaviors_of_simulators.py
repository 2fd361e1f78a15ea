"""The behaviors of a run with their collectors, as the simulators of its own process reach them."""

from __future__ import annotations

from typing import Any

from trainer_service.behaviors.registry import Behaviors
from trainer_service.collection.collectors import Collectors, largest_group
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch


class BehaviorsOfSimulators(Behaviors):
    """Behaviors, each with the collector that belongs to it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.collectors = Collectors(lambda name, batch: self[name].add(batch))

    def connect(
        self, simulator: int, behavior_id: str, spec: BehaviorSpec, first: StepBatch | None = None
    ) -> None:
        team = self.collectors.check(simulator, behavior_id, spec)
        behavior = self.declare(simulator, team, spec, largest_group(first))
        self.collectors.add(simulator, behavior_id, behavior.collector)

    def observe(self, tick: Tick) -> None:
        self.collectors.observe(tick)

    def act(self) -> dict[int, dict[str, ActionBatch]]:
        return self.collectors.act()

    def drop(self, simulator: int) -> None:
        self.collectors.drop(simulator)

    def disconnect(self, simulator: int) -> None:
        self.collectors.remove(simulator)
        self.remove(simulator)
