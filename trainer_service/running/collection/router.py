"""The router of a process: the collectors of simulators' behavior ids."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from trainer_service.config import validate_behavior_name
from trainer_service.errors import UserError
from trainer_service.running.collection.collector import Collector
from trainer_service.running.collection.records import BehaviorTick, SampleBatch
from unity_bridge.server.bridge import Tick
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch
from unity_bridge.untrusted_text import quoted

_BEHAVIOR_ID = re.compile(r"(?P<name>[^?]*)(?:\?(?:.*&)?team=(?P<team>[0-9]+)(?:&.*)?)?", re.DOTALL)

Deliver = Callable[[SampleBatch], None]
"""A function that takes the experience that a tick completed."""

MAX_IDS = 256
"""The most behavior ids (names with team ids) of one simulator."""

MAX_ACTIONS = 65_536
"""The most actions of one behavior: continuous actions plus the choices of all branches."""

_MAX_TEAM_DIGITS = 9
"""Digits of a team id that fit with an agent id into a 64-bit number, see ``agent_keys``."""


class BehaviorId(NamedTuple):
    """A parsed behavior id: the name and the team id of ``Name?team=K``."""

    name: str
    team: int

    def in_words(self, spec: BehaviorSpec) -> str:
        """Returns ``Name?team=K``, followed by the members of a heterogeneous group."""
        members = ", ".join(f"{member.num_agents} x {member.behavior}" for member in spec.members)
        return f"{self.name}?team={self.team}" + (f" of {members} in a group" if members else "")


def parse_behavior_id(behavior_id: str) -> BehaviorId:
    """Parses ``Name?team=K``; the team id is 0 if left out.

    Raises:
        UserError: The name is not a valid folder name, or the team number has too many digits.
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
    return BehaviorId(match["name"], int(team))


@dataclass(slots=True, eq=False)
class EnvSteps:
    """The environment steps of a run, over all simulators and starts.

    An environment step is one completed step of one copy of the task. It advances all agents of that copy, of all
    behaviors and teams.
    """

    budget: int | None = None
    """Environment steps after which the run ends; None without a budget."""

    taken: int = 0

    @property
    def used_up(self) -> bool:
        """Whether the budget is used up."""
        return self.budget is not None and self.taken >= self.budget

    @property
    def share(self) -> float:
        """The used share of the budget, at most 1; 0 without a budget."""
        return 0.0 if self.budget is None else min(self.taken / self.budget, 1.0)


class Router:
    """Routes a simulator's ticks by behavior id to collectors, and completed experience to its receivers."""

    def __init__(self, env_steps: EnvSteps | None = None) -> None:
        """env_steps: counts the simulators' environment steps."""
        self.env_steps = env_steps or EnvSteps()
        self._asked: dict[int, int] = {}
        """Environment steps that each simulator makes with the last requested actions."""
        self._ids: dict[int, dict[str, tuple[BehaviorId, Collector, Deliver]]] = {}
        """Behavior ids of each connected simulator, with their collectors."""
        self._collectors: dict[str, Collector] = {}
        """Collectors of the behaviors that simulators have now."""
        self.declared = 0
        """Number of behaviors that simulators declared. A behavior that left and was declared again counts again."""
        self._pending_replies: list[tuple[int, str, Collector]] = []

    def check(self, simulator: int, behavior_id: str, spec: BehaviorSpec) -> BehaviorId:
        """Checks the declaration of a behavior, and returns its parsed id.

        Raises:
            UserError: The name is invalid, two ids mean the same, or there are too many ids or actions.
        """
        declared = parse_behavior_id(behavior_id)
        ids = self._ids.get(simulator, {})
        for other, (known, _, _) in ids.items():
            if known == declared and other != behavior_id:
                raise UserError(
                    f"behavior id {quoted(behavior_id)}: expected one id for each name and team, {quoted(other)} "
                    "means the same"
                )
        if len(ids) >= MAX_IDS and behavior_id not in ids:
            raise UserError(f"behavior id {quoted(behavior_id)}: expected at most {MAX_IDS} of one simulator")
        _require_few_actions(behavior_id, spec)
        return declared

    def add(self, simulator: int, behavior_id: str, collector: Collector, deliver: Deliver) -> None:
        """Sends the simulator's ticks of this id to a collector, and its completed experience to ``deliver``."""
        declared = parse_behavior_id(behavior_id)
        self._ids.setdefault(simulator, {})[behavior_id] = declared, collector, deliver
        self.declared += declared.name not in self._collectors
        self._collectors[declared.name] = collector

    def observe(self, tick: Tick) -> None:
        """Sends a tick to its collectors, delivers the completed experience, and stores the pending replies.

        Its exceptions concern this simulator only. ``remove`` undoes all changes of a failed call.
        """
        ids = self._ids.get(tick.simulator, {})
        waiting = 0
        for behavior_id, batch in tick.steps.items():
            declared, collector, deliver = ids[behavior_id]
            steps = BehaviorTick(tick.simulator, declared.team, batch, behavior_id, tick.messages)
            deliver(collector.observe(steps, tick.replaced.get(behavior_id, 0)))
            self._pending_replies.append((tick.simulator, behavior_id, collector))
            waiting += len(batch) - batch.num_terminal
        # Last, since the steps that use up the budget are learned from. A copy that resets in a separate exchange
        # (AutoresetMode.NEXT_STEP) requests no action, and makes no step.
        self.env_steps.taken += self._asked.get(tick.simulator, 0)
        self._asked[tick.simulator] = min(tick.num_areas, int(waiting))

    def act(self) -> dict[int, dict[str, ActionBatch]]:
        """Returns actions of all waiting agents, by simulator and behavior id, with one forward pass per behavior."""
        pending, self._pending_replies = self._pending_replies, []
        decided: dict[Collector, Iterator[ActionBatch]] = {}
        replies: dict[int, dict[str, ActionBatch]] = {}
        for simulator, behavior_id, collector in pending:
            if collector not in decided:
                decided[collector] = iter(collector.act())
            replies.setdefault(simulator, {})[behavior_id] = next(decided[collector])
        return replies

    def drop(self, simulator: int) -> None:
        """Forgets the agents of a simulator that was reset: unfinished segments and pending actions."""
        for collector in self._collectors.values():
            collector.drop(simulator)
        self._asked.pop(simulator, None)
        self._pending_replies = [each for each in self._pending_replies if each[0] != simulator]

    def remove(self, simulator: int) -> None:
        """Forgets a simulator that left, with its agents and behaviors."""
        self.drop(simulator)
        self._ids.pop(simulator, None)
        names = {declared.name for ids in self._ids.values() for declared, _, _ in ids.values()}
        self._collectors = {name: each for name, each in self._collectors.items() if name in names}

    def behavior_ids(self) -> frozenset[BehaviorId]:
        """The behavior ids of the simulators' present agents."""
        return frozenset(declared for ids in self._ids.values() for declared, _, _ in ids.values())


def largest_group(batch: StepBatch | None) -> int:
    """Returns the most waiting agents of one group; 1 without groups."""
    if batch is None:
        return 1
    groups = batch.group_ids[batch.num_terminal :]
    return int(np.unique(groups[groups != 0], return_counts=True)[1].max(initial=1))


def _require_few_actions(behavior_id: str, spec: BehaviorSpec) -> None:
    """Raises UserError for more actions than networks support, before any network is created."""
    actions = spec.action_spec
    if (size := actions.continuous_size + actions.mask_size) > MAX_ACTIONS:
        raise UserError(
            f"behavior {quoted(behavior_id)}: expected at most {MAX_ACTIONS} actions, continuous ones and choices of "
            f"all branches, got {size}"
        )
