"""The copies of an environment, by the options that users give."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import gymnasium
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, VectorEnv

from unity_bridge.simulators.gym_envs.copies import Copies, SerialCopies
from unity_bridge.simulators.gym_envs.find import Maker
from unity_bridge.simulators.gym_envs.vector_copies import VectorCopies
from unity_bridge.simulators.gym_envs.wrappers import Wrapper, parse_wrapper
from unity_bridge.simulators.scene import SceneError
from unity_bridge.simulators.third_party import call_guarded


def make_copies(maker: Maker, agents: int | None, wrappers: Sequence[str] = (), mode: str = "sync") -> Copies:
    """Makes copies of an environment.

    Args:
        maker: what makes one.
        agents: how many; None for one, or for as many as a vector environment of the user's has.
        wrappers: as users write them, the innermost one first.
        mode: one of VECTOR_MODES.

    Raises:
        SceneError: there is no such environment or wrapper, or it cannot be made.
    """
    parsed = tuple(parse_wrapper(maker.called, text) for text in wrappers)
    if mode == "vector_entry_point":
        return _vector_copies(maker, maker.vectorized(agents or 1), agents, parsed)
    first = maker(agents)
    if isinstance(first, VectorEnv):
        if mode == "async":
            raise SceneError(f"{maker.called}: --vector async: it is a vector environment already")
        return _vector_copies(maker, first, agents, parsed)
    first = _Wrapped(maker, parsed).around(first)
    _require_one_agent(maker.called, first)
    if mode == "async":
        first.close()
        return _asynchronous(_Wrapped(maker, parsed), agents or 1)
    others = _Wrapped(replace(maker, rendered=False), parsed)
    return SerialCopies(maker.called, [first, *(others() for _ in range((agents or 1) - 1))])


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """What makes a single copy with its wrappers. It can be sent to other processes."""

    maker: Maker
    wrappers: tuple[Wrapper, ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return self.around(self.maker())

    def around(self, env: Any) -> gymnasium.Env[Any, Any]:
        """The environment with its wrappers. Raises SceneError where it is none."""
        if not isinstance(env, gymnasium.Env):
            raise SceneError(
                f"{self.maker.called}: expected a gymnasium.Env or a gymnasium.vector.VectorEnv to be returned, "
                f"got {env!r:.60}"
            )
        wrapped: gymnasium.Env[Any, Any] = env
        for wrapper in self.wrappers:
            wrapped = wrapper.around(self.maker.called, wrapped)
        return wrapped


def _asynchronous(make: _Wrapped, count: int) -> Copies:
    """Copies in processes of their own. While one begins anew, which may take long, the others take a step."""
    called = make.maker.called

    def start() -> VectorEnv[Any, Any, Any]:
        functions = [make] * count
        try:
            return AsyncVectorEnv(functions, autoreset_mode=AutoresetMode.NEXT_STEP)
        except ValueError as error:
            if not isinstance(error.__cause__, CustomSpaceError):
                raise
            # A space of a library's own, such as MiniGrid's of missions, has no place in shared memory.
            return AsyncVectorEnv(functions, shared_memory=False, autoreset_mode=AutoresetMode.NEXT_STEP)

    return VectorCopies(called, call_guarded(called, "--vector async", start))


def _vector_copies(maker: Maker, env: Any, agents: int | None, wrappers: Sequence[Wrapper]) -> Copies:
    if wrappers:
        raise SceneError(
            f"{maker.called}: --wrap {wrappers[0].text}: it is a vector environment, and wrappers are put around "
            "single ones; wrap it where it is made"
        )
    if agents is not None and env.num_envs != agents:
        raise SceneError(
            f"{maker.called}: --agents {agents}: a vector environment of {env.num_envs} was made; give the function "
            "that makes it a parameter num_envs"
        )
    return VectorCopies(maker.called, env)


def _require_one_agent(called: str, env: gymnasium.Env[Any, Any]) -> None:
    agents = getattr(env.unwrapped, "n_agents", 1)
    if isinstance(env.action_space, gymnasium.spaces.Tuple) and len(env.action_space.spaces) == agents > 1:
        name = called.partition(":")[2]
        raise SceneError(f"{called}: an environment of {agents} agents; expected --env=gymma:{name}")
