"""All behaviors of a run, and their presence in simulators."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Set, ValuesView

import torch

from trainer_service.errors import OutOfMemory, UserError
from trainer_service.running.behaviors.behavior import Behavior
from trainer_service.running.collection.router import BehaviorId, EnvSteps
from trainer_service.running.curriculum import Progress
from trainer_service.running.runs.checkpoint import spec_mismatch
from trainer_service.running.runs.files import SaveError
from unity_bridge.names import same_folder
from unity_bridge.specs import BehaviorSpec
from unity_bridge.untrusted_text import quoted

_logger = logging.getLogger(__name__)

MAX_UNLISTED = 64
"""The most behaviors that the configuration does not list."""

UNLISTED_SHARE = 4
"""The networks of all unlisted behaviors may use one part in ``UNLISTED_SHARE`` of the free memory."""

MOST_UNLISTED_BYTES = 2**30
"""The most bytes of these networks: creating a gigabyte takes a second, in which no simulator is served."""

MAX_LOGGED_BEHAVIORS = 500
"""The most log entries for new behaviors, since a loop of connecting simulators must not fill the log."""

_MAX_DIFFERENCE = 500
"""Quoted characters of a difference: a list of branches can be very long."""


class Behaviors(Mapping[str, Behavior]):
    """The behaviors of a run, by name. Each is created when a source of experience first declares it.

    All sides of a behavior share it. A source is the number of a simulator of this process, or of a rollout worker.
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
        """Initializes an empty registry.

        Args:
            create: makes a behavior from its name, its spec and its group size, as far as known.
            listed: names in the configuration. These are always created, other names up to ``MAX_UNLISTED``.
            absence_timeout_s: seconds that the run waits for a behavior that no simulator has.
            memory_need: returns the bytes of the networks that ``create`` makes, from the same arguments.
            available_memory: returns the available bytes for networks.
            source: the word for a source in messages.
            env_steps: the environment steps of the run, counted by sources.
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
        """The first source that declared each behavior."""
        self._memory_needs: dict[str, int] = {}
        """Bytes of each behavior's networks."""
        self._present: dict[int, set[BehaviorId]] = {}
        """The behavior ids of each connected source's agents."""
        self._absent_since: dict[str, float] = {}
        """Time at which the last source of a behavior left, by ``time.monotonic``."""
        self._ids_absent_since: dict[BehaviorId, float] = {}
        """Time at which the last source with agents of a behavior id lost them."""
        self._logged_unfinished: list[str] = []
        self._has_turn_passed = False
        """Whether the learning side changed because a behavior was forgotten."""
        self._has_self_play = False
        self._without_opponents: set[str] = set()
        """Behaviors under self-play that were warned about missing opponents."""

    def __getitem__(self, name: str) -> Behavior:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def values(self) -> ValuesView[Behavior]:
        """The behaviors. Overridden since ``Mapping.values`` looks up each name, at every tick."""
        return self._by_name.values()

    @property
    def finished(self) -> bool:
        """Whether every behavior has used its step budget, or has been absent from all simulators too long."""
        return not self.unfinished and bool(self.awaited)

    @property
    def unfinished(self) -> list[str]:
        """Names of the behaviors that the run continues for."""
        return [name for name, each in self.awaited.items() if not each.finished]

    @property
    def awaited(self) -> Mapping[str, Behavior]:
        """The behaviors that the run waits for, without behaviors that were absent from all simulators too long."""
        if not self._absent_since:
            return self  # the usual case
        return {name: each for name, each in self._by_name.items() if not self._has_timed_out(name)}

    def is_absent(self, name: str) -> bool:
        """Whether the behavior has left all simulators."""
        return name in self._absent_since

    def declare(
        self, source: int, behavior_id: BehaviorId, spec: BehaviorSpec, group_size: int = 1
    ) -> Behavior:
        """Creates the behavior, or checks that a known one has the same spec. Returns the behavior.

        group_size: agents in the largest known group.

        Raises:
            UserError: The configuration has no settings for it, there are too many behaviors, its networks are too
                large, its folder is another behavior's, or its spec differs from an earlier declaration. For a behavior
                that the configuration does not list, also if files cannot be written or memory runs out.
            SaveError: The files of a listed behavior cannot be written.
            OutOfMemory, torch.OutOfMemoryError: There is not enough memory for a listed behavior.
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
        """Forgets all behaviors of a source that left."""
        self.keep(source, frozenset())
        self._present.pop(source, None)

    def forget_unused(self) -> list[Behavior]:
        """Forgets and returns the behaviors without a source and without experience.

        So a source's declaration binds later sources only if there is experience from it.
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
        """Forgets all behavior ids of a source except these."""
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
        """Names of the behaviors of a source's agents."""
        return frozenset(behavior_id.name for behavior_id in self._present.get(source, ()))

    def log_unfinished(self) -> None:
        """Logs, once, which behaviors the run continues for after some behaviors have used their step budgets."""
        if len(self) < 2 or not any(behavior.finished for behavior in self._by_name.values()):
            return
        unfinished = self.unfinished
        if unfinished == self._logged_unfinished:
            return
        self._logged_unfinished = unfinished
        for name in unfinished:
            behavior = self._by_name[name]
            _logger.info(
                "The run continues for '%s', which is at step %d of %d%s.",
                name, behavior.step, behavior.settings.max_steps,
                "; no simulator has it any more" if self.is_absent(name) else "",
            )  # fmt: skip

    def advance_turns(self) -> bool:
        """Takes snapshots, ends turns and draws opponents if due. Returns whether the learning side changed."""
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
        """Warns, once, if there is no opponent at the behavior's first summary, opponent swap or last step."""
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
        """Removes sides without agents, whose turns would never end. Returns whether the learning side changed."""
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
            each.name: Progress(used_share(each), each.returns.drain())
            for each in self.values()
            if each.learns
        }

    def _has_timed_out(self, name: str) -> bool:
        since = self._absent_since.get(name)
        return since is not None and self._is_too_long_ago(since)

    def _is_too_long_ago(self, then: float) -> bool:
        return time.monotonic() - then >= self._absence_timeout_s

    def _made(self, name: str, spec: BehaviorSpec, group_size: int) -> Behavior:
        """Creates a behavior. If memory or disk is insufficient for an unlisted one, only its simulator is refused."""
        try:
            return self._create(name, spec, group_size)
        except (SaveError, OutOfMemory, torch.OutOfMemoryError) as error:
            if name in self._listed:
                raise
            raise UserError(f"behavior {quoted(name)}: {str(error)[:_MAX_DIFFERENCE]}") from None

    def _require_room(self, name: str) -> None:
        """Raises UserError for a name with another behavior's folder, or for too many unlisted behaviors."""
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
        """Returns the bytes of a behavior's networks. Raises UserError if there is not enough memory."""
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


def used_share(behavior: Behavior) -> float:
    """Returns the used share of ``max_steps`` or of the budget of environment steps, the larger of the two."""
    return max(behavior.step / max(behavior.settings.max_steps, 1), behavior.env_steps.share)
