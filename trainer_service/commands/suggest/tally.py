"""Statistics of a behavior's agents while they act at random."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainer_service.commands.suggest.features import BehaviorFeatures
from unity_bridge.specs import GLOBAL_STATE, BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch, as_floats

_LEAST_REPEATS = 4
"""Equal situations from which rewards are compared."""

_MOST_ROWS = 200_000
"""Rows whose situations are compared at most."""

_REWARD_DIGITS = 4


@dataclass(slots=True)
class _Agent:
    """The unfinished episode of an agent."""

    length: int = 0
    rewards: list[float] = field(default_factory=list)
    first: bytes = b""
    """Its first observation."""
    situation: bytes = b""
    """Its last observation and action; empty before the first."""


class Tally:
    """Statistics of the agents of one behavior, over all of its team ids."""

    def __init__(self, name: str, spec: BehaviorSpec) -> None:
        self._name = name
        self._spec = spec
        self._seen = [
            number
            for number, sensor in enumerate(spec.observation_specs)
            if not sensor.is_picture and sensor.name != GLOBAL_STATE
        ]
        has_pictures = any(sensor.is_picture for sensor in spec.observation_specs)
        self._is_comparable = bool(self._seen) and not has_pictures
        self._agents: dict[tuple[int, int], _Agent] = {}
        self._team_ids: set[int] = set()
        self._most_agents: Counter[int] = Counter()
        self.group_sizes: Counter[tuple[int, int]] = Counter()
        """The most agents of each group at once, by team id and group id."""
        self._left = 0
        self._group_rewards: list[NDArray[np.float32]] = []
        self._rounds: defaultdict[tuple[int, int], dict[int, float]] = defaultdict(dict)
        """The last reward of each member that reported alone, by team id and group id, until one does so again."""
        self._episodes: list[list[float]] = []
        self._truncated = 0
        self._situations: defaultdict[bytes, list[float]] = defaultdict(list)
        """Rewards by observation and action."""
        self._histories: defaultdict[bytes, list[float]] = defaultdict(list)
        """Rewards by the episode's first observation, observation and action."""
        self._rows = 0
        self._sum = self._squares = np.zeros(1)
        self._is_binary = bool(self._seen)

    @property
    def episodes(self) -> int:
        """Episodes that ended so far."""
        return len(self._episodes)

    def add(self, team_id: int, batch: StepBatch, actions: ActionBatch) -> None:
        """Counts one message's rows and the actions that its waiting agents get."""
        self._team_ids.add(team_id)
        ended, waiting = slice(0, batch.num_terminal), slice(batch.num_terminal, None)
        self._add_rewards(team_id, batch)
        for row in range(batch.num_terminal):
            agent = self._agents.pop((team_id, int(batch.agent_ids[row])), _Agent())
            if agent.length:
                self._episodes.append(agent.rewards)
                self._truncated += bool(batch.truncated[row])
        self._count_groups(team_id, batch.group_ids[ended], batch.terminated[ended], batch.group_ids[waiting])
        self._add_observations(team_id, batch, actions)

    def _add_rewards(self, team_id: int, batch: StepBatch) -> None:
        totals = batch.rewards + batch.group_rewards
        for row, reward in enumerate(totals.tolist()):
            agent = self._agents.get((team_id, int(batch.agent_ids[row])))
            if agent is not None and agent.length > len(agent.rewards):
                agent.rewards.append(reward)
                if agent.situation and self._rows < _MOST_ROWS:
                    self._situations[agent.situation].append(reward)
                    self._histories[agent.first + agent.situation].append(reward)
        for group in np.unique(batch.group_ids[batch.group_ids > 0]):
            members = totals[batch.group_ids == group]
            if len(members) > 1:
                self._group_rewards.append(members)
                continue
            number = int(batch.agent_ids[batch.group_ids == group][0])
            of_round = self._rounds[team_id, int(group)]
            if number in of_round:
                if len(of_round) > 1:
                    self._group_rewards.append(np.array([*of_round.values()], np.float32))
                of_round.clear()
            of_round[number] = float(members[0])

    def _count_groups(
        self,
        team_id: int,
        ended: NDArray[np.int64],
        terminated: NDArray[np.bool_],
        waiting: NDArray[np.int64],
    ) -> None:
        sizes = Counter(waiting[waiting > 0].tolist())
        for group, size in sizes.items():
            key = (team_id, group)
            self.group_sizes[key] = max(self.group_sizes[key], size)
        whole = Counter(ended.tolist())
        self._left += sum(
            whole[group] < self.group_sizes[team_id, group]
            for group in set(ended[terminated].tolist())
            if group > 0 and group in sizes
        )

    def _add_observations(self, team_id: int, batch: StepBatch, actions: ActionBatch) -> None:
        first = batch.num_terminal
        ids = batch.agent_ids[first:].tolist()
        self._most_agents[team_id] = max(self._most_agents[team_id], len(ids))
        rows = np.zeros((len(ids), 0), np.float32)
        if self._seen and ids:
            parts = [as_floats(batch.observations[number][first:]) for number in self._seen]
            rows = np.concatenate([part.reshape(len(ids), -1) for part in parts], axis=1)
            self._is_binary = self._is_binary and bool(np.isin(rows, (0.0, 1.0)).all())
            self._sum = self._sum + rows.sum(axis=0, dtype=np.float64)
            self._squares = self._squares + np.square(rows, dtype=np.float64).sum(axis=0)
        self._rows += len(ids)
        self._add_situations(team_id, ids, rows, actions)

    def _add_situations(
        self, team_id: int, ids: Sequence[int], rows: NDArray[np.float32], actions: ActionBatch
    ) -> None:
        for row, agent_id in enumerate(ids):
            agent = self._agents.setdefault((team_id, agent_id), _Agent())
            agent.length += 1
            if self._is_comparable:
                seen = rows[row].tobytes()
                agent.first = agent.first or seen
                agent.situation = seen + actions.continuous[row].tobytes() + actions.discrete[row].tobytes()

    def features(self) -> BehaviorFeatures:
        """Computes the features from the counts."""
        unfinished = [agent.rewards for agent in self._agents.values()]
        lengths = [len(rewards) for rewards in self._episodes] or [max(map(len, unfinished), default=1) or 1]
        rewards = np.array(
            [reward for episode in (*self._episodes, *unfinished) for reward in episode] or [0.0]
        )
        usual, density, events = self._events(rewards)
        truncated = self._truncated / max(1, self.episodes)
        return BehaviorFeatures(
            name=self._name,
            spec=self._spec,
            agents=sum(self._most_agents.values()),
            team_ids=tuple(sorted(self._team_ids)),
            group_size=max(self.group_sizes.values(), default=0),
            members_leave=self._left > 0,
            shared_rewards=self._shared_rewards(),
            length=float(np.mean(lengths)),
            longest=max(*lengths, *map(len, unfinished), 1),
            episodes=self.episodes,
            truncated=truncated,
            reward_scale=float(np.sqrt(np.mean(np.square(rewards)))),
            mean_reward=float(rewards.mean()),
            density=density,
            events=events,
            survival=usual > 0 and self.episodes > 0 and truncated < 1,
            aliased=self._aliased(),
            observation_scale=self._observation_scale(),
            is_binary=self._is_binary,
        )

    def _events(self, rewards: NDArray[np.float64]) -> tuple[float, float, float]:
        """The most frequent reward, and the shares of decisions and of episodes that have another one."""
        rounded = Counter(rewards.round(_REWARD_DIGITS).tolist())
        usual, count = rounded.most_common(1)[0]
        with_event = [
            any(round(reward, _REWARD_DIGITS) != usual for reward in episode) for episode in self._episodes
        ]
        density = 1 - count / len(rewards)
        return usual, density, float(np.mean(with_event)) if with_event else float(density > 0)

    def _shared_rewards(self) -> float:
        """The variance of the groups' mean rewards over that of all their agents' rewards."""
        if not self._group_rewards:
            return 0.0
        of_all = float(np.concatenate(self._group_rewards).var())
        means = np.concatenate([np.full(len(each), each.mean()) for each in self._group_rewards])
        return float(means.var()) / of_all if of_all > 0 else 1.0

    def _aliased(self) -> float:
        """Returns the share of the reward variance that repeated situations leave open.

        Without a group, the share that first observations leave open is subtracted.
        """
        open_share = _open_variance(self._situations)
        if max(self.group_sizes.values(), default=0) > 1:
            return open_share
        return max(0.0, open_share - _open_variance(self._histories))

    def _observation_scale(self) -> float:
        if not self._rows or not self._seen:
            return 1.0
        mean = self._sum / self._rows
        deviation = np.sqrt(np.maximum(self._squares / self._rows - mean**2, 0.0))
        return float(max(np.abs(mean).max(), deviation.max()))


def _open_variance(rewards: Mapping[bytes, list[float]]) -> float:
    """Returns the share of the reward variance within equal situations, over all situations that repeat."""
    repeated = [values for values in rewards.values() if len(values) >= _LEAST_REPEATS]
    within = sum(float(np.var(values)) * len(values) for values in repeated)
    together = np.concatenate(repeated) if repeated else np.zeros(1)
    total = float(together.var()) * len(together)
    return within / total if total > 0 else 0.0
