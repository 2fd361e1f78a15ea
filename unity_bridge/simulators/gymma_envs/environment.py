"""An environment whose observations, rewards and ends are lists, one entry per agent; every dialect of it as one."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from gymnasium import spaces

from unity_bridge.simulators.gymma_envs.spaces import Space, is_for_agents, spaces_of_agents

_MASKS = ("action_mask", "action_masks", "avail_actions")
"""Names under which infos hold what is allowed."""


class Outcome(NamedTuple):
    """What a step made of all agents, in their order."""

    observations: list[Any]
    rewards: list[float]
    """Their own."""
    group_reward: float
    """What was not said of any agent alone."""
    terminated: list[bool]
    truncated: list[bool]
    masks: list[Any]
    """What each may do now, None where nobody says."""


class AgentList:
    """One environment, described as PettingZoo describes its own, and played in lists.

    Agents are called ``agent_0``, ``agent_1`` and so on. What Gymnasium's interface and the older gym's return is
    understood, and whatever of it may be a list or one value for all.
    """

    def __init__(self, env: Any) -> None:
        """
        Args:
            env: of either library, or like them.

        Raises:
            SceneError: its spaces are not those of several agents.
        """
        self._env = env
        self._bare = getattr(env, "unwrapped", env)
        self._sees, self._does = spaces_of_agents(env.observation_space, env.action_space)
        self.possible_agents = [f"agent_{i}" for i in range(len(self._sees))]
        self.metadata: Mapping[str, Any] = getattr(env, "metadata", None) or {}
        self._seeded_by_reset = "seed" in inspect.signature(self._bare.reset).parameters
        self._state = _method(self._bare, ("state", "get_state"))
        self._allowed = _method(self._bare, ("get_avail_actions",))

    def observation_space(self, agent: str) -> Space:
        return self._sees[self.possible_agents.index(agent)]

    def action_space(self, agent: str) -> Space:
        return self._does[self.possible_agents.index(agent)]

    def reset(self, seed: int | None = None) -> Outcome:
        """Begins an episode. Nobody has earned anything, and nobody is done."""
        if seed is None or self._seeded_by_reset:
            returned = self._env.reset() if seed is None else self._env.reset(seed=seed)
        else:
            self._seed_as_of_old(seed)
            returned = self._env.reset()
        observations: Any = returned
        info: Any = {}
        if isinstance(returned, tuple) and len(returned) == 2 and _is_info(returned[1]):
            observations, info = returned
        nobody = [False] * len(self.possible_agents)
        return Outcome(
            self._listed(observations, "observations"),
            [0.0] * len(nobody),
            0.0,
            nobody,
            nobody,
            self._masks(info),
        )

    def _seed_as_of_old(self, seed: int) -> None:
        """Seeds the environment, and what some of them draw from besides: ma-gym's TrafficJunction."""
        random.seed(seed)
        np.random.seed(seed)
        if callable(getattr(self._env, "seed", None)):
            self._env.seed(seed)

    def step(self, actions: list[Any]) -> Outcome:
        """Acts for all agents, those that are done included.

        Raises:
            TypeError: what came back is neither Gymnasium's nor gym's.
        """
        returned = self._env.step(actions)
        if not isinstance(returned, tuple) or len(returned) not in (4, 5):
            raise TypeError(
                "expected observations, rewards, terminated, truncated, info (or gym's four: done instead of both), "
                f"got {returned!r:.60}"
            )
        observations, rewards, *ends, info = returned
        if len(ends) == 1:
            over = self._flags(ends[0])
            cut = self._flags(info.get("TimeLimit.truncated", False) if isinstance(info, Mapping) else False)
            ends = [[o and not c for o, c in zip(over, cut, strict=True)],
                    [o and c for o, c in zip(over, cut, strict=True)]]  # fmt: skip
        shared = np.ndim(rewards) == 0
        return Outcome(
            self._listed(observations, "observations"),
            [0.0] * len(self.possible_agents)
            if shared
            else [float(r) for r in self._listed(rewards, "rewards")],
            float(rewards) if shared else 0.0,
            self._flags(ends[0]),
            self._flags(ends[1]),
            self._masks(info),
        )

    def state(self) -> Any:
        """The state of the whole environment. Raises NotImplementedError where it has none."""
        if self._state is None:
            raise NotImplementedError
        return self._state()

    def render(self) -> Any:
        """A picture of the environment."""
        if (
            "mode" in inspect.signature(self._bare.render).parameters
        ):  # the older gym's way, which some still have
            return self._bare.render(mode="rgb_array")
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _listed(self, values: Any, what: str) -> list[Any]:
        agents = len(self.possible_agents)
        if not is_for_agents(values, agents):
            raise TypeError(f"expected {what} of {agents} agents, got {values!r:.60}")
        return list(values)

    def _flags(self, flags: Any) -> list[bool]:
        if np.ndim(flags) == 0:
            return [bool(flags)] * len(self.possible_agents)
        return [bool(flag) for flag in self._listed(flags, "ends")]

    def _masks(self, info: Any) -> list[Any]:
        agents = len(self.possible_agents)
        masks = [_mask_in(each) for each in info] if is_for_agents(info, agents) else _mask_in(info)
        if masks is None and self._allowed is not None:
            masks = self._allowed()
        if masks is None or not is_for_agents(masks, agents):
            return [None] * agents
        return [_fitting(mask, space) for mask, space in zip(masks, self._does, strict=True)]


def _is_info(value: Any) -> bool:
    return isinstance(value, Mapping) or (
        isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)
    )


def _mask_in(info: Any) -> Any:
    found = info if isinstance(info, Mapping) else {}
    return next((found[name] for name in _MASKS if found.get(name) is not None), None)


def _fitting(mask: Any, space: Space) -> Any:
    """A mask as long as an agent's choices: SMAClite pads all to the longest."""
    if mask is None or not isinstance(space, spaces.Discrete):
        return mask
    return np.ravel(mask)[: int(space.n)]


def _method(env: Any, names: Sequence[str]) -> Any:
    """The first of an environment's methods that can be called without arguments; None if there is none."""
    for name in names:
        found = getattr(env, name, None)
        if callable(found) and not _wants_arguments(found):
            return found
    return None


def _wants_arguments(function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters.values()
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return any(each.default is each.empty and each.kind not in variable for each in parameters)
