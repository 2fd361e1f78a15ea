"""All behaviors of a run, and whether simulators have them still."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, ValuesView

import torch

from trainer_service.behaviors.behavior import Behavior
from trainer_service.collection.env_steps import EnvSteps
from trainer_service.collection.router import BehaviorId
from trainer_service.curriculum import Progress
from trainer_service.errors import OutOfMemory, UserError
from trainer_service.runs.checkpoint import spec_mismatch
from trainer_service.runs.files import SaveError
from unity_bridge.names import same_folder
from unity_bridge.specs import BehaviorSpec
from unity_bridge.untrusted_text import quoted

_logger = logging.getLogger(__name__)

MAX_UNLISTED = 64
"""Behaviors that are made though the configuration does not name them."""

UNLISTED_SHARE = 4
"""Networks of all behaviors that the configuration does not name may take one part in so many of the free memory."""

MOST_UNLISTED_BYTES = 2**30
"""Most bytes of such networks: a gigabyte takes a second to make, in which nobody else is served."""

MAX_LOGGED_BEHAVIORS = 500
"""How often it is logged that a behavior was made; a loop of simulators that come and go must not fill the log."""

_MAX_DIFFERENCE = 500
"""Characters of a difference that are quoted: a list of branches alone could fill a book."""


class Behaviors(Mapping[str, Behavior]):
    """The behaviors of a run, by name. Each is made when a source of experience first declares it; its sides share it.

    A source is a simulator of this process, or a rollout worker, by its number.
    """

    def __init__(
        self,
        create: Callable[[str, BehaviorSpec, int], Behavior],
        *,
        listed: Iterable[str] = (),
        absence_timeout_s: float = math.inf,
        memory_need: Callable[[str, BehaviorSpec, int], int] = lambda name, spec, group_size: 0,
        available_memory: Callable[[], int] = lambda: sys.maxsize,
        source: str = "simulator",
        env_steps: EnvSteps | None = None,
    ) -> None:
        """Remembers how to make behaviors.

        Args:
            create: from a name, what its agents see and do, and how many are in a group, as far as is known.
            listed: names that the configuration has: these are always made, others up to ``MAX_UNLISTED``.
            absence_timeout_s: how long the run waits for a behavior that no simulator has any more.
            memory_need: bytes of the networks that ``create`` would make, from its arguments.
            available_memory: bytes that there are for networks.
            source: what a source is called in messages.
            env_steps: those of the run, which sources count.
        """
        self.env_steps = env_steps or EnvSteps()
        self._create = create
        self._listed = frozenset(listed)
        self._absence_timeout_s = absence_timeout_s
        self._memory_need = memory_need
        self._available_memory = available_memory
        self._source_word = source
        self._by_name: dict[str, Behavior] = {}
        self._declared_by: dict[str, int] = {}
        """The source that declared each behavior first."""
        self._memory_needs: dict[str, int] = {}
        """Bytes of each behavior's networks."""
        self._present: dict[int, set[BehaviorId]] = {}
        """The behavior ids of each source's agents, for as long as the source is there."""
        self._absent_since: dict[str, float] = {}
        """Time when the last source that had a behavior left, by ``time.monotonic``."""
        self._ids_absent_since: dict[BehaviorId, float] = {}
        """When the last source with agents of a behavior id lost them."""
        self._logged_unfinished: list[str] = []
        self._has_turn_passed = False
        """Whether another side learns since a behavior was forgotten."""
        self._has_self_play = False
        self._without_opponents: set[str] = set()
        """Behaviors under self-play of which a warning said that nobody plays against them."""

    def __getitem__(self, name: str) -> Behavior:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def values(self) -> ValuesView[Behavior]:
        """The behaviors. A mapping's own looks each up by its name, at every tick."""
        return self._by_name.values()

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
        self, source: int, behavior_id: BehaviorId, spec: BehaviorSpec, group_size: int = 1
    ) -> Behavior:
        """Makes the behavior, or checks that it is the one that is known; returns it.

        group_size: of the largest group, as far as is known.

        Raises:
            UserError: no settings for it, too many behaviors, networks that are too large, a folder that is another's,
                or not what another source declared; also files that cannot be written and too little memory, where the
                configuration does not name it.
            SaveError: files of a behavior that the configuration names cannot be written.
            OutOfMemory, torch.OutOfMemoryError: too little memory for a behavior that the configuration names.
        """
        name = behavior_id.name
        behavior = self._by_name.get(name)
        if behavior is None:
            self._require_room(name)
            need = self._require_memory(name, spec, group_size)
            behavior = self._by_name[name] = self._made(name, spec, group_size)
            self._memory_needs[name], self._declared_by[name] = need, source
        elif changed := spec_mismatch(behavior.spec, spec):
            raise UserError(
                f"behavior {quoted(name)} differs from what {self._source_word} {self._declared_by[name]} declared "
                f"before: {changed[:_MAX_DIFFERENCE]}"
            )
        if behavior.self_play is not None:
            self._has_self_play = True
            behavior.self_play.register_side(behavior_id.team)
        self._present.setdefault(source, set()).add(behavior_id)
        self._absent_since.pop(name, None)
        self._ids_absent_since.pop(behavior_id, None)
        return behavior

    def remove(self, source: int) -> None:
        """Forgets that a source which is gone had any behaviors."""
        self.keep(source, frozenset())
        self._present.pop(source, None)

    def forget_unused(self) -> list[Behavior]:
        """Forgets each behavior that no source has any more and that has no experience. Returns them.

        So what a source declared binds nobody after it, unless something was learned from it.
        """
        unused = [
            self._by_name[name] for name in self._absent_since if not self._by_name[name].has_experience
        ]
        for behavior in unused:
            for known in (self._by_name, self._declared_by, self._memory_needs, self._absent_since):
                known.pop(behavior.name)
            if behavior.self_play is not None:
                self._has_turn_passed |= behavior.self_play.leave()
        self._ids_absent_since = {
            behavior_id: since
            for behavior_id, since in self._ids_absent_since.items()
            if behavior_id.name in self._by_name
        }
        return unused

    def keep(self, source: int, behavior_ids: Set[BehaviorId]) -> None:
        """Forgets that a source has agents of any other behavior ids."""
        present = self._present.setdefault(source, set())
        if not (lost := present - behavior_ids):
            return
        present -= lost
        now = time.monotonic()
        still_there = set().union(*self._present.values())
        self._ids_absent_since |= dict.fromkeys(lost - still_there, now)
        names = {each.name for each in lost} - {each.name for each in still_there}
        self._absent_since |= dict.fromkeys(names, now)

    def names(self, source: int) -> frozenset[str]:
        """Names of the behaviors that a source has agents of."""
        return frozenset(behavior_id.name for behavior_id in self._present.get(source, ()))

    def log_unfinished(self) -> None:
        """Logs, once, which behaviors a run still waits for after others have used their step budgets."""
        if not any(behavior.finished for behavior in self._by_name.values()):
            return
        unfinished = self.unfinished
        if unfinished == self._logged_unfinished:
            return
        self._logged_unfinished = unfinished
        for name in unfinished:
            behavior = self._by_name[name]
            _logger.info(
                "The run goes on for '%s', which is at step %d of %d%s.",
                name, behavior.step, behavior.settings.max_steps,
                "; no simulator has it any more" if self.is_absent(name) else "",
            )  # fmt: skip

    def advance_turns(self) -> bool:
        """Takes snapshots, ends turns and draws opponents where due. Returns whether another side learns now."""
        if not self._has_self_play and not self._ids_absent_since:
            return False
        changes, self._has_turn_passed = [self._has_turn_passed], False
        players = [(each, each.self_play) for each in self.values() if each.self_play is not None]
        changes.append(self._remove_absent_sides())
        changes += [
            self_play.advance(each.step, each.learner.actor.weights, finished=each.finished)
            for each, self_play in players
        ]
        for each, self_play in players:
            self_play.choose_opponents(each.step)
            if self_play.is_alone and each.name not in self._without_opponents:
                self._warn_without_opponent(each)
        return any(changes)

    def _warn_without_opponent(self, behavior: Behavior) -> None:
        """Warns, once, where no opponent has come by the behavior's first summary, swap of opponents or last step."""
        settings, self_play = behavior.settings, behavior.settings.self_play
        if self_play is None or behavior.step < min(
            settings.summary_freq, max(self_play.swap_steps, 1), settings.max_steps
        ):
            return
        self._without_opponents.add(behavior.name)
        _logger.warning(
            "behavior '%s': self_play has no effect, as all agents are of one team after %d steps; expected two teams. "
            "Give each side a team id: '%s?team=0' and '%s?team=1' are two teams of one behavior (docs/self-play.md).",
            behavior.name, behavior.step, behavior.name, behavior.name,
        )  # fmt: skip

    def _remove_absent_sides(self) -> bool:
        """Removes sides without agents: their turns would never end. Returns whether another side learns now."""
        if not self._ids_absent_since:
            return False
        late = [absent for absent, since in self._ids_absent_since.items() if self._is_too_long_ago(since)]
        changed = False
        for absent in late:
            del self._ids_absent_since[absent]
            self_play = self._by_name[absent.name].self_play
            changed |= self_play is not None and self_play.remove_side(absent.team)
        return changed

    def drain_progress(self) -> dict[str, Progress]:
        """Progress of the learning behaviors since the last call, by name."""
        return {
            each.name: Progress(each.progress, each.returns.drain()) for each in self.values() if each.learns
        }

    def _has_timed_out(self, name: str) -> bool:
        since = self._absent_since.get(name)
        return since is not None and self._is_too_long_ago(since)

    def _is_too_long_ago(self, then: float) -> bool:
        return time.monotonic() - then >= self._absence_timeout_s

    def _made(self, name: str, spec: BehaviorSpec, group_size: int) -> Behavior:
        """A new behavior. Where an unlisted one finds no memory or disk, only its simulator is refused."""
        try:
            return self._create(name, spec, group_size)
        except (SaveError, OutOfMemory, torch.OutOfMemoryError) as error:
            if name in self._listed:
                raise
            raise UserError(f"behavior {quoted(name)}: {str(error)[:_MAX_DIFFERENCE]}") from None

    def _require_room(self, name: str) -> None:
        """Raises UserError where the default settings serve too many behaviors: each costs networks and a folder."""
        if other := same_folder(name, {*self._listed, *self._by_name}):
            raise UserError(
                f"behavior {quoted(name)}: expected a name that differs in more than case from {quoted(other)}, whose "
                "folder may be the same"
            )
        unlisted = [other for other in self._by_name if other not in self._listed]
        if name not in self._listed and len(unlisted) >= MAX_UNLISTED:
            raise UserError(
                f"behavior {quoted(name)}: expected at most {MAX_UNLISTED} behaviors that only default_settings "
                "serves; list those that are meant under 'behaviors'"
            )

    def _require_memory(self, name: str, spec: BehaviorSpec, group_size: int) -> int:
        """Returns the bytes of a behavior's networks. Raises UserError where there is no room for them."""
        need, available = self._memory_need(name, spec, group_size), self._available_memory()
        if name in self._listed:
            if need > available:
                raise UserError(
                    f"behavior {quoted(name)}: its networks and their optimizers need {need >> 20:,} MiB, expected at "
                    f"most the {available >> 20:,} MiB of memory that are free"
                )
            return need
        taken = sum(size for other, size in self._memory_needs.items() if other not in self._listed)
        most = min(MOST_UNLISTED_BYTES, (available + taken) // UNLISTED_SHARE)
        if taken + need > most:
            raise UserError(
                f"behavior {quoted(name)}: its networks and their optimizers need {need >> 20:,} MiB, expected at most "
                f"{max(most - taken, 0) >> 20:,} MiB for a behavior that only default_settings serves; list it under "
                "'behaviors' if it is meant"
            )
        return need
