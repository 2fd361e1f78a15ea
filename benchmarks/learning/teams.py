"""Lines with several agents: a group, and sides that play each other."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
from numpy.typing import NDArray

from learning.lines import STEP_REWARD, Line, Tell, Walker, draw
from learning.worlds import BEHAVIOR, World, behavior_spec, observe
from unity_bridge.simulators.scene import Steps, concatenate, step_batch
from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import ActionBatch, StepBatch

_GROUP = 1


class Group:
    """Agents with fixed ids who are one group, begin together and have the same goal.

    An agent that arrives waits for the others. It gets the reward of its end, but not more than −0.01. The last one
    gets nothing for itself, and the reward of its end is the group's. If agents arrive at once, the one with the
    largest id is the last. The return of an agent's episode is the reward of its end alone, without the costs of steps:
    at best 1.06.
    """

    frame_s = Line.frame_s

    def __init__(self, world: World, tell: Tell = lambda steps, return_: None) -> None:
        self._tell = tell
        self._rng = np.random.default_rng()
        self._spec = behavior_spec(world)
        self._walkers = [Walker(world) for _ in range(world.agents)]
        self._steps = 0

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {BEHAVIOR: self._spec}

    def reset(self, seed: int | None = None) -> Steps:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._start()
        return {BEHAVIOR: self._rows(self._walking)}

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        moved = self._walking
        rewards = np.zeros(len(self._walkers))
        for row, agent in enumerate(moved):
            rewards[agent] = self._walkers[agent].move(actions[BEHAVIOR], row)
        self._steps += len(moved)
        arrived = [agent for agent in moved if self._walkers[agent].arrived]
        self._walking = [agent for agent in moved if agent not in arrived]
        for agent in arrived:
            self._tell(self._steps, rewards[agent])
        if self._walking:
            rewards[arrived] = np.minimum(rewards[arrived], STEP_REWARD)
            ending = self._rows(arrived, rewards, terminated=True)
            return {BEHAVIOR: concatenate(ending, self._rows(self._walking, rewards))}
        ending = self._last_rows(arrived, rewards)
        self._start()
        return {BEHAVIOR: concatenate(ending, self._rows(self._walking))}

    def render(self) -> NDArray[np.uint8]:
        return draw(self._walkers)

    def close(self) -> None:
        pass

    def _start(self) -> None:
        goal = int(self._rng.choice((-1, 1)))
        for walker in self._walkers:
            walker.start(goal)
        self._walking = list(range(len(self._walkers)))

    def _last_rows(self, arrived: Sequence[int], rewards: NDArray[np.float64]) -> StepBatch:
        own, groups = np.minimum(rewards, STEP_REWARD), np.zeros_like(rewards)
        own[arrived[-1]], groups[arrived[-1]] = 0.0, rewards[arrived[-1]]
        return self._rows(arrived, own, groups, terminated=True)

    def _rows(
        self,
        agents: Sequence[int],
        rewards: NDArray[np.float64] | None = None,
        group_rewards: NDArray[np.float64] | None = None,
        *,
        terminated: bool = False,
    ) -> StepBatch:
        """Rewards are those of all agents; left out they are zero."""
        nothing = np.zeros(len(self._walkers))
        rewards = nothing if rewards is None else rewards
        group_rewards = nothing if group_rewards is None else group_rewards
        ids = np.array(agents, np.int64)
        return step_batch(
            observe(self._spec, [self._walkers[agent].shown for agent in agents]),
            rewards[ids].astype(np.float32),
            agent_ids=ids,
            allowed_actions=np.ones((len(ids), self._spec.action_spec.mask_size), np.bool_),
            terminated=np.full(len(ids), terminated),
            group_ids=np.full(len(ids), _GROUP, np.int64),
            group_rewards=group_rewards[ids].astype(np.float32),
        )


class Sides:
    """One agent for each behavior id, each on a line of its own: no agent can influence the others' results.

    It is a game all the same, since the last reward of an episode says by its sign who reached the right end.
    """

    frame_s = Line.frame_s

    def __init__(self, world: World, tell: Callable[[int, int, float], None]) -> None:
        """tell: hears of every episode's end, first of which behavior it is, from 0."""
        ids = itertools.count(1)
        self._lines = {
            behavior: Line(world, partial(tell, side), behavior=behavior, ids=ids)
            for side, behavior in enumerate(world.behaviors)
        }

    @property
    def behaviors(self) -> Mapping[str, BehaviorSpec]:
        return {behavior: line.behaviors[behavior] for behavior, line in self._lines.items()}

    def reset(self, seed: int | None = None) -> Steps:
        steps: dict[str, StepBatch] = {}
        for side, line in enumerate(self._lines.values()):
            steps |= line.reset(None if seed is None else len(self._lines) * seed + side)
        return steps

    def step(self, actions: Mapping[str, ActionBatch]) -> Steps:
        steps: dict[str, StepBatch] = {}
        for line in self._lines.values():
            steps |= line.step(actions)
        return steps

    def render(self) -> NDArray[np.uint8]:
        return np.concatenate([line.render() for line in self._lines.values()])

    def close(self) -> None:
        pass
