"""Assembly of interleaved ticks into one unbroken trajectory per agent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agent_indices import GroupMembership
from trainer_service.learning.rollout.agents import (
    MAX_AGENTS,
    AgentRows,
    FreeNumbers,
    Keys,
    TooManyAgents,
    agent_keys,
    is_time_to_check,
    vanished_agents,
)
from trainer_service.learning.rollout.group_returns import GroupTick
from trainer_service.learning.rollout.group_trajectories import GroupTrajectoryAssembler
from trainer_service.learning.rollout.trajectories import GroupIndex, Trajectories
from unity_bridge.arrays import Rows, sparse_array
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import Observation, StepBatch, as_floats

_Positions = slice | NDArray[np.intp]
"""Positions of rows in a tick, as indices or as a slice that reaches to its end."""

_FIRST_COLUMNS = 128
_FIRST_ROWS = 16
_NO_NUMBER = np.int64(-1)


@dataclass(frozen=True, slots=True, eq=False)
class Decisions:
    """A policy's decisions for M agents, as stored for learning."""

    continuous_actions: NDArray[np.float32]
    """As sampled. Shape [M, continuous size]."""

    discrete_actions: NDArray[np.int64]
    """Shape [M, branches]."""

    log_probs: NDArray[np.float32]
    """Joint log-probability of each row's action. Shape [M]."""

    memories: NDArray[np.float32]
    """Each agent's next memory. Shape [M, memory size]."""


@dataclass(frozen=True, slots=True, eq=False)
class Episodes:
    """Episodes that ended in one tick."""

    returns: NDArray[np.float64]
    """Sum of the agent's own rewards, not normalized. Shape [E]."""

    lengths: NDArray[np.int64]
    """Number of actions. Shape [E]."""

    rows: NDArray[np.intp]
    """Positions of their terminal rows in the tick. Shape [E]."""


class Observed(NamedTuple):
    """The results of one tick."""

    waiting: Rows
    """Rows of the agents that wait for an action, in message order. Shape [M]."""

    transitions: int
    """Number of actions whose reward and next observation arrived."""

    trajectories: Trajectories | None
    """Segments that reached their end or the horizon in this tick."""

    episodes: Episodes | None

    vanished: Keys | None = None
    """Agents that count as vanished since they were silent too long, as ``agent_keys``. Not in ``episodes``."""


class _FinalState(NamedTuple):
    """The final state of P segments, after their last step."""

    observations: tuple[Observation, ...]
    allowed_actions: NDArray[np.bool_]
    memories: NDArray[np.float32]
    ticks: NDArray[np.int64]
    earned: NDArray[np.float64]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiting:
    """The waiting agents of a behavior id in its last tick."""

    ids: bytes
    """Their agent ids, in message order."""

    table: tuple[Keys, Rows]
    """All agents of the behavior id at that tick. The tuple is replaced whenever an agent joins or leaves."""

    rows: Rows
    index: slice | Rows
    """The index of their rows: see ``as_index``."""


class TrajectoryAssembler:
    """Assembles the ticks of many simulators into trajectories, without a Python loop over agents.

    Each agent has a row of preallocated arrays with its unfinished segment. Step t of row r is in cell t·rows + r. So
    an agent that leaves at once uses memory for its first steps only, however long other segments are. In the usual
    tick, the agents are the same as in the last tick and their rows are consecutive, so slices suffice.

    A segment is returned when its episode ends or when it has ``horizon`` steps, whichever is first. If the episode
    continues, a new segment starts with the last segment's final observation.

    A reward belongs to the previous action. So the reward in an agent's first message is dropped, like the terminal
    row of an agent that never acted.

    An agent's memory is zero at the start of an episode, and continues over the episode's segments. It is dropped with
    the agent's simulator.

    For learners of groups, the segments of a group are cut and returned together, each when its agent reports.

    An agent that its simulator does not mention for long (see agents.py) counts as vanished. Its segment is returned
    without the last action, whose outcome is unknown, and is truncated at the agent's last observation.
    """

    def __init__(
        self,
        spec: BehaviorSpec,
        horizon: int,
        memory_size: int = 0,
        *,
        by_group: bool = False,
        first_agent: int = 0,
    ) -> None:
        """
        Args:
            spec: the behavior as its learner observes it.
            horizon: the most steps of a segment.
            memory_size: floats of an agent's memory between decisions.
            by_group: whether the segments of a group are cut and returned together.
            first_agent: the smallest of ``Trajectories.agents``.
        """
        self._spec = spec
        self._horizon = horizon
        self._memory_size = memory_size
        self._agents = AgentRows()
        self._free_numbers = FreeNumbers(first_agent)
        self._columns = min(horizon, _FIRST_COLUMNS)
        self._untouched = True
        """Whether no agent has acted yet."""
        self._groups = GroupTrajectoryAssembler() if by_group else None
        self._ticks_of: dict[int, dict[int, int]] = {}
        """Number of ticks, by simulator and team id."""
        self._clocks: GroupTick | None = None
        """The clocks of the groups in ``observe``."""
        self._tick = 0
        """The tick of the simulator and team id in ``observe``."""
        self._waiting: dict[int, _Waiting] = {}
        """The waiting agents, by team key."""
        self._last_assigned: tuple[Rows, slice | Rows] = (np.empty(0, np.int64), slice(0, 0))
        """Rows and index of the last tick's waiting agents."""
        self._longest = 0
        """Upper limit of the lengths of unfinished segments."""
        self._observations: list[Observation] = [np.empty(0, np.float32) for _ in spec.observation_specs]
        self._allocate(_FIRST_ROWS)

    def observe(
        self,
        simulator: int,
        team: int,
        batch: StepBatch,
        membership: GroupMembership | None = None,
        clocks: GroupTick | None = None,
    ) -> Observed:
        """Writes rewards and episode ends to the previous action of each agent. Returns the tick's results.

        membership: the group and index of each row, if segments are returned by group. clocks: of the groups; None
        if no row is in a group.

        Raises:
            TooManyAgents: The simulator has too many agents. Only ``drop`` may be called for it then.
        """
        ticks = self._ticks_of.setdefault(simulator, {})
        ticks[team] = self._tick = ticks.get(team, 0) + 1
        self._clocks = clocks
        team_key = _team_key(simulator, team)
        ended = batch.num_terminal
        segments: list[Trajectories | None] = []
        episodes = None
        transitions = 0
        if ended:
            keys = agent_keys(batch.agent_ids, team)
            transitions, segment, episodes = self._end_episodes(simulator, team_key, keys, batch, ended)
            segments.append(segment)
        waiting, index = self._assign(team_key, team, batch.agent_ids[ended:])
        self._asked[index] = self._tick
        pending = self._pending[index]
        acted = int(np.count_nonzero(pending))
        if acted:
            transitions += acted
            rows = waiting
            at: _Positions = slice(ended, None)
            if acted < len(waiting):
                chosen = np.flatnonzero(pending)
                rows = index = waiting[chosen]
                at = ended + chosen
            self._write_rewards(rows, index, batch, at)
            if self._groups is None or membership is None:
                segments.append(self._cut_full(rows, batch, at))
            else:
                segments += self._cut_groups(self._groups, simulator, membership.groups[at], rows, batch, at)
        if self._groups is not None and membership is not None:
            self._groups.join(simulator, waiting, membership.groups[ended:])
            self._agent_indices[waiting] = membership.agent_indices[ended:]
            self._earned_before[waiting] = np.nan if clocks is None else clocks.earned_before[ended:]
        vanished = None
        known = len(self._agents.known(team_key)[0])
        if is_time_to_check(self._tick, known, len(waiting)):
            vanished, segment = self._remove_vanished(simulator, team_key, len(waiting))
            segments.append(segment)
        if self._agents.in_use > MAX_AGENTS:
            self._require_at_most_max_agents(simulator)
        found = [segment for segment in segments if segment is not None]
        trajectories = Trajectories.concatenate(found) if found else None
        if trajectories is not None and trajectories.agents is not None:
            self._free_numbers.give_back(trajectories.agents[trajectories.ended])
        return Observed(waiting, transitions, trajectories, episodes, vanished)

    def memories(self, waiting: Rows) -> NDArray[np.float32]:
        """Returns the memories of these rows' agents. Shape [M, memory size]."""
        if not self._memory_size:
            return np.empty((len(waiting), 0), np.float32)
        remembered: NDArray[np.float32] = self._memory[waiting]
        return remembered

    def acted(
        self,
        waiting: Rows,
        observations: tuple[Observation, ...],
        allowed_actions: NDArray[np.bool_],
        decisions: Decisions,
    ) -> None:
        """Stores the decisions of the waiting rows of ``observe``. All arguments have M rows."""
        if len(waiting) == 0:
            return
        rows, index = self._last_assigned
        if waiting is not rows:  # agents of several simulators
            index = as_index(waiting)
        if self._longest >= self._columns:
            self._longest = int(self._lengths.max())
            if int(self._lengths[index].max()) >= self._columns:
                self._widen()
        self._longest += 1
        cells = self._lengths[index] * len(self._lengths) + waiting
        for sensor, observation in enumerate(observations):
            self._remember(sensor, cells, observation)
        self._untouched = False
        if self._spec.action_spec.continuous_size:
            self._continuous[cells] = decisions.continuous_actions
        if self._spec.action_spec.discrete_branches:
            self._discrete[cells] = decisions.discrete_actions
            self._allowed[cells] = allowed_actions
        self._log_probs[cells] = decisions.log_probs
        if self._groups is not None:
            # Other simulators may have been observed in between.
            self._ticks[cells] = self._asked[index]
            self._earned[cells] = self._earned_before[index]
        if self._memory_size:
            self._memories[cells] = self._memory[index]
            self._memory[index] = decisions.memories
        self._lengths[index] += 1
        self._pending[index] = True

    def drop(self, simulator: int) -> None:
        """Forgets a simulator that left. Its unfinished episodes are dropped."""
        for team in self._ticks_of.pop(simulator, {}):
            rows = self._agents.drop(_team_key(simulator, team))
            self._clear(rows[rows < len(self._lengths)])
            self._waiting.pop(_team_key(simulator, team), None)
        if self._groups is not None:
            self._free_numbers.give_back(self._groups.drop(simulator))
        self._fit_rows()

    def tidy(self) -> None:
        """Releases memory if most rows are free. Rows that ``observe`` returned are invalid afterwards."""
        moved = self._agents.compact()
        if moved is None:
            return
        had, have = moved
        to, of = self._filled_cells(have, self._lengths[had]), self._filled_cells(had, self._lengths[had])
        for store in self._stores_of_steps():
            store[to] = store[of]
        for name in _OF_AGENTS:
            column = getattr(self, name)
            column[have] = column[had]
        self._numbers[had] = _NO_NUMBER
        if self._groups is not None:
            self._groups.move(had, have)
        self._clear(had)
        self._fit_rows()

    def _end_episodes(
        self, simulator: int, team_key: int, keys: NDArray[np.int64], batch: StepBatch, ended: int
    ) -> tuple[int, Trajectories | None, Episodes | None]:
        found = self._agents.find(team_key, keys[:ended])
        ours = found[found >= 0]
        known = np.flatnonzero(found >= 0)
        known = known[self._pending[found[known]]]
        segment, episodes = None, None
        if len(known):
            rows = found[known]
            self._write_rewards(rows, rows, batch, known)
            episodes = Episodes(self._returns[rows], self._episode_lengths[rows], known)
            segment = self._hand_out(
                rows, self._seen(rows, batch, known), batch.terminated[known], ended=True
            )
        if self._groups is not None:
            segment = self._groups.complete(segment, self._groups.leave(simulator, ours))
        self._clear(ours)
        # An agent that continues in the same message keeps its row. Other agents may never return.
        staying = np.zeros(len(self._lengths) + 1, np.bool_)  # the last one for new agents, whose row is −1
        staying[self._agents.find(team_key, keys[ended:])] = True
        gone = (found >= 0) & ~staying[found]
        if gone.any():
            self._agents.release(team_key, keys[:ended][gone])
        return len(known), segment, episodes

    def _remove_vanished(
        self, simulator: int, team_key: int, mentioned: int
    ) -> tuple[Keys | None, Trajectories | None]:
        """Forgets vanished agents. Returns their keys and segments."""
        keys, rows = self._agents.known(team_key)
        gone = vanished_agents(self._tick - self._asked[rows], mentioned)
        if not gone.any():
            return None, None
        keys, rows = keys[gone], rows[gone]
        # The last action's outcome is unknown, so the segment ends with the observation of that action.
        acting = rows[self._lengths[rows] > 1]
        self._lengths[acting] -= 1
        last = self._lengths[acting]
        segment = None
        if len(acting):
            cells = last * len(self._lengths) + acting
            seen = _FinalState(
                tuple(store[cells] for store in self._observations),
                self._allowed[cells],
                self._memories[cells],
                self._ticks[cells] if self._groups is not None else last,
                self._earned[cells] if self._groups is not None else np.empty(0),
            )
            segment = self._hand_out(acting, seen, np.zeros(len(acting), np.bool_), ended=True)
        if self._groups is not None:
            segment = self._groups.complete(segment, self._groups.leave(simulator, rows))
        self._clear(rows)
        self._agents.release(team_key, keys)
        return keys, segment

    def _require_at_most_max_agents(self, simulator: int) -> None:
        agents = sum(
            len(self._agents.known(_team_key(simulator, team))[0]) for team in self._ticks_of[simulator]
        )
        if agents > MAX_AGENTS:
            raise TooManyAgents(f"expected at most {MAX_AGENTS} agents in one simulator, got {agents}")

    def _assign(self, team_key: int, team: int, agent_ids: NDArray[np.int64]) -> tuple[Rows, slice | Rows]:
        """Returns the rows of the waiting agents, assigned if new, and their index."""
        ids, last = agent_ids.tobytes(), self._waiting.get(team_key)
        if last is None or last.ids != ids or last.table is not self._agents.known(team_key):
            rows = self._agents.assign(team_key, agent_keys(agent_ids, team))
            self._fit_rows()
            last = _Waiting(ids, self._agents.known(team_key), rows, as_index(rows))
            self._waiting[team_key] = last
        self._last_assigned = last.rows, last.index
        return self._last_assigned

    def _write_rewards(self, rows: Rows, index: slice | Rows, batch: StepBatch, at: _Positions) -> None:
        """Writes the reward of the last action of each row.

        index: the rows as an index, see ``as_index``. at: their positions in the batch.
        """
        cells = (self._lengths[index] - 1) * len(self._lengths) + rows
        rewards = batch.rewards[at]
        self._rewards[cells] = rewards
        self._group_rewards[cells] = batch.group_rewards[at]
        self._returns[index] += rewards
        self._episode_lengths[index] += 1
        self._pending[index] = False

    def _cut_full(self, rows: Rows, batch: StepBatch, at: _Positions) -> Trajectories | None:
        """Cuts the segments that have reached the horizon. at: positions of the rows in the batch."""
        if self._longest < self._horizon:
            return None
        self._longest = int(self._lengths.max())
        full = np.flatnonzero(self._lengths[rows] == self._horizon)
        return self._cut(rows[full], batch, full + at.start if isinstance(at, slice) else at[full])

    def _cut(self, rows: Rows, batch: StepBatch, at: NDArray[np.intp]) -> Trajectories | None:
        """Cuts and returns segments of agents whose episodes continue."""
        if not len(rows):
            return None
        return self._hand_out(rows, self._seen(rows, batch, at), np.zeros(len(rows), np.bool_), ended=False)

    def _seen(self, rows: Rows, batch: StepBatch, at: NDArray[np.intp]) -> _FinalState:
        return _FinalState(
            tuple(observation[at] for observation in batch.observations),
            batch.allowed_actions[at],
            self._memory[rows],
            np.full(len(rows), self._tick),
            np.full(len(rows), np.nan) if self._clocks is None else self._clocks.earned[at],
        )

    def _cut_groups(
        self,
        groups: GroupTrajectoryAssembler,
        simulator: int,
        keys: Keys,
        rows: Rows,
        batch: StepBatch,
        at: _Positions,
    ) -> list[Trajectories | None]:
        """Cuts the segments of agents that changed their group, and of each group with a segment at the horizon.

        keys: of the rows' present groups.
        """
        if isinstance(at, slice):
            at = np.arange(at.start, len(batch))
        moved = groups.moved(simulator, rows, keys)
        segments = [self._cut(rows[moved], batch, at[moved])]
        segments[0] = groups.complete(segments[0], groups.leave(simulator, rows[moved]))
        rows, at = rows[~moved], at[~moved]
        full = np.unique(groups[rows[self._lengths[rows] == self._horizon]])
        due = groups.due(rows)
        if len(full) or due.any():
            cut = due | np.isin(groups[rows], full)
            segment = self._cut(rows[cut], batch, at[cut])
            acting = np.flatnonzero(self._pending)
            segments.append(groups.complete(segment, groups.cut(rows[cut], full, acting), cut=True))
        return segments

    def _hand_out(
        self, rows: Rows, seen: _FinalState, terminated: NDArray[np.bool_], *, ended: bool
    ) -> Trajectories:
        """Returns copies of these rows' finished segments, concatenated, and clears the rows."""
        lengths = self._lengths[rows]
        cells = self._filled_cells(rows, lengths)

        def steps(store: NDArray[Any]) -> NDArray[Any]:
            return store.take(cells, axis=0)

        numbers = self._numbers[rows]
        begun = numbers == _NO_NUMBER
        numbers[begun] = self._free_numbers.take(int(np.count_nonzero(begun)))
        segments = Trajectories(
            observations=tuple(steps(store) for store in self._observations),
            continuous_actions=steps(self._continuous),
            discrete_actions=steps(self._discrete),
            allowed_actions=steps(self._allowed),
            log_probs=steps(self._log_probs),
            memories=steps(self._memories),
            rewards=steps(self._rewards),
            group_rewards=steps(self._group_rewards),
            lengths=lengths,
            final_observations=seen.observations,
            final_allowed_actions=seen.allowed_actions,
            final_memories=seen.memories,
            terminated=terminated,
            group_index=None
            if self._groups is None
            else GroupIndex(
                steps(self._ticks),
                seen.ticks,
                self._groups[rows],
                self._agent_indices[rows],
                steps(self._earned),
                seen.earned,
            ),
            ended=np.full(len(rows), ended),
            begun=begun,
            agents=numbers,
        )
        self._numbers[rows] = _NO_NUMBER if ended else numbers
        self._lengths[rows] = 0
        return segments

    def _clear(self, rows: Rows) -> None:
        numbers = self._numbers[rows]
        self._free_numbers.give_back(numbers[numbers != _NO_NUMBER])
        self._numbers[rows] = _NO_NUMBER
        self._lengths[rows] = 0
        self._episode_lengths[rows] = 0
        self._returns[rows] = 0.0
        self._pending[rows] = False
        if self._memory_size:
            self._memory[rows] = 0.0

    def _remember(self, sensor: int, cells: NDArray[np.int64], observation: Observation) -> None:
        """Stores observations. Bytes stay bytes as long as the sensor sends bytes only."""
        stored = self._observations[sensor]
        if stored.dtype != observation.dtype:
            if observation.dtype == np.uint8 and self._untouched:
                stored = sparse_array(stored.shape, np.uint8)
            elif observation.dtype == np.uint8:
                observation = as_floats(observation)
            else:
                stored = as_floats(stored)
            self._observations[sensor] = stored
        stored[cells] = observation

    def _filled_cells(self, rows: Rows, lengths: NDArray[np.int64]) -> NDArray[np.int64]:
        """Cells of the steps of these rows, in time order within each row, row after row. Shape [sum of lengths]."""
        ends = np.cumsum(lengths)
        steps = np.arange(int(lengths.sum())) - np.repeat(ends - lengths, lengths)
        cells: NDArray[np.int64] = steps * len(self._lengths) + np.repeat(rows, lengths)
        return cells

    def _stores_of_steps(self) -> list[NDArray[Any]]:
        """All arrays with a cell for each step, except unused ones."""
        stores = [getattr(self, name) for name in _OF_STEPS]
        return [*self._observations, *(store for store in stores if len(store))]

    def _allocate(self, rows: int) -> None:
        actions = self._spec.action_spec

        def steps(*shape: int, kind: Any = np.float32) -> NDArray[Any]:
            return sparse_array((self._columns * rows, *shape), kind)

        self._observations = [
            steps(*sensor.shape, kind=stored.dtype)
            for sensor, stored in zip(self._spec.observation_specs, self._observations, strict=True)
        ]
        self._continuous = steps(actions.continuous_size)
        self._discrete = steps(actions.discrete_size, kind=np.int64)
        self._allowed = steps(actions.mask_size, kind=np.bool_)
        self._log_probs = steps()
        self._memories = steps(self._memory_size)
        self._rewards = steps()
        self._group_rewards = steps()
        self._ticks = steps(kind=np.int64) if self._groups is not None else np.empty(0, np.int64)
        self._earned = steps(kind=np.float64) if self._groups is not None else np.empty(0)
        self._asked = np.zeros(rows, np.int64)
        """Tick of each agent's last request."""
        self._agent_indices = np.zeros(rows, np.int64)
        self._earned_before = np.zeros(rows)
        """The clock of each agent's group at its last request."""
        self._lengths = np.zeros(rows, np.int64)
        """Number of actions in the unfinished segment."""
        self._episode_lengths = np.zeros(rows, np.int64)
        self._returns = np.zeros(rows, np.float64)
        self._numbers = np.full(rows, _NO_NUMBER)
        """Numbers of agents with a cut segment in this episode, see ``Trajectories.agents``."""
        self._pending = np.zeros(rows, np.bool_)
        """Whether an action was sent whose outcome is not known yet."""
        self._memory = np.zeros((rows, self._memory_size), np.float32)
        """Each agent's memory after its last decision."""

    def _fit_rows(self) -> None:
        """Allocates rows for new agents, or releases the rows of agents that left."""
        rows, needed = len(self._lengths), self._agents.capacity
        if needed > rows:
            self._resize(max(needed, 2 * rows))
        elif rows > _FIRST_ROWS and 4 * needed < rows:
            self._resize(max(_FIRST_ROWS, 2 * needed))

    def _widen(self) -> None:
        """Adds columns. Memory grows with the segments, up to the horizon."""
        self._columns = min(self._horizon, 2 * self._columns)
        self._resize(len(self._lengths))

    def _resize(self, rows: int) -> None:
        """Resizes to ``rows`` rows. Copies filled cells only: the system allocates no memory for untouched cells."""
        before = {name: getattr(self, name) for name in _ARRAYS}
        observations, stores = self._observations, self._stores_of_steps()
        kept = min(rows, len(before["_lengths"]))
        lengths, numbers = before["_lengths"][:kept], np.arange(kept)
        of = self._filled_cells(numbers, lengths)
        try:
            self._allocate(rows)
        except MemoryError:
            self._observations = observations
            for name, old in before.items():
                setattr(self, name, old)
            raise
        for name in _OF_AGENTS:
            getattr(self, name)[:kept] = before[name][:kept]
        to = self._filled_cells(numbers, lengths)
        for new, old in zip(self._stores_of_steps(), stores, strict=True):
            new[to] = old[of]


_OF_STEPS = (
    "_continuous", "_discrete", "_allowed", "_log_probs", "_memories", "_rewards", "_group_rewards", "_ticks",
    "_earned",
)  # fmt: skip
_OF_AGENTS = (
    "_asked",
    "_agent_indices",
    "_earned_before",
    "_lengths",
    "_episode_lengths",
    "_returns",
    "_numbers",
    "_pending",
    "_memory",
)
_ARRAYS = (*_OF_STEPS, *_OF_AGENTS)


def as_index(rows: Rows) -> slice | Rows:
    """Returns consecutive rows as a slice, so that indexing gives a view instead of a copy; other rows unchanged."""
    if not len(rows):
        return rows
    first, last = int(rows[0]), int(rows[-1])
    if last - first + 1 != len(rows) or rows.tobytes() != np.arange(first, last + 1).tobytes():
        return rows
    return slice(first, last + 1)


def _team_key(simulator: int, team: int) -> int:
    """Returns one number for a simulator and one of its team ids."""
    return simulator << 32 | team
