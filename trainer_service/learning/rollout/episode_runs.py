"""Sums over an agent's episode, whose steps come in several trajectories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainer_service.learning.rollout.trajectories import StepRanges, Trajectories


@dataclass(frozen=True, slots=True, eq=False)
class EpisodeRuns:
    """R runs of consecutive steps of one agent in one episode. A run joins trajectories that continue each other."""

    steps: NDArray[np.int64]
    """The trajectories' steps in the order of the runs. Shape [S]."""

    lengths: NDArray[np.int64]
    """Steps of each run. Shape [R]."""

    agents: NDArray[np.int64]
    """The number of each run's agent. Shape [R]."""

    begun: NDArray[np.bool_]
    """Whether the episode began with the run's first step. Shape [R]."""

    ended: NDArray[np.bool_]
    """Whether the episode ended with the run's last step. Shape [R]."""

    @classmethod
    def of(cls, trajectories: Trajectories) -> EpisodeRuns:
        """Returns the runs of trajectories in time order. Without agent numbers, each trajectory is an episode."""
        lengths, agents = trajectories.lengths, trajectories.agents
        begun, ended = trajectories.begun, trajectories.ended
        if agents is None or begun is None or ended is None:
            whole = np.ones(len(lengths), np.bool_)
            return cls(np.arange(len(trajectories)), lengths, np.arange(len(lengths)), whole, whole)
        order = np.argsort(agents, kind="stable")
        agents, begun, ended = agents[order], begun[order], ended[order]
        first, last = np.ones(len(order), np.bool_), np.ones(len(order), np.bool_)
        first[1:] = last[:-1] = (agents[1:] != agents[:-1]) | begun[1:] | ended[:-1]
        ranges = StepRanges(np.cumsum(lengths) - lengths, lengths).select(order)
        run_ends = np.cumsum(ranges.lengths)[last]
        return cls(ranges.steps(), np.diff(run_ends, prepend=0), agents[first], begun[first], ended[last])


_MOST_AGENTS = 1 << 20
"""The most remembered agents, sixteen times the agents of a behavior that one simulator may have."""


class EpisodeValues:
    """Values of each agent with a running episode: sums over the episode so far."""

    def __init__(self, size: int = 1) -> None:
        """size: number of values of an agent."""
        self._size = size
        self._values: dict[int, NDArray[np.float64]] = {}

    def before(self, runs: EpisodeRuns) -> NDArray[np.float64]:
        """Returns agents' values before the runs' first steps; zeros at the start of an episode. Shape [R, size]."""
        nothing = np.zeros(self._size)
        known = [self._values.get(agent, nothing) for agent in runs.agents.tolist()]
        values = np.array(known, np.float64).reshape(-1, self._size)
        values[runs.begun] = 0.0
        return values

    def update(self, runs: EpisodeRuns, values: NDArray[np.float64]) -> None:
        """Stores the values after the runs' last steps. Values of ended episodes are dropped. Shape [R, size]."""
        for agent, ended, value in zip(runs.agents.tolist(), runs.ended.tolist(), values, strict=True):
            self._values.pop(agent, None)
            if not ended:
                self._values[agent] = value
        # Agents of simulators that left in mid-episode never end, so the oldest entries are dropped.
        while len(self._values) > _MOST_AGENTS:
            del self._values[next(iter(self._values))]

    def state_dict(self) -> dict[str, Any]:
        """All values, with the numbers of their agents."""
        agents = sorted(self._values)
        return {"agents": agents, "values": [self._values[agent].tolist() for agent in agents]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state. Raises KeyError or ValueError if it does not fit."""
        values = np.array(state["values"], np.float64).reshape(-1, self._size)
        self._values = dict(zip(state["agents"], values, strict=True))


class EpisodeRewards:
    """Sums of each reward source's rewards over an agent's episode, across rollouts."""

    def __init__(self, names: Sequence[str]) -> None:
        """names: of the sources."""
        self._names = names
        self._sums = EpisodeValues(len(names))

    def metrics(self, trajectories: Trajectories, rewards: NDArray[np.float32]) -> dict[str, float]:
        """Adds a rollout. Returns each source's mean sum over the episodes that ended in it, by ML-Agents' tag.

        Empty if no episode ended. rewards: of each source at every step, including its strength. Shape [S, signals].
        """
        runs = EpisodeRuns.of(trajectories)
        starts = np.cumsum(runs.lengths) - runs.lengths
        paid = rewards[runs.steps].astype(np.float64)
        sums = self._sums.before(runs) + np.add.reduceat(paid, starts)
        self._sums.update(runs, sums)
        if not runs.ended.any():
            return {}
        means = sums[runs.ended].mean(axis=0)
        return {
            f"Policy/{name.capitalize()} Reward": float(mean)
            for name, mean in zip(self._names, means, strict=True)
        }

    def state_dict(self) -> dict[str, Any]:
        """The sums of unfinished episodes."""
        return self._sums.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the state."""
        self._sums.load_state_dict(state)
