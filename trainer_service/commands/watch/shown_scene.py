"""A scene in this process that a person sees: it waits for the page's controls, and shows every step."""

from __future__ import annotations

import io
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from PIL import Image

from trainer_service.commands.watch.stage import Person, Stage
from trainer_service.running.evaluation.evaluate import PolicyActors
from unity_bridge.server.bridge import Departure, Tick
from unity_bridge.simulators.scene import Scene
from unity_bridge.simulators.scenes.array_scene import ArrayScene
from unity_bridge.specs import ActionSpec, MemberSpec
from unity_bridge.steps import ActionBatch, StepBatch, first_allowed

Insight = Callable[[str, StepBatch, int], Mapping[str, Any]]
"""Figures on the decision of a behavior's agent in a row, as JSON can say them."""

RETURNS_KEPT = 100
"""Episodes whose returns the page shows."""

PERSON = "person"


@dataclass(slots=True)
class _Episode:
    number: int = 1
    length: int = 0
    total: float = 0.0
    players: set[str] = field(default_factory=set)
    """Names of the policies that acted in it, or ``PERSON``."""


class ShownScene:
    """The simulators of a loop: one scene, as fast as a person wants to see it.

    One agent is watched: the first that asks for an action, of one behavior id.
    """

    def __init__(
        self,
        scene: Scene,
        stage: Stage,
        seed: int,
        *,
        insight: Insight = lambda behavior_id, batch, row: {},
    ) -> None:
        """
        Args:
            scene: made to be rendered; not reset yet.
            stage: has the controls, and shows the steps.
            seed: of the scene.
            insight: figures on the watched agent's decisions.
        """
        self._scene = scene
        self._stage = stage
        self._insight = insight
        self.behavior_id = next(iter(scene.behaviors))
        stage.show({"behavior": self.behavior_id})
        self._new_specs = dict(scene.behaviors)
        self._steps = scene.reset(seed)
        self._agent: int | None = None
        self._episode = _Episode()
        self._returns: deque[tuple[float, set[str]]] = deque(maxlen=RETURNS_KEPT)
        """Of the ended episodes, each with its players."""
        self._total = 0

    @property
    def num_waiting(self) -> int:
        """Number of agents of the watched behavior that wait for an action."""
        batch = self._steps.get(self.behavior_id)
        return 0 if batch is None else len(batch) - batch.num_terminal

    def receive(self, timeout_s: float) -> Sequence[Tick | Departure]:
        """The scene's tick, when the page wants the next step. Raises StageClosed where it wants none any more."""
        if not self._total:
            self._stage.show_step({}, self.picture)  # before the first step, for which a person may wait
        self._stage.wait(self._scene.frame_s)
        specs, self._new_specs = self._new_specs, {}
        return [Tick(0, specs, self._steps)]

    def reply(self, simulator: int, actions: Mapping[str, ActionBatch]) -> None:
        """Lets the agents act, and shows the result."""
        figures = dict(self._figures(actions)) if self._stage.draws else {}
        self._steps = self._scene.step(actions)
        self._total += 1
        self._count()
        episode = self._episode
        figures |= {
            "step": self._total, "episode": episode.number, "length": episode.length,
            "return": round(episode.total, 4), "returns": [round(each, 4) for each, _ in self._returns],
            "players": [*map(self._player, self._returns)],
        }  # fmt: skip
        self._stage.show_step(figures, self.picture)

    def reset(self, simulator: int) -> None:
        """Lets all agents begin new episodes."""
        self._steps = self._scene.reset()
        self._agent, self._episode = None, _Episode(self._episode.number + 1)

    def watch(self, behavior_id: str) -> None:
        """Watches an agent of another behavior id from now on."""
        if behavior_id != self.behavior_id:
            self.behavior_id, self._agent = behavior_id, None
            self._episode = _Episode(self._episode.number)
            self._stage.show({"behavior": behavior_id})

    def picture(self) -> bytes:
        """The scene as it stands, as a JPEG."""
        if isinstance(self._scene, ArrayScene):
            self._scene.marked = self._agent
        stream = io.BytesIO()
        Image.fromarray(self._scene.render()).save(stream, "JPEG", quality=90, subsampling=0)
        return stream.getvalue()

    def watched_row(self, batch: StepBatch) -> int | None:
        """The row in which the watched agent waits; None where it does not."""
        waiting = batch.agent_ids[batch.num_terminal :]
        if self._agent is None and len(waiting):
            self._agent = int(waiting[0])
        (places,) = np.nonzero(waiting == self._agent)
        return batch.num_terminal + int(places[0]) if len(places) else None

    def _figures(self, actions: Mapping[str, ActionBatch]) -> Mapping[str, Any]:
        batch = self._steps.get(self.behavior_id)
        row = None if batch is None else self.watched_row(batch)
        if batch is None or row is None or self.behavior_id not in actions:
            return {}
        action = actions[self.behavior_id].rows(np.array([row - batch.num_terminal]))
        return {
            **self._insight(self.behavior_id, batch, row),
            "continuous": [round(each, 4) for each in action.continuous[0].tolist()],
            "discrete": action.discrete[0].tolist(),
        }

    @property
    def _policy(self) -> str:
        return str(self._stage.frame.get("policy"))

    def _player(self, ended: tuple[float, set[str]]) -> str:
        """The player of an ended episode: a person, the shown policy, or others, among them both in turn."""
        _, players = ended
        return PERSON if players == {PERSON} else "policy" if players == {self._policy} else "others"

    def _count(self) -> None:
        """Adds rewards and ends of the watched agent."""
        batch = self._steps.get(self.behavior_id)
        if batch is None or self._agent is None:
            return
        (rows,) = np.nonzero(batch.agent_ids == self._agent)
        if not len(rows):
            return
        first, episode = int(rows[0]), self._episode  # of its episode's end and the next one's begin, the end
        episode.total += float(batch.rewards[first] + batch.group_rewards[first])
        episode.length += 1
        episode.players.add(PERSON if self._stage.person.has_control else self._policy)
        if first < batch.num_terminal:
            self._returns.append((episode.total, episode.players))
            self._episode = _Episode(episode.number + 1)
            if len(rows) == 1:
                self._agent = None  # another agent takes its place


class PersonActors(PolicyActors):
    """Actors of which a person replaces the watched agent's while in control."""

    def __init__(
        self, actors: PolicyActors, person: Person, shown: ShownScene, *, takes_side: bool = False
    ) -> None:
        """
        Args:
            actors: act for all other agents, and for the watched one while the person is not in control.
            person: at the page.
            shown: the scene; says which agent is watched.
            takes_side: whether to watch the first behavior id that is declared here: the person's side of a game.
        """
        self._inner = actors
        self._person = person
        self._shown = shown
        self._takes_side = takes_side
        self._specs: dict[str, ActionSpec] = {}

    def declare(self, tick: Tick) -> None:
        """Takes in the behaviors that a tick declares."""
        self._inner.declare(tick)
        self._specs |= {behavior_id: spec.action_spec for behavior_id, spec in tick.new_specs.items()}
        if self._takes_side and tick.new_specs:
            self._shown.watch(next(iter(tick.new_specs)))

    @property
    def groups(self) -> Mapping[str, Sequence[str]]:
        """As the actors."""
        return self._inner.groups

    def members_of(self, name: str) -> tuple[MemberSpec, ...]:
        """As the actors."""
        return self._inner.members_of(name)

    def policy_of(self, behavior_id: str) -> str:
        """As the actors."""
        return self._inner.policy_of(behavior_id)

    def act_as(self, tick: Tick, behavior_id: str) -> ActionBatch:
        """The actions for the agents of a behavior id that wait."""
        actions, batch = self._inner.act_as(tick, behavior_id), tick.steps[behavior_id]
        row = self._shown.watched_row(batch) if behavior_id == self._shown.behavior_id else None
        if row is None or not self._person.has_control:
            return actions
        spec, place, end = self._specs[behavior_id], row - batch.num_terminal, 0
        idle = first_allowed(batch, spec)
        continuous, discrete = actions.continuous.copy(), actions.discrete.copy()
        continuous[place], discrete[place] = idle.continuous[place], idle.discrete[place]
        given = self._person.continuous[: spec.continuous_size]
        continuous[place, : len(given)] = given
        for branch, (choices, chosen) in enumerate(
            zip(spec.discrete_branches, self._person.discrete, strict=False)
        ):
            begin, end = end, end + choices
            mask = batch.allowed_actions[row, begin:end]
            if 0 <= chosen < choices and (not len(mask) or mask[chosen]):
                discrete[place, branch] = chosen
        return ActionBatch(continuous, discrete)

    def drop(self, simulator: int) -> None:
        """As the actors."""
        self._inner.drop(simulator)


class IdleActors(PolicyActors):
    """Actors that do nothing: zeros, and the first choice that is allowed."""

    def __init__(self) -> None:
        super().__init__({}, deterministic=True)
        self._specs: dict[str, ActionSpec] = {}

    def declare(self, tick: Tick) -> None:
        """Takes in the behaviors that a tick declares."""
        self._specs |= {behavior_id: spec.action_spec for behavior_id, spec in tick.new_specs.items()}

    def policy_of(self, behavior_id: str) -> str:
        """The behavior id itself."""
        return behavior_id

    def act_as(self, tick: Tick, behavior_id: str) -> ActionBatch:
        """Zeros."""
        return first_allowed(tick.steps[behavior_id], self._specs[behavior_id])
