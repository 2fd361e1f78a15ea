"""Gymnasium's environments, each of one agent."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gymnasium
import numpy as np

from unity_bridge.simulators.foreign.environment import Agent, AgentStep, Description, agent_step, copied
from unity_bridge.simulators.foreign.masks import MASK, has_mask, mask_method, mask_of_info
from unity_bridge.simulators.third_party import ForeignCode

AGENT = "agent"
"""The only one."""

_RESET = ("observation", "info")
_STEP = ("observation", "reward", "terminated", "truncated", "info")


def single_agent(observation_space: Any, action_space: Any, metadata: Mapping[str, Any]) -> Description:
    """The description of an environment of one agent."""
    return Description({AGENT: (observation_space, action_space)}, metadata or {}, has_groups=False)


class GymnasiumEnvironment:
    """A ``gymnasium.Env`` behind the interface of ``Environment``."""

    def __init__(self, env: gymnasium.Env[Any, Any], code: ForeignCode) -> None:
        self.env = MaskInInfo.around(env)
        """The environment with its wrappers."""
        self._code = code
        self.description = single_agent(env.observation_space, env.action_space, env.metadata)

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        return [self._code.call("reset()", self._reset, seed)]

    def step(self, actions: Mapping[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        observation, reward, terminated, truncated, info = _parts(self.env.step(actions[AGENT]), _STEP)
        if not isinstance(reward, float) and np.ndim(reward) == 1 and len(reward) > 1:
            raise TypeError(
                f"expected a number as reward, got {len(reward)} of them; an environment of several agents has an "
                f"attribute n_agents = {len(reward)}"
            )
        step = agent_step(AGENT, observation, mask_of_info(info, self._code), reward, terminated, truncated)
        return ([step], []) if step.terminated or step.truncated else ([], [step])

    def seen(self) -> Mapping[Agent, Any]:
        raise NotImplementedError

    def state(self) -> Any:
        raise NotImplementedError

    def render(self) -> Any:
        return self.env.render()

    def close(self) -> None:
        self.env.close()

    def _reset(self, seed: int | None) -> AgentStep:
        observation, info = _parts(self.env.reset(seed=seed), _RESET)
        return agent_step(AGENT, observation, mask_of_info(info, self._code))


def _parts(returned: Any, expected: tuple[str, ...]) -> Any:
    """Returns an environment's return value after a check: environments for the old Gym return fewer values."""
    if (
        isinstance(returned, tuple)
        and len(returned) == len(expected)
        and isinstance(returned[-1], (dict, Mapping))
    ):
        return returned
    if not isinstance(returned, tuple):
        got = "one array" if isinstance(returned, np.ndarray) else f"one {type(returned).__name__}"
        wanted = "observation, {}" if expected is _RESET else ", ".join(expected)
        raise TypeError(f"expected {len(expected)} values, got {got}; return {wanted}")
    got = f"{len(returned)} of them"
    if len(returned) == len(expected):
        got = f"no dictionary as info but {returned[-1]!r:.60}"
    raise TypeError(f"expected {len(expected)} values to be returned ({', '.join(expected)}), got {got}")


class MaskInInfo(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Adds the masks of an environment's own method, such as ``action_masks()``, to its infos."""

    def __init__(self, env: gymnasium.Env[Any, Any], method: Any) -> None:
        super().__init__(env)
        self._method = method

    @classmethod
    def around(cls, env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
        """The environment, wrapped if it has such a method."""
        method = mask_method(env)
        return env if method is None else cls(env, method)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        observation, info = _parts(self.env.reset(seed=seed, options=options), _RESET)
        return copied(observation), self._with_mask(info)

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        *outcome, info = _parts(self.env.step(action), _STEP)
        observation, reward, terminated, truncated = map(copied, outcome)
        info = dict(info) if bool(terminated) else self._with_mask(info)
        return observation, reward, terminated, truncated, info

    def _with_mask(self, info: Mapping[str, Any]) -> dict[str, Any]:
        return dict(info) if has_mask(info) else {**info, MASK: copied(self._method())}
