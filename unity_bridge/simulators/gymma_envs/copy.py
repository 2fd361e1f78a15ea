"""One copy of an environment with lists: who is still there, what each earned, and what all earned together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal, TypeVar

from unity_bridge.simulators.gymma_envs.environment import AgentList, Outcome
from unity_bridge.simulators.gymma_envs.spaces import idle_action
from unity_bridge.simulators.multi_agent_envs.copy import AgentStep
from unity_bridge.simulators.multi_agent_envs.roles import Agent
from unity_bridge.simulators.third_party import call_guarded

CommonReward = Literal["sum", "mean"]

_T = TypeVar("_T")


class ListCopy:
    """A copy of an environment whose agents all begin together, and may be done one by one.

    For an agent that is done the environment still wants an action: its first choice. What such an agent earns
    afterwards counts where the reward is common, and else for nobody.
    """

    def __init__(
        self,
        env: AgentList,
        called: str,
        *,
        common_reward: CommonReward | None = None,
        steps: int | None = None,
    ) -> None:
        """
        Args:
            env: what to play.
            called: as the user wrote it, for messages.
            common_reward: pay the group the sum or the mean of its agents' rewards, instead of each its own.
            steps: an episode that lasts so long is cut off there: truncated, also where the environment itself calls
                that the end of all its agents, which it does where it counts steps without saying so.
        """
        self.env = env
        self._called = called
        self._common_reward = common_reward
        self._limit = steps
        self._count = 0
        self._idle = call_guarded(
            called, "spaces", lambda: [idle_action(env.action_space(agent)) for agent in env.possible_agents]
        )
        self._index: dict[Agent, int] = {agent: i for i, agent in enumerate(env.possible_agents)}
        self.observations: dict[Agent, Any] = {}
        self.waiting: list[Agent] = []

    def reset(self, seed: int | None = None) -> list[AgentStep]:
        """Begins an episode. Returns the steps of all agents.

        Raises:
            SceneError: the environment raised something, or is none of its kind.
        """
        begun = self._guard("reset()", lambda: self.env.reset(seed))
        self._count = 0
        self.waiting = list(self.env.possible_agents)
        return self._steps(self.waiting, begun)

    def step(self, actions: dict[Agent, Any]) -> tuple[list[AgentStep], list[AgentStep]]:
        """Acts for all agents. Returns the steps of those that are done now, and of those that go on.

        An agent that is both terminated and truncated is terminated.

        Raises:
            SceneError: the environment raised something, or returned what is none of its kind.
        """
        chosen = [actions.get(agent, idle) for agent, idle in zip(self._index, self._idle, strict=True)]
        outcome = self._guard("step()", lambda: self.env.step(chosen))
        self._count += 1
        outcome = self._cut_off(outcome) if self._count == self._limit else outcome
        outcome = self._shared(outcome)
        before = self.waiting
        done = [terminated or truncated for terminated, truncated in zip(*outcome[3:5], strict=True)]
        self.waiting = [agent for agent in before if not done[self._index[agent]]]
        steps = self._steps(before, outcome)
        ended = [step for step in steps if done[self._index[step.agent]]]
        return ended, [step for step in steps if not done[self._index[step.agent]]]

    def state(self) -> Any:
        """The environment's own state."""
        return self._guard("state()", self.env.state)

    def _steps(self, agents: list[Agent], outcome: Outcome) -> list[AgentStep]:
        self.observations = {agent: outcome.observations[self._index[agent]] for agent in agents}
        return [
            AgentStep(
                agent,
                outcome.observations[i],
                outcome.rewards[i],
                outcome.masks[i],
                outcome.terminated[i],
                outcome.truncated[i] and not outcome.terminated[i],
                outcome.group_reward,
            )
            for agent in agents
            for i in (self._index[agent],)
        ]

    def _cut_off(self, outcome: Outcome) -> Outcome:
        everybody_is_done = all(outcome.terminated[self._index[agent]] for agent in self.waiting)
        return outcome._replace(
            terminated=[False] * len(self._index) if everybody_is_done else outcome.terminated,
            truncated=[True] * len(self._index),
        )

    def _shared(self, outcome: Outcome) -> Outcome:
        if self._common_reward is None:
            return outcome
        total = sum(outcome.rewards) / (len(outcome.rewards) if self._common_reward == "mean" else 1)
        nothing = [0.0] * len(outcome.rewards)
        return outcome._replace(rewards=nothing, group_reward=outcome.group_reward + total)

    def _guard(self, what: str, call: Callable[[], _T]) -> _T:
        return call_guarded(self._called, what, call)
