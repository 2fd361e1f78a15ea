"""Environments whose spaces, observations, rewards and ends are lists, one entry per agent, in every dialect."""

from __future__ import annotations

import inspect
import random
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.environment import Agent, AgentStep, Description, as_number, copied
from unity_bridge.simulators.foreign.masks import mask_method, mask_of_info, required_arguments
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

CommonReward = Literal["sum", "mean"]
Space = spaces.Space[Any]


class AgentListEnvironment:
    """An environment with lists behind the interface of ``Environment``.

    Agents are called ``agent_0``, ``agent_1`` and so on; they begin together, and may be done one by one. What
    Gymnasium's interface and the older gym's return is understood, and whatever of it may be a list or one value for
    all. For an agent that is done the environment still wants an action: its first choice. What such an agent earns
    afterwards counts where the reward is common, and else for no agent.
    """

    def __init__(
        self,
        env: Any,
        code: ForeignCode,
        *,
        common_reward: CommonReward | None = None,
        steps: int | None = None,
    ) -> None:
        """
        Args:
            env: of Gymnasium, of the older gym, or like them.
            code: takes warnings.
            common_reward: pay the group the sum or the mean of its agents' rewards, instead of each its own.
            steps: an episode that lasts so long is cut off there: truncated, also where the environment itself calls
                that the end of all its agents, which it does where it counts steps without saying so.

        Raises:
            SceneError: its spaces are not those of several agents.
        """
        self._env = env
        self._bare = getattr(env, "unwrapped", env)
        self._code = code
        self._common_reward = common_reward
        self._limit = steps
        self._count = 0
        sees, does = spaces_of_agents(env.observation_space, env.action_space)
        self._agents = [f"agent_{i}" for i in range(len(sees))]
        self.description = Description(
            dict(zip(self._agents, zip(sees, does, strict=True), strict=True)),
            getattr(env, "metadata", None) or {},
        )
        self._actuators = [actuator(space) for space in does]
        self._seeded_by_reset = "seed" in inspect.signature(self._bare.reset).parameters
        self._state = next(
            (found for name in ("state", "get_state") if callable(found := getattr(self._bare, name, None))
             and not required_arguments(found)), None,
        )  # fmt: skip
        self._allowed = mask_method(env)
        self._waiting: list[int] = []
        self._seen: dict[Agent, Any] = {}

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        steps = self._code.call("reset()", self._reset, seed)
        self._count = 0
        self._waiting = list(range(len(steps)))
        self._seen = {step.agent: step.observation for step in steps}
        return steps

    def step(self, actions: Mapping[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        chosen = [
            actions[agent] if agent in actions else each.idle()
            for agent, each in zip(self._agents, self._actuators, strict=True)
        ]
        steps = self._shared(self._step(chosen))
        self._count += 1
        told = [steps[i] for i in self._waiting]
        told = self._cut_off(told) if self._count == self._limit else told
        self._seen = {step.agent: step.observation for step in told}
        ended = [step for step in told if step.terminated or step.truncated]
        self._waiting = [
            i for i, step in zip(self._waiting, told, strict=True) if not (step.terminated or step.truncated)
        ]
        return ended, [step for step in told if not (step.terminated or step.truncated)]

    def seen(self) -> Mapping[Agent, Any]:
        return self._seen

    def state(self) -> Any:
        if self._state is None:
            raise NotImplementedError
        return copied(self._code.call("state()", self._state))

    def render(self) -> Any:
        # The older gym's way, which some still have, is a parameter.
        if "mode" in inspect.signature(self._bare.render).parameters:
            return self._bare.render(mode="rgb_array")
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _reset(self, seed: int | None) -> list[AgentStep]:
        if seed is None or self._seeded_by_reset:
            returned = self._env.reset() if seed is None else self._env.reset(seed=seed)
        else:
            self._seed_as_of_old(seed)
            returned = self._env.reset()
        observations: Any = returned
        info: Any = {}
        if isinstance(returned, tuple) and len(returned) == 2:
            each = returned[1] if isinstance(returned[1], list) else [returned[1]]
            if each and all(isinstance(part, Mapping) for part in each):
                observations, info = returned
        return self._steps(observations, [0.0] * len(self._agents), False, False, info)

    def _seed_as_of_old(self, seed: int) -> None:
        """Seeds the environment, and what some of them draw from besides: ma-gym's TrafficJunction."""
        random.seed(seed)
        np.random.seed(seed)
        if callable(getattr(self._env, "seed", None)):
            self._env.seed(seed)

    def _step(self, actions: list[Any]) -> list[AgentStep]:
        """Acts for all agents, done ones included. Raises TypeError for an unknown form of outcome."""
        returned = self._env.step(actions)
        if not isinstance(returned, tuple) or len(returned) not in (4, 5):
            raise TypeError(
                "expected observations, rewards, terminated, truncated, info (or gym's four: done instead of both), "
                f"got {returned!r:.60}"
            )
        if len(returned) == 5:
            return self._steps(*returned)
        observations, rewards, done, info = returned
        cut = info.get("TimeLimit.truncated", False) if isinstance(info, Mapping) else False
        ends = list(zip(self._flags(done), self._flags(cut), strict=True))
        return self._steps(
            observations,
            rewards,
            [over and not late for over, late in ends],
            [all(end) for end in ends],
            info,
        )

    def _steps(
        self, observations: Any, rewards: Any, terminated: Any, truncated: Any, info: Any
    ) -> list[AgentStep]:
        """The steps of all agents, from lists or from values for all of them. Copies them before it asks for masks."""
        seen = copied(self._listed(observations, "observations"))
        is_shared = np.ndim(rewards) == 0
        shared = as_number(rewards) if is_shared else 0.0
        own = [0.0] * len(seen) if is_shared else [*map(as_number, self._listed(rewards, "rewards"))]
        ends = list(zip(self._flags(terminated), self._flags(truncated), strict=True))
        outcome = zip(self._agents, seen, self._masks(info), own, ends, strict=True)
        return [
            AgentStep(agent, observation, mask, reward, over, late and not over, shared)
            for agent, observation, mask, reward, (over, late) in outcome
        ]

    def _cut_off(self, steps: list[AgentStep]) -> list[AgentStep]:
        """Truncates all waiting agents, except agents that ended before others."""
        everybody_is_done = all(step.terminated for step in steps)
        return [
            step._replace(terminated=False, truncated=True)
            if everybody_is_done or not step.terminated
            else step
            for step in steps
        ]

    def _shared(self, steps: list[AgentStep]) -> list[AgentStep]:
        if self._common_reward is None:
            return steps
        total = sum(step.reward for step in steps) / (len(steps) if self._common_reward == "mean" else 1)
        return [step._replace(reward=0.0, group_reward=step.group_reward + total) for step in steps]

    def _listed(self, values: Any, what: str) -> list[Any]:
        agents = len(self._agents)
        if not _is_for_agents(values, agents):
            raise TypeError(f"expected {what} of {agents} agents, got {values!r:.60}")
        return list(values)

    def _flags(self, flags: Any) -> list[bool]:
        if np.ndim(flags) == 0:
            return [bool(flags)] * len(self._agents)
        return [bool(flag) for flag in self._listed(flags, "ends")]

    def _masks(self, info: Any) -> Sequence[Any]:
        """A mask for each agent, copied: out of one info for all or of one for each, or of the environment's method."""
        agents = len(self._agents)
        masks: Any = mask_of_info(info, self._code)
        if _is_for_agents(info, agents) and not isinstance(info, Mapping):
            found = [mask_of_info(each, self._code) for each in info]
            masks = None if all(mask is None for mask in found) else found
        if masks is None and self._allowed is not None:
            masks = self._allowed()
        if masks is None:
            return [None] * agents
        if not _is_for_agents(masks, agents):
            text = f"action mask: expected a list of {agents}, one for each agent, got {masks!r:.60}"
            self._code.warn("masks", f"{text}; every choice is allowed")
            return [None] * agents
        return [self._unpadded(copied(mask), i) for i, mask in enumerate(masks)]

    def _unpadded(self, mask: Any, agent: int) -> Any:
        """A mask as long as an agent's choices: EPyMARL's environments pad all with zeros to the longest."""
        sizes = [each.spec.mask_size for each in self._actuators]
        has_one_branch = self._actuators[agent].spec.discrete_size == 1
        if mask is None or not has_one_branch or np.size(mask) != max(sizes):
            return mask
        values = np.ravel(mask)
        return mask if np.any(values[sizes[agent] :]) else values[: sizes[agent]]


def _is_for_agents(values: Any, agents: int) -> bool:
    """Whether something is a list with an entry for each agent."""
    return (
        isinstance(values, (Sequence, np.ndarray)) and not isinstance(values, str) and len(values) == agents
    )


_ARGUMENTS = {
    "Box": ("low", "high", "shape", "dtype"),
    "Discrete": ("n",),
    "MultiDiscrete": ("nvec",),
    "MultiBinary": ("n",),
}
"""Attributes that construct the space of the same name in Gymnasium."""


def spaces_of_agents(observations: Any, actions: Any) -> tuple[list[Space], list[Space]]:
    """The observation space and the action space of each agent.

    Both are tuples or lists of spaces; or, where all agents are alike, observations are the rows of one Box and actions
    the numbers of one MultiDiscrete (as in Google Research Football).

    Raises:
        SceneError: they are those of a single agent, or differ in length.
    """
    does = _each(actions) or _stacked_actions(actions)
    sees = _each(observations) or _rows(observations, len(does))
    for what, found, whole in (("action", does, actions), ("observation", sees, observations)):
        if not found:
            raise SceneError(
                f"its {what} space is not one of several agents: expected a tuple or list, one space per agent, "
                f"got {whole!r:.80}; environments of one agent are --env=gym:ID"
            )
    if len(sees) != len(does):
        raise SceneError(f"{len(sees)} agents see and {len(does)} act: expected as many spaces of each")
    return [as_gymnasium(space) for space in sees], [as_gymnasium(space) for space in does]


def is_agent_list(env: Any) -> bool:
    """Whether an environment has an action space for each of several agents.

    A Python list or tuple of spaces is always one per agent. A Tuple space is also the space of a single agent's
    combined action, so the environment must state as many agents, as ``n_agents`` or ``num_agents``.
    """
    actions = getattr(env, "action_space", None)
    if isinstance(actions, (list, tuple)):
        return True
    bare = getattr(env, "unwrapped", env)
    agents = getattr(bare, "n_agents", None) or getattr(bare, "num_agents", 1)
    return isinstance(agents, int) and len(_each(actions)) == agents > 1


def _each(whole: Any) -> list[Any]:
    members = whole.spaces if type(whole).__name__ == "Tuple" else whole
    return list(members) if isinstance(members, (list, tuple)) else []


def _stacked_actions(actions: Any) -> list[Space]:
    if type(actions).__name__ != "MultiDiscrete":
        return []
    return [spaces.Discrete(int(choices)) for choices in np.ravel(actions.nvec)]


def _rows(observations: Any, agents: int) -> list[Space]:
    shape: tuple[int, ...] = getattr(observations, "shape", None) or ()
    if type(observations).__name__ != "Box" or len(shape) < 2 or shape[0] != agents:
        return []
    return [
        spaces.Box(low, high, shape[1:], observations.dtype.type)
        for low, high in zip(observations.low, observations.high, strict=True)
    ]


def as_gymnasium(space: Any) -> Space:
    """The space itself, or Gymnasium's for one of the older gym.

    Raises:
        SceneError: Gymnasium has none like it.
    """
    if isinstance(space, spaces.Space):
        return space
    kind = type(space).__name__
    if kind == "Tuple":
        return spaces.Tuple([as_gymnasium(member) for member in space.spaces])
    if kind == "Dict":
        return spaces.Dict({key: as_gymnasium(member) for key, member in space.spaces.items()})
    if kind not in _ARGUMENTS:
        raise SceneError(f"expected a space of gymnasium or gym for each agent, got {space!r:.80}")
    given = {name: getattr(space, name) for name in _ARGUMENTS[kind]}
    if kind == "Box":
        given["dtype"] = given["dtype"].type
    if kind == "Discrete":
        given["start"] = int(getattr(space, "start", 0))
    made: Space = getattr(spaces, kind)(**given)
    return made
