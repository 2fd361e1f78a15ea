"""An environment that the trainer's own program sent, hosted as a scene.

It comes through standard input from the process that started this one: no ``--env`` leads here, and nothing else is
ever unpickled.
"""

from __future__ import annotations

import functools
import pickle
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import IO, Any

from unity_bridge.simulators.gym_envs import options as gym_options
from unity_bridge.simulators.multi_agent_envs import options as multi_agent_options
from unity_bridge.simulators.pettingzoo_envs import options as pettingzoo_options
from unity_bridge.simulators.scene import Scene, SceneError, flag_of
from unity_bridge.simulators.third_party import call_guarded


@dataclass(frozen=True, slots=True)
class PickledContent:
    """What the trainer's program sends."""

    environment: bytes
    """What makes one; or an environment with the spec that Gymnasium made it by, which some lose by being copied."""

    makes_one: bool
    """Whether it makes one."""

    module_folders: tuple[str, ...]
    """Where the program finds modules."""

    registered: tuple[bytes, ...]
    """Specs of environments that the program registered with Gymnasium."""


def name_of(env: Any) -> str:
    """What the behavior of an environment is called: its id without the namespace, PettingZoo's name, or its class."""
    inner = getattr(env, "unwrapped", env)
    spec = getattr(inner, "spec", None)
    if spec is not None:
        return str(spec.id).rpartition("/")[2]
    named = getattr(env, "metadata", {}).get("name") if hasattr(env, "possible_agents") else None
    return str(named or type(inner).__name__)


def open_pickled(
    content: PickledContent,
    env: str,
    *,
    agents: int | None = None,
    env_kwargs: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
    rendered: bool = False,
    **of_scenes: Any,
) -> Scene:
    """The environment as a scene, with behaviors as ``gym:`` and ``pettingzoo:`` have them, called by ``name_of``.

    Args:
        content: the environment.
        env: as messages call it.
        agents, env_kwargs, options, rendered: as ``open_scene``.
        of_scenes: what only scenes of ours have.

    Raises:
        SceneError: it cannot be unpacked or made, or is nothing that can be hosted.
    """
    if env_kwargs:
        raise SceneError(
            f"{env}: --env-kwargs is for environments that have a name; pass env_kwargs= in Python"
        )
    given = dict(options or {})
    count = agents or given.pop("copies", None)
    make = call_guarded(env, "unpacking it", lambda: _maker(content))
    first = call_guarded(env, "making it", lambda: _made(make, count, rendered=rendered))
    if getattr(first, "possible_agents", None):
        return _open_pettingzoo(env, first, make, count or 1, given, rendered=rendered)
    return _open_gym(env, first, make, count, given, rendered=rendered)


def _maker(content: PickledContent) -> Callable[..., Any]:
    """What makes the environment: of one that was sent a copy each time."""
    _know(content.registered)
    if not content.makes_one:
        return lambda: _copy(content.environment)
    make: Callable[..., Any] = pickle.loads(content.environment)
    return make


def _copy(environment: bytes) -> Any:
    env, spec = pickle.loads(environment)
    inner = getattr(env, "unwrapped", env)
    if spec is not None and getattr(inner, "spec", None) is None:
        inner.spec = spec
    return env


def _know(registered: tuple[bytes, ...]) -> None:
    """Registers environments with Gymnasium, but for those that it knows and those that need what is not here."""
    if not registered:
        return
    from gymnasium import registry

    for each in registered:
        try:
            spec = pickle.loads(each)
        except Exception:
            continue
        registry.setdefault(spec.id, spec)


def _made(make: Callable[..., Any], count: int | None, *, rendered: bool) -> Any:
    from unity_bridge.simulators.gym_envs.find import parameters_of

    takes = parameters_of(make)
    given: dict[str, Any] = {"render_mode": "rgb_array"} if rendered and "render_mode" in takes else {}
    if count is not None and "num_envs" in takes:
        given["num_envs"] = count
    return _drawn(make(**given)) if rendered else make(**given)


def _drawn(env: Any) -> Any:
    """The environment as one that draws itself, where it is known how it was made."""
    spec = getattr(env, "spec", None)
    if getattr(env, "render_mode", None) == "rgb_array" or spec is None:
        return env
    import gymnasium

    return gymnasium.make(spec, render_mode="rgb_array")


def _open_gym(
    env: str,
    first: Any,
    make: Callable[..., Any],
    count: int | None,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    from unity_bridge.simulators.gym_envs.find import Maker
    from unity_bridge.simulators.gym_envs.make import make_copies
    from unity_bridge.simulators.gym_envs.scene import GymScene

    _require_known(env, options, gym_options.OWN_OPTIONS)
    made = [first]

    @functools.wraps(make, updated=())
    def next_one(**kwargs: Any) -> Any:
        return made.pop() if made else make(**kwargs)

    class OwnMaker(Maker):
        def factory(self) -> Callable[..., Any]:
            return next_one

    maker = OwnMaker(env, "", {}, rendered)
    copies = make_copies(maker, count, options.get("wrap", ()), options.get("vector", "sync"))
    return GymScene(env, name_of(first), copies)


def _open_pettingzoo(
    env: str,
    first: Any,
    make: Callable[..., Any],
    count: int,
    options: Mapping[str, Any],
    *,
    rendered: bool,
) -> Scene:
    from unity_bridge.simulators.multi_agent_envs.scene import MultiAgentScene
    from unity_bridge.simulators.pettingzoo_envs.modules import copy_of

    others = multi_agent_options.OWN_OPTIONS
    _require_known(env, options, (*others, *pettingzoo_options.OWN_OPTIONS))
    copies = [
        copy_of(each, env, aec=options.get("aec", False))
        for each in (first, *(make() for _ in range(count - 1)))
    ]
    own = {option: value for option, value in options.items() if option in others}
    return MultiAgentScene(env, name_of(first), copies, rendered=rendered, **own)


def _require_known(env: str, options: Mapping[str, Any], known: Sequence[str]) -> None:
    for option in options:
        if option not in known:
            raise SceneError(f"{env}: it has no {flag_of(option)}; expected {', '.join(map(flag_of, known))}")


def run_pickled(source: IO[bytes]) -> int:
    """Runs one simulator with the environment that a file holds; see ``unity_bridge.simulators.command.main``."""
    from unity_bridge.simulators import command

    content: PickledContent = pickle.load(source)
    known = set(sys.path)
    sys.path += [folder for folder in content.module_folders if folder not in known]
    return command.main(opener=functools.partial(open_pickled, content))
