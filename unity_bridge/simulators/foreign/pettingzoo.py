"""PettingZoo's parallel environments, whose agents all decide at every step in which they are there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unity_bridge.simulators.foreign.actions import actuator
from unity_bridge.simulators.foreign.environment import Agent, AgentStep, Description, agent_step, copied
from unity_bridge.simulators.foreign.masks import mask_method, mask_of_info
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import ForeignCode

_RESET = ("observations", "infos")
_STEP = ("observations", "rewards", "terminations", "truncations", "infos")


class PettingZooBase:
    """The parts that environments in turns and parallel ones have in common."""

    def __init__(self, env: Any, code: ForeignCode) -> None:
        """Raises SceneError where the environment does not say which agents are possible."""
        if not getattr(env, "possible_agents", None):
            raise code.error("it does not say which possible_agents it has")
        self._env = env
        self._code = code
        self._method = mask_method(env, arguments=1)
        self._has_state = callable(getattr(getattr(env, "unwrapped", env), "state", None))
        spaces = {
            agent: (env.observation_space(agent), env.action_space(agent)) for agent in env.possible_agents
        }
        metadata = getattr(env, "metadata", None) or {}
        self.description = Description(spaces, metadata, state_space=getattr(env, "state_space", None))

    def state(self) -> Any:
        if not self._has_state:
            raise NotImplementedError
        return copied(self._env.state())

    def render(self) -> Any:
        return self._env.render()

    def close(self) -> None:
        self._env.close()

    def _mask(self, mask: Any, agent: Agent) -> Any:
        """The mask of an agent that is to act: the one of its info, else that of the environment's own method."""
        return self._method(agent) if mask is None and self._method is not None else mask

    def _last_mask(self, step: AgentStep) -> Any:
        """The mask of an agent that ended: needed only after a truncation, whose last observation has a value."""
        if step.terminated:
            return step.mask
        try:
            return copied(self._mask(step.mask, step.agent))
        except Exception as error:  # of agents that are gone, some environments know nothing any more
            text = f"the mask of agent '{step.agent}' after its truncation raised {type(error).__name__}: {error}"
            self._code.warn("last mask", f"{text}; every choice is allowed there")
            return None


class ParallelEnvironment(PettingZooBase):
    """A parallel environment behind the interface of ``Environment``."""

    def __init__(self, env: Any, code: ForeignCode) -> None:
        super().__init__(env, code)
        self._waiting: list[Agent] = []
        self._there: list[Agent] = []
        """The agents that want an action: waiting agents, and ended agents that are listed again."""
        self._seen: dict[Agent, Any] = {}

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        return self._code.call("reset()", self._reset, seed)

    def step(self, actions: Mapping[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        chosen = {agent: actions[agent] if agent in actions else self._idle(agent) for agent in self._there}
        return self._step(chosen)

    def seen(self) -> Mapping[Agent, Any]:
        return self._seen

    def _idle(self, agent: Agent) -> Any:
        return actuator(self.description.spaces[agent][1]).idle()

    def _reset(self, seed: int | None) -> list[AgentStep]:
        observations, infos = _parts(self._env.reset(seed=seed), _RESET)
        observations, masks = copied(observations), self._masks(infos)
        self._waiting = self._there = list(self._env.agents)
        self._require_seen(observations)
        self._seen = {agent: observations[agent] for agent in self._waiting}
        return [
            agent_step(agent, observations[agent], self._mask(masks.get(agent), agent))
            for agent in self._waiting
        ]

    def _step(self, actions: dict[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        *outcome, infos = _parts(self._env.step(actions), _STEP)
        observations, rewards, terminated, truncated = map(copied, outcome)
        masks = self._masks(infos)
        before, known, self._there = self._waiting, self._seen, list(self._env.agents)
        over = {agent for agent in (*before, *self._there) if terminated.get(agent) or truncated.get(agent)}
        gone = [agent for agent in before if agent in over]
        self._waiting = [agent for agent in self._there if agent not in over]
        self._require_no_agent_lost(before, over)
        self._require_seen(observations)
        self._warn_of_gaps(before, gone, observations, rewards)
        last = {agent: observations.get(agent, known[agent]) for agent in gone}
        self._seen = last | {agent: observations[agent] for agent in self._waiting}
        ended = [
            agent_step(
                agent, last[agent], masks.get(agent), rewards.get(agent, 0), terminated.get(agent), True
            )
            for agent in gone
        ]
        ended = [step._replace(mask=self._last_mask(step)) for step in ended]
        return ended, [
            agent_step(agent, observations[agent], self._mask(masks.get(agent), agent), rewards.get(agent, 0))
            for agent in self._waiting
        ]

    def _masks(self, infos: Mapping[Agent, Any]) -> dict[Agent, Any]:
        """The masks in the infos of agents that have one, copied."""
        found = {agent: mask_of_info(info, self._code) for agent, info in infos.items()}
        return {agent: copied(mask) for agent, mask in found.items() if mask is not None}

    def _warn_of_gaps(
        self, before: Sequence[Agent], gone: Sequence[Agent], observations: Mapping[Agent, Any], rewards: Any
    ) -> None:
        for agent in before:
            if agent not in rewards:
                text = f"step() returned no reward of agent '{agent}', which was there; it counts as 0"
                self._code.warn("no reward", text)
        for agent in gone:
            if agent in self._there:
                text = f"agent '{agent}' has ended and stays in env.agents; it gets its first choice"
                self._code.warn("ended", text)
            if agent not in observations:
                text = f"step() returned no last observation of agent '{agent}'; the one before is used"
                self._code.warn("no last observation", text)

    def _require_seen(self, observations: Mapping[Agent, Any]) -> None:
        for agent in self._waiting:
            if agent not in observations:
                raise SceneError(f"no observation of agent '{agent}', which is there")

    def _require_no_agent_lost(self, before: Sequence[Agent], over: set[Agent]) -> None:
        for agent in before:
            if agent not in over and agent not in self._waiting:
                raise SceneError(f"agent '{agent}' left without being terminated or truncated")


def _parts(returned: Any, expected: tuple[str, ...]) -> tuple[Any, ...]:
    """Returns an environment's return value after a check: users' environments often return Gymnasium's values."""
    if not isinstance(returned, tuple) or len(returned) != len(expected):
        got = f"{len(returned)} values" if isinstance(returned, tuple) else f"one {type(returned).__name__}"
        raise TypeError(f"expected {len(expected)} dictionaries by agent ({', '.join(expected)}), got {got}")
    for name, value in zip(expected, returned, strict=True):
        if not isinstance(value, Mapping):
            raise TypeError(f"{name}: expected a dictionary by agent, got {type(value).__name__}")
    return returned
