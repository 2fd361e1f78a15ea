"""All behaviors of a run, and the way of a tick through them."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from trainer_service.behaviors.behavior import Behavior
from trainer_service.behaviors.collector import TeamSteps
from trainer_service.config import validate_behavior_name
from trainer_service.curriculum import Progress
from trainer_service.errors import UserError
from trainer_service.runs.checkpoint import spec_mismatch
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch
from unity_bridge.untrusted_text import quoted

_BEHAVIOR_ID = re.compile(r"(?P<name>[^?]*)(?:\?(?:.*&)?team=(?P<team>[0-9]+)(?:&.*)?)?", re.DOTALL)

MAX_UNLISTED = 64
"""Behaviors that are made though the configuration does not name them."""

MAX_IDS = 256
"""Behavior ids of one simulator: names with their teams."""

MAX_ACTIONS = 65_536
"""Actions of one behavior: continuous ones and the choices of all branches."""

_MAX_DIFFERENCE = 500
"""Characters of a difference that are quoted: a list of branches alone could fill a book."""

_MAX_TEAM_DIGITS = 9
"""Digits of a team that fit beside an agent's id into one number of 64 bits, see ``agent_keys``."""


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
    if len(team) > _MAX_TEAM_DIGITS:
        raise UserError(
            f"behavior id {quoted(behavior_id)}: expected a team number of at most {_MAX_TEAM_DIGITS} digits, "
            f"got {len(team)}"
        )
    return match["name"], int(team)


class _Declared(NamedTuple):
    """A behavior id of a simulator, taken apart."""

    name: str
    team: int


class Behaviors(Mapping[str, Behavior]):
    """The behaviors of a run, by name. Each is made when a simulator first declares it; its teams share it."""

    def __init__(
        self,
        create: Callable[[str, BehaviorSpec, int], Behavior],
        *,
        listed: Iterable[str] = (),
        absence_timeout_s: float = math.inf,
    ) -> None:
        """Remembers how to make behaviors.

        Args:
            create: from a name, what its agents see and do, and how many are in a group, as far as is known.
            listed: names that the configuration has: these are always made, others up to ``MAX_UNLISTED``.
            absence_timeout_s: how long the run waits for a behavior that no simulator has any more.
        """
        self._create = create
        self._listed = frozenset(listed)
        self._absence_timeout_s = absence_timeout_s
        self._by_name: dict[str, Behavior] = {}
        self._ids: dict[int, dict[str, _Declared]] = {}
        """Behavior ids by simulator, for as long as it is there."""
        self._absent_since: dict[str, float] = {}
        """Time when the last simulator that had a behavior left, by ``time.monotonic``."""
        self._teams_absent_since: dict[_Declared, float] = {}
        """Time when the last simulator that had a team left."""
        self._pending_replies: list[tuple[int, str, Behavior]] = []

    def __getitem__(self, name: str) -> Behavior:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    @property
    def finished(self) -> bool:
        """Whether every behavior has used its step budget, or has not been in any simulator for too long."""
        for name, each in self._by_name.items():
            if not each.finished and not self._has_timed_out(name):
                return False  # as nearly always
        return bool(self._by_name) and not all(map(self._has_timed_out, self))

    @property
    def unfinished(self) -> list[str]:
        """Names of the behaviors that the run goes on for."""
        return [
            name
            for name, each in self._by_name.items()
            if not each.finished and not self._has_timed_out(name)
        ]

    def is_absent(self, name: str) -> bool:
        """Whether no simulator has the behavior any more."""
        return name in self._absent_since

    def declare(
        self, simulator: int, behavior_id: str, spec: BehaviorSpec, first: StepBatch | None = None
    ) -> None:
        """Makes the behavior, or checks that it is the one that is known.

        first: the first of its agents, if the message that declares it has any.

        Raises:
            UserError: no settings for it, an impossible name, too many behaviors or actions, or not what an earlier
                simulator declared.
        """
        declared = _Declared(*parse_behavior_id(behavior_id))
        ids = self._ids.setdefault(simulator, {})
        for other, known in ids.items():
            if known == declared and other != behavior_id:
                raise UserError(
                    f"behavior id {quoted(behavior_id)}: expected one id for each name and team, {quoted(other)} "
                    "means the same"
                )
        if len(ids) >= MAX_IDS and behavior_id not in ids:
            raise UserError(f"behavior id {quoted(behavior_id)}: expected at most {MAX_IDS} of one simulator")
        _require_few_actions(behavior_id, spec)
        name = declared.name
        behavior = self._by_name.get(name)
        if behavior is None:
            self._require_room(name)
            behavior = self._by_name[name] = self._create(name, spec, _largest_group(first))
        elif changed := spec_mismatch(behavior.spec, spec):
            raise UserError(
                f"behavior {quoted(behavior_id)} differs from what was declared before: {changed[:_MAX_DIFFERENCE]}"
            )
        if behavior.opponents is not None:
            behavior.opponents.rules.register_team(declared.team)
        ids[behavior_id] = declared
        self._absent_since.pop(name, None)
        self._teams_absent_since.pop(declared, None)

    def observe(self, tick: Tick) -> None:
        """Hands a tick to its behaviors, and remembers which of them are to answer.

        Whatever it raises is about this simulator alone: ``remove_simulator`` undoes all that it left.
        """
        ids = self._ids.get(tick.simulator, {})
        for behavior_id, batch in tick.steps.items():
            name, team = ids[behavior_id]
            behavior = self._by_name[name]
            behavior.observe(TeamSteps(tick.simulator, team, batch))
            self._pending_replies.append((tick.simulator, behavior_id, behavior))
        for behavior_id, values in tick.replaced.items():
            self._by_name[ids[behavior_id][0]].add_replaced_values(values)

    def act(self) -> dict[int, dict[str, ActionBatch]]:
        """Actions for all waiting agents, by simulator and behavior id: one forward pass per behavior."""
        pending, self._pending_replies = self._pending_replies, []
        decided = {behavior.name: iter(behavior.act()) for behavior in _each_once(pending)}
        replies: dict[int, dict[str, ActionBatch]] = {}
        for simulator, behavior_id, behavior in pending:
            replies.setdefault(simulator, {})[behavior_id] = next(decided[behavior.name])
        return replies

    def advance_turns(self) -> bool:
        """Takes snapshots, ends turns and draws opponents where due. Returns whether another team learns now."""
        players = [(each, each.opponents) for each in self.values() if each.opponents is not None]
        changes = [self._remove_absent_teams()]
        changes += [
            opponents.rules.advance(each.step, opponents.weights, finished=each.finished)
            for each, opponents in players
        ]
        for each, opponents in players:
            opponents.rules.choose_opponents(each.step)
        return any(changes)

    def drop(self, simulator: int) -> None:
        """Forgets the agents of a simulator that begins anew: unfinished segments, and actions that they wait for."""
        for behavior in self.values():
            behavior.drop(simulator)
        self._pending_replies = [each for each in self._pending_replies if each[0] != simulator]

    def remove_simulator(self, simulator: int) -> None:
        """Forgets a simulator that is gone: its agents, and that it had any behaviors."""
        self.drop(simulator)
        now = time.monotonic()
        lost = set(self._ids.pop(simulator, {}).values())
        still_there = {declared for ids in self._ids.values() for declared in ids.values()}
        self._teams_absent_since |= dict.fromkeys(lost - still_there, now)
        names = {each.name for each in lost} - {each.name for each in still_there}
        self._absent_since |= dict.fromkeys(names, now)

    def _remove_absent_teams(self) -> bool:
        """Removes teams without agents: their turns would never end. Returns whether another team learns now."""
        if not self._teams_absent_since:
            return False
        late = [team for team, since in self._teams_absent_since.items() if self._is_too_long_ago(since)]
        changed = False
        for team in late:
            del self._teams_absent_since[team]
            opponents = self._by_name[team.name].opponents
            changed |= opponents is not None and opponents.rules.remove_team(team.team)
        return changed

    def drain_progress(self) -> dict[str, Progress]:
        """Progress of the learning behaviors since the last call, by name."""
        found = ((behavior.name, behavior.drain_progress()) for behavior in self.values())
        return {name: progress for name, progress in found if progress is not None}

    def _has_timed_out(self, name: str) -> bool:
        since = self._absent_since.get(name)
        return since is not None and self._is_too_long_ago(since)

    def _is_too_long_ago(self, then: float) -> bool:
        return time.monotonic() - then >= self._absence_timeout_s

    def _require_room(self, name: str) -> None:
        """Raises UserError where the default settings serve too many behaviors: each costs networks and a file."""
        unlisted = [other for other in self._by_name if other not in self._listed]
        if name not in self._listed and len(unlisted) >= MAX_UNLISTED:
            raise UserError(
                f"behavior {quoted(name)}: expected at most {MAX_UNLISTED} behaviors that only default_settings "
                "serves; list those that are meant under 'behaviors'"
            )


def _require_few_actions(behavior_id: str, spec: BehaviorSpec) -> None:
    """Raises UserError for more actions than networks are made for, before any is made."""
    actions = spec.action_spec
    if (size := actions.continuous_size + actions.mask_size) > MAX_ACTIONS:
        raise UserError(
            f"behavior {quoted(behavior_id)}: expected at most {MAX_ACTIONS} actions, continuous ones and choices of "
            f"all branches, got {size}"
        )


def _each_once(pending: list[tuple[int, str, Behavior]]) -> list[Behavior]:
    return list({behavior.name: behavior for _, _, behavior in pending}.values())


def _largest_group(batch: StepBatch | None) -> int:
    """The most agents of one group that wait for an action; 1 where there are no groups."""
    if batch is None:
        return 1
    groups = batch.group_ids[batch.num_terminal :]
    return int(np.unique(groups[groups != 0], return_counts=True)[1].max(initial=1))
