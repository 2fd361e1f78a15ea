"""How good a frozen policy is: its own simulator, its own seeds, every started episode counted to its end."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainer_service.behaviors import parse_behavior_id
from trainer_service.checkpoint import differences
from trainer_service.errors import UserError
from trainer_service.policy import Policy
from trainer_service.rollout.agents import AgentRows, agent_keys
from trainer_service.rollout.remembered import RememberedByAgent
from unity_bridge.errors import SimulatorLost
from unity_bridge.server import Bridge, Departure, Tick
from unity_bridge.steps import ActionBatch, StepBatch

_PATIENCE_S = 0.5


@dataclass(frozen=True, slots=True)
class Score:
    """Returns of one behavior's episodes, raw."""

    returns: tuple[float, ...]
    lengths: tuple[int, ...]

    def to_json(self) -> dict[str, float | int | None]:
        """The object that ``evaluate --json`` prints for a behavior."""
        return {
            "episodes": len(self.returns),
            "mean_return": float(np.mean(self.returns)) if self.returns else None,
            "std_return": float(np.std(self.returns)) if self.returns else None,
            "mean_length": float(np.mean(self.lengths)) if self.lengths else None,
            "mean_group_return": None,
        }


@dataclass(slots=True, eq=False)
class EpisodeLedger:
    """Counts the first ``wanted`` episodes that *start*, however long they take.

    Taking the first that *end* would favour short ones: twelve agents that fall at once would fill the list
    before one that balances has come to its end.
    """

    wanted: int
    _agents: AgentRows = field(default_factory=AgentRows)
    _episode: NDArray[np.int64] = field(default_factory=lambda: np.full(16, -1, np.int64))
    """Number of the running episode of each row; −1 where none runs."""
    _started: int = 0
    _returns: NDArray[np.float64] = field(init=False)
    _lengths: NDArray[np.int64] = field(init=False)
    _ended: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self._returns = np.zeros(self.wanted)
        self._lengths = np.zeros(self.wanted, np.int64)
        self._ended = np.zeros(self.wanted, np.bool_)

    @property
    def complete(self) -> bool:
        """Every counted episode has ended."""
        return bool(self._ended.all())

    @property
    def num_ended(self) -> int:
        """Counted episodes that have ended."""
        return int(np.count_nonzero(self._ended))

    def observe(self, simulator: int, team: int, batch: StepBatch) -> None:
        """Adds a tick's rewards to the running episodes; ends and starts them."""
        keys = agent_keys(batch.agent_ids, team)
        first = batch.num_terminal
        if first:
            rows = self._agents.find(simulator, keys[:first])
            self._credit(rows[rows >= 0], batch.rewards[:first][rows >= 0], ends=True)
        rows = self._agents.assign(simulator, keys[first:])
        if self._agents.capacity > len(self._episode):
            more = np.full(2 * self._agents.capacity, -1, np.int64)
            more[: len(self._episode)] = self._episode
            self._episode = more
        running = self._episode[rows] >= 0
        self._credit(rows[running], batch.rewards[first:][running], ends=False)
        for row in rows[~running].tolist():
            self._episode[row] = self._started
            self._started += 1

    def score(self) -> Score:
        """Of the counted episodes that have ended."""
        return Score(tuple(self._returns[self._ended].tolist()), tuple(self._lengths[self._ended].tolist()))

    def _credit(self, rows: NDArray[np.int64], rewards: NDArray[np.float32], *, ends: bool) -> None:
        episodes = self._episode[rows]
        counted = (episodes >= 0) & (episodes < self.wanted)
        self._returns[episodes[counted]] += rewards[counted]
        self._lengths[episodes[counted]] += 1
        if ends:
            self._ended[episodes[counted]] = True
            self._episode[rows] = -1


def evaluate(
    bridge: Bridge,
    policies: Mapping[str, Policy],
    *,
    episodes: int,
    deterministic: bool,
    progress: Callable[[int, int], None] = lambda done, wanted: None,
) -> dict[str, Score]:
    """Plays until every behavior that shows up has had its episodes.

    Args:
        bridge: with its simulators on their way.
        policies: by behavior name.
        episodes: of each behavior, counted per agent.
        deterministic: likeliest actions instead of drawn ones.
        progress: told how many episodes of how many are done.

    Raises:
        UserError: a simulator with a behavior that has no policy, or a different one.
        BridgeError: a simulator failed; its evaluation would not be one.
    """
    ledgers: dict[str, EpisodeLedger] = {}
    players = {name: _Player(policy, deterministic) for name, policy in policies.items()}
    done = -1
    while not ledgers or not all(ledger.complete for ledger in ledgers.values()):
        for event in bridge.receive(_PATIENCE_S):
            if isinstance(event, Departure):
                raise SimulatorLost(event.reason)
            _check(event, policies)
            replies: dict[str, ActionBatch] = {}
            for behavior_id, batch in event.steps.items():
                name, team = parse_behavior_id(behavior_id)
                ledger = ledgers.setdefault(name, EpisodeLedger(episodes))
                ledger.observe(event.simulator, team, batch)
                replies[behavior_id] = players[name].act(event.simulator, team, batch)
            bridge.reply(event.simulator, replies)
        ended = sum(ledger.num_ended for ledger in ledgers.values())
        if ended != done:
            done = ended
            progress(done, episodes * max(len(ledgers), 1))
    return {name: ledger.score() for name, ledger in ledgers.items()}


class _Player:
    """A policy, and what each of its agents remembers."""

    def __init__(self, policy: Policy, deterministic: bool) -> None:
        self._policy = policy
        self._deterministic = deterministic
        self._remembered = RememberedByAgent(policy.memory_size)

    def act(self, simulator: int, team: int, batch: StepBatch) -> ActionBatch:
        """Decides for everyone who waits."""
        rows, memories = self._remembered.recall(simulator, team, batch)
        first = batch.num_terminal
        if first == len(batch):
            return ActionBatch.zeros(0, self._policy.spec.action_spec)
        actions, memories = self._policy.predict(
            [sensor[first:] for sensor in batch.observations],
            memories,
            batch.allowed_actions[first:],
            deterministic=self._deterministic,
        )
        self._remembered.keep(rows, memories)
        return actions


def _check(tick: Tick, policies: Mapping[str, Policy]) -> None:
    for behavior_id, spec in tick.new_specs.items():
        name, _ = parse_behavior_id(behavior_id)
        if name not in policies:
            raise UserError(f"the run has no policy for behavior '{name}'; it has {', '.join(policies)}")
        if changed := differences(policies[name].spec, spec):
            raise UserError(f"behavior '{name}' is not what its policy was trained for: {changed}")
