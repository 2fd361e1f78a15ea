"""One scene in this process, played step by step by frozen policies or a person."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from trainer_service.collection.heterogeneous_groups import HeterogeneousGroups
from trainer_service.evaluation.evaluate import PolicyActors
from trainer_service.watching.keys import KeyMap
from unity_bridge.server.bridge import Tick
from unity_bridge.simulators.scene import Scene
from unity_bridge.steps import ActionBatch, StepBatch

Insight = Callable[[str, StepBatch, int], Mapping[str, Any]]
"""Figures on the decision of a behavior's agent in a row, as JSON can say them."""

RETURNS_KEPT = 100
"""Episodes whose returns the page shows."""


@dataclass(slots=True)
class Person:
    """Input of the person at the page."""

    has_control: bool = False
    pressed: Collection[str] = ()
    axes: Sequence[float] = ()


@dataclass(slots=True)
class _WatchedEpisode:
    number: int = 1
    length: int = 0
    return_: float = 0.0
    returns: deque[float] = field(default_factory=lambda: deque(maxlen=RETURNS_KEPT))
    by_person: bool = False


class ScenePlayer:
    """A scene and the policies that act in it. One agent of it is watched: the first that asks for an action."""

    def __init__(
        self, scene: Scene, actors: PolicyActors | None, insight: Insight, seed: int, *, side: str | None = None
    ) -> None:
        """
        Args:
            scene: made to be rendered; not reset yet.
            actors: act for all agents; None for the scene's own expert.
            insight: figures on the watched agent's decisions.
            seed: of the scene.
            side: the behavior id to watch; None for the first that the scene has.
        """
        self.scene = scene
        self.insight = insight
        self.behavior_id = next(iter(scene.behaviors)) if side is None else side
        self.keys = KeyMap(scene.behaviors[self.behavior_id].action_spec)
        self.person = Person()
        self.on_decision: Callable[[StepBatch, int, ActionBatch], None] = lambda batch, row, action: None
        """Called with each batch of the watched behavior, the watched agent's row and its action."""
        self._steps = scene.reset(seed)
        self._agent: int | None = None
        self._episode = _WatchedEpisode()
        self._total = 0
        self.set_actors(actors)

    def set_actors(self, actors: PolicyActors | None) -> None:
        """Lets other policies act from now on. Raises UserError where they do not fit."""
        groups = HeterogeneousGroups({} if actors is None else actors.groups)
        if actors is not None:
            actors.declare(groups.merge(Tick(0, dict(self.scene.behaviors), self._steps)))
        self._actors, self._groups = actors, groups

    @property
    def episodes(self) -> int:
        """Number of episodes of the watched agent that have ended."""
        return self._episode.number - 1

    def advance(self) -> dict[str, Any]:
        """Acts for everyone, and advances the scene by one step. Returns figures on it for the page."""
        actions = dict(self._actions())
        batch = self._steps.get(self.behavior_id)
        row = None if batch is None else self._watched_row(batch)
        figures: Mapping[str, Any] = {}
        if batch is not None and row is not None:
            waiting = row - batch.num_terminal
            figures = self.insight(self.behavior_id, batch, row)
            if self.person.has_control:
                given = self.keys.action(self.person.pressed, self.person.axes, batch.allowed_actions[row])
                actions[self.behavior_id] = _replaced(actions[self.behavior_id], waiting, given)
            self.on_decision(batch, row, actions[self.behavior_id].rows(np.array([waiting])))
        self._steps = self.scene.step(actions)
        self._total += 1
        self._count()
        return self._shown(figures, actions, batch, row)

    def picture(self) -> bytes:
        """The scene as it stands, as a JPEG."""
        stream = io.BytesIO()
        Image.fromarray(self.scene.render()).save(stream, "JPEG", quality=85)
        return stream.getvalue()

    def _actions(self) -> Mapping[str, ActionBatch]:
        if self._actors is None:
            return self.scene.expert()  # type: ignore[attr-defined,no-any-return]  # the caller asked for one
        tick = self._groups.merge(Tick(0, {}, self._steps))
        return self._groups.split(tick, self._actors.act(tick))

    def _watched_row(self, batch: StepBatch) -> int | None:
        """The row in which the watched agent waits; None where it does not."""
        waiting = batch.agent_ids[batch.num_terminal :]
        if not len(waiting):
            return None
        if self._agent is None:
            self._agent = int(waiting[0])
        (places,) = np.nonzero(waiting == self._agent)
        return batch.num_terminal + int(places[0]) if len(places) else None

    def _count(self) -> None:
        """Adds rewards and ends of the watched agent."""
        batch = self._steps.get(self.behavior_id)
        if batch is None or self._agent is None:
            return
        episode = self._episode
        episode.by_person |= self.person.has_control
        for row in np.flatnonzero(batch.agent_ids == self._agent):
            if row < batch.num_terminal or not np.any(batch.agent_ids[: batch.num_terminal] == self._agent):
                episode.return_ += float(batch.rewards[row] + batch.group_rewards[row])
                episode.length += 1
            if row < batch.num_terminal:
                episode.returns.append(episode.return_)
                self._episode = _WatchedEpisode(episode.number + 1, returns=episode.returns)
                if not np.any(batch.agent_ids[batch.num_terminal :] == self._agent):
                    self._agent = None  # another agent takes its place

    def _shown(
        self,
        figures: Mapping[str, Any],
        actions: Mapping[str, ActionBatch],
        batch: StepBatch | None,
        row: int | None,
    ) -> dict[str, Any]:
        shown: dict[str, Any] = {
            "step": self._total,
            "episode": self._episode.number,
            "length": self._episode.length,
            "return": round(self._episode.return_, 4),
            "returns": [round(each, 4) for each in self._episode.returns],
            **figures,
        }
        if batch is not None and row is not None:
            action = actions[self.behavior_id].rows(np.array([row - batch.num_terminal]))
            shown["continuous"] = [round(each, 4) for each in action.continuous[0].tolist()]
            shown["discrete"] = action.discrete[0].tolist()
        return shown


def _replaced(actions: ActionBatch, row: int, given: ActionBatch) -> ActionBatch:
    continuous, discrete = actions.continuous.copy(), actions.discrete.copy()
    continuous[row], discrete[row] = given.continuous[0], given.discrete[0]
    return ActionBatch(continuous, discrete)
