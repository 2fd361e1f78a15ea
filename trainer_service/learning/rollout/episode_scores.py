"""Scores of frozen policies: the counted episodes and their statistics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.agent_indices import AgentIndexAllocator, reported_agent_indices
from trainer_service.learning.rollout.agents import AgentRows, agent_keys
from trainer_service.learning.rollout.group_returns import GroupReturns, counted_returns
from unity_bridge.specs import MemberSpec
from unity_bridge.steps import StepBatch

LEAST_PATIENCE = 1000
"""The least ticks that groups may take to end after the agents' episodes."""

Values = Sequence[float] | NDArray[np.floating[Any]]


def mean_or_none(values: Values) -> float | None:
    """The mean; None of no values."""
    return float(np.mean(values)) if len(values) else None


def std_or_none(values: Values) -> float | None:
    """The standard deviation of these very values, not an estimate for others; None of no values."""
    return float(np.std(values)) if len(values) else None


class EpisodeMeans:
    """The means of a record of episodes; None without any."""

    __slots__ = ()

    returns: Values
    lengths: Values
    group_returns: Values

    @property
    def mean_return(self) -> float | None:
        """The mean return of agents."""
        return mean_or_none(self.returns)

    @property
    def std_return(self) -> float | None:
        """The standard deviation of agents' returns."""
        return std_or_none(self.returns)

    @property
    def mean_length(self) -> float | None:
        """The mean length of agents' episodes, in decisions."""
        return mean_or_none(self.lengths)

    @property
    def mean_group_return(self) -> float | None:
        """The mean return of groups."""
        return mean_or_none(self.group_returns)


@dataclass(frozen=True, slots=True, repr=False)
class Score(EpisodeMeans):
    """Unnormalized returns of one behavior's episodes. Its text form shows their statistics."""

    returns: tuple[float, ...]
    """Returns of agents, each the sum of the agent's own rewards."""

    lengths: tuple[int, ...]
    """Decisions in the same episodes."""

    teams: tuple[int, ...]
    """Team id of the agent of each episode."""

    group_returns: tuple[float, ...] = ()
    """Returns of groups: the group's rewards plus its members' own. Empty without groups."""

    group_teams: tuple[int, ...] = ()
    """Team id of each group."""

    agent_indices: tuple[int, ...] = ()
    """The index of each episode's agent in its group, from 0; −1 without a group. Empty if indices are unknown."""

    members: tuple[MemberSpec, ...] = ()
    """The behaviors of the heterogeneous group of these agents; empty for one behavior."""

    cut: tuple[bool, ...] = ()
    """Whether each episode was cut at a limit of steps (``max_episode_steps``), where its return ends."""

    def __repr__(self) -> str:
        numbers = {key: value for key, value in self.to_json().items() if isinstance(value, int | float)}
        if not self.group_returns:
            del numbers["group_episodes"]
        return f"Score({', '.join(f'{key}={value:.6g}' for key, value in numbers.items())})"

    @property
    def num_cut(self) -> int:
        """Number of episodes that were cut at a limit of steps."""
        return sum(self.cut)

    @property
    def value(self) -> float | None:
        """The number for comparing policies: the mean of the counted returns."""
        return mean_or_none(self.counted)

    @property
    def counted(self) -> NDArray[np.float64]:
        """The returns that count, see ``counted_returns``. At most [E + G]."""
        # Agents of a heterogeneous group have indices even without a group.
        indices, groups = self.agent_indices or [0] * len(self.returns), np.array(self.group_returns)
        in_group = np.array([len(groups) > 0 and index >= 0 for index in indices], np.bool_)
        return counted_returns(np.array(self.returns), in_group, groups)

    def to_json(self) -> dict[str, Any]:
        """Returns the object that ``evaluate --json`` prints for a behavior.

        It has the statistics of all sides. With several sides, ``teams`` has the statistics of each by team id.
        ``cut_episodes`` is present if an episode was cut. ``places`` has the statistics of each agent index, if groups
        have several agents. ``members`` has those of each behavior, if several form a group.
        """
        result: dict[str, Any] = {
            "episodes": len(self.returns),
            "mean_return": mean_or_none(self.returns),
            "std_return": std_or_none(self.returns),
            "mean_length": mean_or_none(self.lengths),
            "mean_group_return": mean_or_none(self.group_returns),
            "std_group_return": std_or_none(self.group_returns),
            "group_episodes": len(self.group_returns),
        }
        if self.num_cut:
            result["cut_episodes"] = self.num_cut
        if self.members:
            result["members"] = {name: _described(of) for name, of in self.member_returns.items()}
        teams = sorted({*self.teams, *self.group_teams})
        if len(teams) > 1:
            result["teams"] = {str(team): self._of(team).to_json() for team in teams}
        elif len(set(self.agent_indices)) > 1:
            result["places"] = {
                str(index): self._of_agent(index) for index in sorted(set(self.agent_indices))
            }
        return result

    @property
    def member_returns(self) -> dict[str, tuple[float, ...]]:
        """Returns of the agents of each member, by its behavior; empty without a heterogeneous group."""
        found: dict[str, tuple[float, ...]] = {}
        first = 0
        for member in self.members:
            indices = range(first, first + member.num_agents)
            found[member.behavior] = tuple(value for i in indices for value in self.returns_at(i))
            first += member.num_agents
        return found

    def returns_at(self, agent_index: int) -> list[float]:
        """Returns of the agents with this index in their groups."""
        return [
            value
            for value, other in zip(self.returns, self.agent_indices, strict=True)
            if other == agent_index
        ]

    def _of_agent(self, agent_index: int) -> dict[str, Any]:
        return _described(self.returns_at(agent_index))

    def _of(self, team: int) -> Score:
        own = [i for i, other in enumerate(self.teams) if other == team]
        groups = [i for i, other in enumerate(self.group_teams) if other == team]
        return Score(
            tuple(self.returns[i] for i in own),
            tuple(self.lengths[i] for i in own),
            tuple(self.teams[i] for i in own),
            tuple(self.group_returns[i] for i in groups),
            tuple(self.group_teams[i] for i in groups),
            tuple(self.agent_indices[i] for i in own) if self.agent_indices else (),
            self.members,
            tuple(self.cut[i] for i in own) if self.cut else (),
        )


@dataclass(frozen=True, slots=True)
class Evaluation:
    """The score of one behavior."""

    behavior: str
    step: int
    """Agent steps at which the policy was saved."""
    wall_s: float
    """Seconds since the start of the run."""
    score: Score
    is_best: bool
    """Whether no earlier policy of the run scored higher."""

    def to_json(self) -> dict[str, Any]:
        """Returns one line of evaluations.jsonl."""
        when = {"behavior": self.behavior, "step": self.step, "wall_s": round(self.wall_s, 3)}
        return {**when, **self.score.to_json(), "score": self.score.value, "best": self.is_best}


@dataclass(frozen=True, slots=True)
class EndedEpisode:
    """A counted episode of an agent that has ended."""

    number: int
    """Number of the episode in the order of starts, from 1."""

    team: int

    episode_return: float
    """The sum of the agent's own rewards."""

    length: int
    """Number of decisions."""

    truncated: bool
    """Whether the episode was truncated, as by a time limit, instead of terminated."""

    cut: bool
    """Whether the trainer's limit of steps cut it (``max_episode_steps``)."""

    def to_json(self) -> dict[str, Any]:
        """Returns the object that ``play --json`` prints for an episode, with Gymnasium's terms."""
        return {
            "episode": self.number,
            "team": self.team,
            "return": self.episode_return,
            "length": self.length,
            "terminated": not self.truncated,
            "truncated": self.truncated,
            "cut": self.cut,
        }


class EpisodeLedger:
    """Counts the first ``wanted`` episodes of agents that *start*, and the group episodes that start in the same time.

    Counting the first that *end* would favor short episodes: twelve agents that fall at once would fill the list
    before the episode of one balancing agent ends.
    """

    def __init__(
        self,
        wanted: int,
        members: tuple[MemberSpec, ...] = (),
        *,
        on_end: Callable[[EndedEpisode], None] | None = None,
    ) -> None:
        """
        Args:
            wanted: the number of episodes to count.
            members: the behaviors of a heterogeneous group; empty for one behavior.
            on_end: called with each counted episode at its end; None for no call.
        """
        self.wanted = wanted
        self.members = members
        self._on_end = on_end
        self._agents = AgentRows()
        self._episode = np.full(16, -1, np.int64)
        """Number of the running episode of each row; −1 without a running episode."""
        self._started = 0
        self._returns = np.zeros(wanted)
        self._lengths, self._teams, self._agent_indices = np.zeros((3, wanted), np.int64)
        self._ended, self._cut = np.zeros((2, wanted), np.bool_)
        self._allocator = AgentIndexAllocator(members)
        self._groups = GroupReturns()
        self._groups_wanted = 0
        self._group_scores: dict[int, tuple[float, int]] = {}
        """Return and team id of the ended episodes of groups, by number."""
        self._ticks = 0
        self._ticks_for_agents = 0
        """Ticks until the last counted episode of an agent ended."""

    @property
    def complete(self) -> bool:
        """Whether every counted episode has ended, or only groups without an end are left."""
        if not self._ended.all():
            return False
        patience = max(LEAST_PATIENCE, 10 * self._ticks_for_agents)
        return not self.num_endless or self._ticks - self._ticks_for_agents > patience

    @property
    def num_endless(self) -> int:
        """Number of counted group episodes that have not ended."""
        return self._groups_wanted - len(self._group_scores)

    @property
    def num_ended(self) -> int:
        """Number of counted episodes of agents that have ended."""
        return int(np.count_nonzero(self._ended))

    def observe(
        self, simulator: int, team: int, batch: StepBatch, cut: NDArray[np.bool_] | None = None
    ) -> None:
        """Adds a tick's rewards to the running episodes, and ends and starts episodes.

        cut: whether a limit of steps ended the episode, by terminal row; None if it ended none.
        """
        self._ticks += 1
        if not self._ended.all():
            self._ticks_for_agents = self._ticks
        more_wanted = self._started < self.wanted
        self._observe_agents(simulator, team, batch, cut)
        ended = self._groups.observe(simulator, team, batch)
        if more_wanted:
            self._groups_wanted = self._groups.begun
        for number, group_return in zip(ended.numbers.tolist(), ended.returns.tolist(), strict=True):
            if number < self._groups_wanted:
                self._group_scores[number] = (group_return, team)

    def score(self) -> Score:
        """Returns the score of the counted episodes that have ended."""
        groups = [score for _, score in sorted(self._group_scores.items())]
        return Score(
            tuple(self._returns[self._ended].tolist()),
            tuple(self._lengths[self._ended].tolist()),
            tuple(self._teams[self._ended].tolist()),
            tuple(group_return for group_return, _ in groups),
            tuple(team for _, team in groups),
            tuple(self._agent_indices[self._ended].tolist()),
            self.members,
            tuple(self._cut[self._ended].tolist()),
        )

    def _observe_agents(
        self, simulator: int, team: int, batch: StepBatch, cut: NDArray[np.bool_] | None
    ) -> None:
        keys = agent_keys(batch.agent_ids, team)
        first = batch.num_terminal
        agent_indices = reported_agent_indices(batch, self._allocator.assign(simulator, team, batch))[first:]
        if first:
            rows = self._agents.find(simulator, keys[:first])
            episodes = np.where(rows >= 0, self._episode[rows], -1)
            counted = (episodes >= 0) & (episodes < self.wanted)
            if cut is not None:
                self._cut[episodes[cut & counted]] = True
            self._credit(rows[rows >= 0], batch.rewards[:first][rows >= 0], ends=True)
            if self._on_end is not None:
                for row in np.flatnonzero(counted).tolist():
                    self._on_end(
                        self._ended_episode(int(episodes[row]), truncated=bool(batch.truncated[row]))
                    )
        rows = self._agents.assign(simulator, keys[first:])
        if self._agents.capacity > len(self._episode):
            more = np.full(2 * self._agents.capacity, -1, np.int64)
            more[: len(self._episode)] = self._episode
            self._episode = more
        running = self._episode[rows] >= 0
        self._credit(rows[running], batch.rewards[first:][running], ends=False)
        for row, agent_index in zip(rows[~running].tolist(), agent_indices[~running].tolist(), strict=True):
            self._episode[row] = self._started
            if self._started < self.wanted:
                self._teams[self._started] = team
                self._agent_indices[self._started] = agent_index
            self._started += 1

    def _ended_episode(self, episode: int, *, truncated: bool) -> EndedEpisode:
        return EndedEpisode(
            episode + 1,
            int(self._teams[episode]),
            float(self._returns[episode]),
            int(self._lengths[episode]),
            truncated,
            bool(self._cut[episode]),
        )

    def _credit(self, rows: NDArray[np.int64], rewards: NDArray[np.float32], *, ends: bool) -> None:
        episodes = self._episode[rows]
        counted = (episodes >= 0) & (episodes < self.wanted)
        self._returns[episodes[counted]] += rewards[counted]
        self._lengths[episodes[counted]] += 1
        if ends:
            self._ended[episodes[counted]] = True
            self._episode[rows] = -1


def _described(returns: Sequence[float]) -> dict[str, Any]:
    return {
        "episodes": len(returns),
        "mean_return": mean_or_none(returns),
        "std_return": std_or_none(returns),
    }
