"""Scenes of environments that other libraries made: which kind one is, and how its copies are made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium
from gymnasium.error import CustomSpaceError
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.wrappers import PassiveEnvChecker

from unity_bridge.simulators.foreign.agent_lists import AgentListEnvironment, is_agent_list
from unity_bridge.simulators.foreign.copies import Copies, SerialCopies
from unity_bridge.simulators.foreign.environment import Environment
from unity_bridge.simulators.foreign.gymnasium import GymnasiumEnvironment, MaskInInfo
from unity_bridge.simulators.foreign.lookup.ids import Maker
from unity_bridge.simulators.foreign.lookup.libraries import library_of
from unity_bridge.simulators.foreign.lookup.wrappers import Wrapper, parse_wrapper, require_no_normalization
from unity_bridge.simulators.foreign.options import require_known
from unity_bridge.simulators.foreign.pettingzoo import ParallelEnvironment
from unity_bridge.simulators.foreign.scene import ForeignScene
from unity_bridge.simulators.foreign.turns import TurnEnvironment
from unity_bridge.simulators.foreign.vector import VectorCopies
from unity_bridge.simulators.scene import Scene, SceneError, flag_of
from unity_bridge.simulators.schemes import OPTIONS_OF_KIND, SceneRequest, load, scheme_of
from unity_bridge.simulators.third_party import ForeignCode

Make = Callable[..., Any]
"""Makes an environment of any library. Takes ``count``, the number of copies that the user asked for, which the
maker of a vector environment uses, and ``rendered``, whether render() will be called."""


def open_named(env: str, wanted: SceneRequest) -> Scene:
    """The environment of ``SCHEME:NAME``; see ``open_scene``.

    Raises:
        SceneError: there is none, or as ``open_made``.
    """
    wanted.refuse_settings_of_scenes(env)
    scheme = scheme_of(env)
    assert scheme is not None
    in_turn = {"in_turn": True} if "aec" in (wanted.options or {}) and scheme.kind == "pettingzoo" else {}
    maker = load(scheme.maker)(env, wanted.env_kwargs or {}, **in_turn)
    kind = None if scheme.kind == "single" else scheme.kind  # what a function returns may be any kind
    if kind and wanted.agents is not None:
        known = ", ".join(map(flag_of, OPTIONS_OF_KIND[kind]))
        raise SceneError(f"{env}: --agents is for single agents; expected {known}")
    try:
        return open_made(ForeignCode(env), lambda made: maker.name, maker, wanted, kind)
    except SceneError as error:
        name = env.partition(":")[2]
        library = library_of(name.rpartition(":")[2])
        if library is None or library.scheme == scheme.name or f"{library.scheme}:" in str(error):
            raise
        hint = f"did you mean {library.scheme}:{name}, of {library.module}?"
        raise SceneError(f"{error} ({hint})") from error.__cause__


def open_made(
    code: ForeignCode,
    name_of: Callable[[Any], str],
    make: Make,
    wanted: SceneRequest,
    kind: str | None = None,
    first: Any = None,
) -> Scene:
    """A scene of environments, whatever kind they are.

    Args:
        code: the environment's.
        name_of: the name of behaviors, of the first environment.
        make: makes one environment, or a vector environment; it is rendered the first time only.
        wanted: its ``agents`` or its option ``copies`` is the number of copies; without it there is one, or there are
            as many as a vector environment of the user's has.
        kind: of environments, a key of OPTIONS_OF_KIND; None to look.
        first: what was made already; None for nothing.

    Raises:
        SceneError: it cannot be made, is nothing that can be hosted, or has no use for an option.
    """
    try:
        return _opened(code, name_of, make, wanted, kind, first)
    except BaseException:
        code.release()
        raise


def _opened(
    code: ForeignCode,
    name_of: Callable[[Any], str],
    make: Make,
    wanted: SceneRequest,
    kind: str | None,
    first: Any,
) -> Scene:
    given, rendered = dict(wanted.options or {}), wanted.rendered
    count = wanted.agents or given.pop("copies", None)
    mode = given.get("vector", "sync")
    if mode != "vector_entry_point":
        first = make(count, rendered=rendered) if first is None else first
    elif isinstance(make, Maker):
        first = make.vectorized(count or 1, rendered=rendered)
    else:
        raise code.error("--vector vector_entry_point is for ids that are registered")
    kind = kind or _kind(code, first)
    require_known(code.name, given, OPTIONS_OF_KIND[kind])
    wrappers = tuple(parse_wrapper(code.name, text) for text in given.get("wrap", ()))
    copies: Copies
    if kind == "vector":
        copies = _vector_copies(code, first, count, wrappers, mode)
    elif mode == "async":
        first.close()
        copies = _asynchronous(code, _Wrapped(code.name, make, wrappers), count or 1)
    else:
        envs = [first, *(make() for _ in range((count or 1) - 1))]
        code.hold(envs)
        adapt = partial(_adapted, kind, code, given, wrappers)
        copies = SerialCopies(code, [code.call("spaces", adapt, env) for env in envs], rendered=rendered)
    shown = {name: given[name] for name in ("with_state", "behaviors") if name in given}
    return ForeignScene(code, name_of(first), copies, **shown)


def _kind(code: ForeignCode, env: Any) -> str:
    """Returns the kind of an environment, a key of OPTIONS_OF_KIND. Raises SceneError for any other object."""
    if getattr(env, "possible_agents", None):
        return "pettingzoo"
    if isinstance(env, VectorEnv):
        return "vector"
    if is_agent_list(env):
        return "list"
    if isinstance(env, gymnasium.Env):
        return "single"
    raise code.error(
        f"expected a gymnasium.Env or a gymnasium.vector.VectorEnv to be returned, got {env!r:.60}. A scene needs an "
        "attribute behaviors"
    )


def _adapted(
    kind: str, code: ForeignCode, options: Mapping[str, Any], wrappers: tuple[Wrapper, ...], env: Any
) -> Environment:
    """An environment behind the interface of ``Environment``."""
    if kind == "single":
        return GymnasiumEnvironment(_wrapped(code.name, env, wrappers), code)
    if kind == "list":
        own = {name: options[name] for name in ("common_reward", "steps") if name in options}
        return AgentListEnvironment(_without_checker(env), code, **own)
    return _pettingzoo(env, code, in_turn=bool(options.get("aec")))


def _without_checker(env: Any) -> Any:
    """The environment without Gymnasium's checker, which warns of every list: of rewards, of ends, of spaces."""
    outer = env
    while isinstance(outer, gymnasium.Wrapper):
        if isinstance(outer.env, PassiveEnvChecker):
            outer.env = outer.env.env
        outer = outer.env
    return env.env if isinstance(env, PassiveEnvChecker) else env


def _pettingzoo(env: Any, code: ForeignCode, *, in_turn: bool) -> Environment:
    """PettingZoo's wrapper makes an environment in turns parallel where it says that this is possible."""
    from pettingzoo.utils.conversions import aec_to_parallel

    if not callable(getattr(env, "last", None)):
        return ParallelEnvironment(env, code)
    if not in_turn and (getattr(env, "metadata", None) or {}).get("is_parallelizable"):
        return ParallelEnvironment(aec_to_parallel(env), code)
    return TurnEnvironment(env, code)


def _wrapped(called: str, env: Any, wrappers: tuple[Wrapper, ...]) -> gymnasium.Env[Any, Any]:
    """The environment with its wrappers. Raises SceneError where it is none of a single agent."""
    if not isinstance(env, gymnasium.Env):
        raise SceneError(f"{called}: expected a gymnasium.Env to be returned each time, got {env!r:.60}")
    wrapped: gymnasium.Env[Any, Any] = env
    for wrapper in wrappers:
        wrapped = wrapper.around(called, wrapped)
    require_no_normalization(called, wrapped)
    return wrapped


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A factory of a single copy with its wrappers. It can be sent to other processes."""

    called: str
    make: Make
    wrappers: tuple[Wrapper, ...]

    def __call__(self) -> gymnasium.Env[Any, Any]:
        return MaskInInfo.around(_wrapped(self.called, self.make(), self.wrappers))


def _asynchronous(code: ForeignCode, make: _Wrapped, count: int) -> Copies:
    """Copies in processes of their own. While one copy is reset, which may take long, the others take a step."""

    def start() -> VectorEnv[Any, Any, Any]:
        functions = [make] * count
        try:
            return AsyncVectorEnv(functions, autoreset_mode=AutoresetMode.NEXT_STEP)
        except ValueError as error:
            if not isinstance(error.__cause__, CustomSpaceError):
                raise
            # A space of a library's own, such as MiniGrid's of missions, has no place in shared memory.
            return AsyncVectorEnv(functions, shared_memory=False, autoreset_mode=AutoresetMode.NEXT_STEP)

    return VectorCopies(code.call("--vector async", start), code)


def _vector_copies(
    code: ForeignCode, env: Any, count: int | None, wrappers: tuple[Wrapper, ...], mode: str
) -> Copies:
    if mode == "async":
        raise code.error("--vector async: it is a vector environment already")
    if wrappers:
        raise code.error(
            f"--wrap {wrappers[0].text}: it is a vector environment, and wrappers are put around single ones; wrap it "
            "where it is made"
        )
    if count is not None and env.num_envs != count:
        raise code.error(
            f"--agents {count}: a vector environment of {env.num_envs} was made; give the function that makes it a "
            "parameter num_envs"
        )
    require_no_normalization(code.name, env)
    inner = env.unwrapped
    code.hold([env, *(inner.envs if isinstance(inner, SyncVectorEnv) else ())])
    return VectorCopies(env, code)
