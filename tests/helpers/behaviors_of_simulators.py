"""The behaviors of a run with their collectors, as the simulators of its own process reach them."""

from __future__ import annotations

from typing import Any

from trainer_service.running.behaviors.registry import Behaviors
from trainer_service.running.collection.router import Router, largest_group
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch


class BehaviorsOfSimulators(Behaviors):
    """Behaviors, each with the collector that belongs to it."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.router = Router()

    def connect(
        self, simulator: int, behavior_id: str, spec: BehaviorSpec, first: StepBatch | None = None
    ) -> None:
        team = self.router.check(simulator, behavior_id, spec)
        behavior = self.declare(simulator, team, spec, largest_group(first))
        self.router.add(simulator, behavior_id, behavior.collector, behavior.add)

    def observe(self, tick: Tick) -> None:
        self.router.observe(tick)

    def act(self) -> dict[int, dict[str, ActionBatch]]:
        return self.router.act()

    def drop(self, simulator: int) -> None:
        self.router.drop(simulator)

    def disconnect(self, simulator: int) -> None:
        self.router.remove(simulator)
        self.remove(simulator)
