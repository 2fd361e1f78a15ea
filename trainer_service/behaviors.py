"""All behaviors of a run, and the way of a tick through them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

import numpy as np

from trainer_service.behavior import Behavior, TeamSteps
from trainer_service.checkpoint import differences
from trainer_service.config import validate_behavior_name
from trainer_service.curriculum import Progress
from trainer_service.errors import UserError
from unity_bridge.complaints import quoted
from unity_bridge.server import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

_BEHAVIOR_ID = re.compile(r"(?P<name>[^?]*)(?:\?(?:.*&)?team=(?P<team>[0-9]+)(?:&.*)?)?", re.DOTALL)

_MOST_TEAM_DIGITS = 9
"""What fits beside an agent's id into one number of 64 bits, see ``agent_keys``."""


def parse_behavior_id(behavior_id: str) -> tuple[str, int]:
    """Name and team of ``Name?team=K``; team 0 where none is said.

    Raises:
        UserError: a name that could not be a folder of the run, or a team number of too many digits.
    """
    match = _BEHAVIOR_ID.fullmatch(behavior_id)
    if match is None:
        raise UserError(f"behavior id {quoted(behavior_id)}: expected NAME or NAME?team=NUMBER")
    validate_behavior_name(match["name"])
    team = match["team"] or "0"
    if len(team) > _MOST_TEAM_DIGITS:
        raise UserError(
            f"behavior id {quoted(behavior_id)}: expected a team number of at most {_MOST_TEAM_DIGITS} digits, "
            f"got {len(team)}"
        )
    return match["name"], int(team)


class Behaviors(Mapping[str, Behavior]):
    """By name. A behavior is made when a simulator first declares it; its teams share it."""

    def __init__(self, create: Callable[[str, BehaviorSpec, int], Behavior]) -> None:
        """create: from a name, what its agents see and do, and how many are in a group, as far as is known."""
        self._create = create
        self._by_name: dict[str, Behavior] = {}
        self._ids: dict[str, tuple[Behavior, int]] = {}
        self._asked: list[tuple[int, str, Behavior]] = []

    def __getitem__(self, name: str) -> Behavior:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def finished(self) -> bool:
        """Every behavior that showed up has used its step budget."""
        return bool(self._by_name) and all(behavior.finished for behavior in self.values())

    def declare(self, behavior_id: str, spec: BehaviorSpec, first: StepBatch | None = None) -> None:
        """Makes the behavior, or checks that it is the one we know.

        first: the first of its agents, if the message that declares it has any.

        Raises:
            UserError: no settings for it, an impossible name, or not what an earlier simulator declared.
        """
        name, team = parse_behavior_id(behavior_id)
        behavior = self._by_name.get(name)
        if behavior is None:
            behavior = self._by_name[name] = self._create(name, spec, _largest_group(first))
        elif changed := differences(behavior.spec, spec):
            raise UserError(f"behavior '{behavior_id}' differs from what was declared before: {changed}")
        if behavior.sparring is not None:
            behavior.sparring.enter(team)
        self._ids[behavior_id] = (behavior, team)

    def observe(self, ticks: list[Tick]) -> None:
        """Lets every agent of these ticks have its reward, and remembers who asked for an action."""
        self._asked = []
        for tick in ticks:
            for behavior_id, batch in tick.steps.items():
                behavior, team = self._ids[behavior_id]
                behavior.observe(TeamSteps(tick.simulator, team, batch))
                self._asked.append((tick.simulator, behavior_id, behavior))

    def act(self) -> dict[int, dict[str, ActionBatch]]:
        """Actions for all who asked, by simulator and behavior id: one forward pass per behavior."""
        decided = {behavior.name: iter(behavior.act()) for _, _, behavior in self._asked_once()}
        replies: dict[int, dict[str, ActionBatch]] = {}
        for simulator, behavior_id, behavior in self._asked:
            replies.setdefault(simulator, {})[behavior_id] = next(decided[behavior.name])
        return replies

    def take_turns(self) -> bool:
        """Lets self-play go on by what was observed. Returns whether another team learns from now on."""
        players = [(each, each.sparring) for each in self.values() if each.sparring is not None]
        changes = [sparring.advance(each.step, finished=each.finished) for each, sparring in players]
        for each, sparring in players:
            sparring.choose(each.step)
        return any(changes)

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left or begins anew: unfinished pieces, and who asked there."""
        for behavior in self.values():
            behavior.drop(simulator)
        self._asked = [asked for asked in self._asked if asked[0] != simulator]

    def drain_progress(self) -> dict[str, Progress]:
        """What those who learn did since the last call, by name."""
        found = ((behavior.name, behavior.drain_progress()) for behavior in self.values())
        return {name: progress for name, progress in found if progress is not None}

    def _asked_once(self) -> list[tuple[int, str, Behavior]]:
        return list({behavior.name: (s, i, behavior) for s, i, behavior in self._asked}.values())


def _largest_group(batch: StepBatch | None) -> int:
    """How many agents of one group wait for an action; 1 where there are no groups."""
    if batch is None:
        return 1
    groups = batch.group_ids[batch.num_terminal :]
    return int(np.unique(groups[groups != 0], return_counts=True)[1].max(initial=1))
