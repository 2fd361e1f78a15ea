"""``gymma:ID``: copies of one environment whose agents' observations, rewards and ends are lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unity_bridge.simulators.gymma_envs.copy import CommonReward, ListCopy
from unity_bridge.simulators.gymma_envs.environment import AgentList
from unity_bridge.simulators.gymma_envs.find import Maker, find_maker
from unity_bridge.simulators.multi_agent_envs.scene import MultiAgentScene
from unity_bridge.simulators.third_party import call_guarded


class GymmaScene(MultiAgentScene):
    """N copies of an environment that EPyMARL would call ``gymma``: a MultiAgentScene of them.

    Raises:
        SceneError: there is no such environment, it is one of a single agent, or as MultiAgentScene.
    """

    def __init__(
        self,
        name: str,
        copies: int = 1,
        kwargs: Mapping[str, Any] | None = None,
        *,
        common_reward: CommonReward | None = None,
        steps: int | None = None,
        with_state: bool | None = None,
        behaviors: Sequence[tuple[str, str]] = (),
        rendered: bool = False,
    ) -> None:
        """
        Args:
            name: what stands after ``gymma:``.
            copies: how many there are, all in this process.
            kwargs: of the environment.
            common_reward, steps: see ``ListCopy``.
            with_state, behaviors: see ``MultiAgentScene``.
            rendered: whether render() will be called.
        """
        called = f"gymma:{name}"
        makers = [find_maker(name, rendered=rendered and i == 0) for i in range(copies)]

        def copy(make: Maker) -> ListCopy:
            env = call_guarded(called, "making it", lambda: make(**(kwargs or {})))
            agents = call_guarded(called, "spaces", lambda: AgentList(env))
            return ListCopy(agents, called, common_reward=common_reward, steps=steps)

        super().__init__(
            called,
            name.rpartition(":")[2].rpartition("/")[2],
            [copy(make) for make in makers],
            with_state=with_state,
            behaviors=behaviors,
            rendered=rendered,
        )
