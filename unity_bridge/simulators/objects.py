"""An environment that is an object of the trainer's own program, or of a Python file, hosted as a scene.

In another process an object comes through standard input from the process that started this one: no ``--env`` leads
there, and nothing else is ever unpickled.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import IO, Any

from unity_bridge.simulators.foreign.lookup.imports import import_file, parameters_of
from unity_bridge.simulators.own_scene import is_scene, own_scene
from unity_bridge.simulators.scene import Scene, SceneError, flag_of
from unity_bridge.simulators.schemes import SceneRequest, load_opener
from unity_bridge.simulators.third_party import ForeignCode


@dataclass(frozen=True, slots=True)
class PickledContent:
    """The trainer's request to the program."""

    environment: bytes
    """A factory; or an environment with the spec that Gymnasium made it by, which some lose by being copied."""

    makes_one: bool
    """Whether ``environment`` is a factory."""

    module_folders: tuple[str, ...]
    """The module search path of the program."""

    registered: tuple[bytes, ...]
    """Specs of environments that the program registered with Gymnasium."""


def name_of(env: Any) -> str:
    """The behavior name of an environment: its id without the namespace, PettingZoo's name, or its class."""
    inner = getattr(env, "unwrapped", env)
    registered = getattr(getattr(inner, "spec", None), "id", None)
    if registered is not None:
        return str(registered).rpartition("/")[2]
    named = getattr(env, "metadata", {}).get("name") if hasattr(env, "possible_agents") else None
    return str(named or type(inner).__name__)


def open_object(maker: Callable[[], Callable[..., Any]], env: str, wanted: SceneRequest) -> Scene:
    """The environment as a scene, with behaviors as ``gym:`` and ``pettingzoo:`` have them, called by ``name_of``.

    A scene that the user wrote keeps the names of its behaviors.

    Args:
        maker: returns what makes a copy of the environment each time.
        env: as messages call it.
        wanted: see ``open_scene``.

    Raises:
        SceneError: it cannot be unpacked or made, or is nothing that can be hosted.
    """
    wanted.refuse_settings_of_scenes(env)
    if wanted.env_kwargs:
        raise SceneError(
            f"{env}: --env-kwargs is for environments that have a name; pass env_kwargs= in Python"
        )
    code = ForeignCode(env)
    given = dict(wanted.options or {})
    make = code.call("unpacking it", maker)

    def make_one(count: int | None = None, *, rendered: bool = False) -> Any:
        return code.call("making it", _made, make, count, rendered=rendered)

    first = make_one(wanted.agents or given.get("copies"), rendered=wanted.rendered)
    if is_scene(first):
        for option in given if wanted.agents is None else ("agents", *given):
            raise code.error(
                f"{flag_of(option)} is for environments of other libraries; pass a scene's own arguments by "
                "--env-kwargs JSON"
            )
        return own_scene(code, first)
    open_made = load_opener("unity_bridge.simulators.foreign.open:open_made", env)
    return open_made(code, name_of, make_one, wanted, first=first)


def open_file(env: str, wanted: SceneRequest) -> Scene:
    """The scene or environment that a class or function of a Python file makes, ``FILE.py:NAME``.

    Raises:
        SceneError: there is no such file or name; or as ``open_object``.
    """
    path, _, name = env.rpartition(":")
    made_with = wanted.env_kwargs or {}
    return open_object(
        lambda: partial(import_file(env, path, name), **made_with),
        env,
        replace(wanted, env_kwargs=None),
    )


def opener_of(content: PickledContent) -> Callable[..., Scene]:
    """Returns a function that opens the received environment, with the arguments of ``open_scene``."""
    return lambda env, **wanted: open_object(partial(_maker, content), env, SceneRequest(**wanted))


def _maker(content: PickledContent) -> Callable[..., Any]:
    """A factory of the environment: of one that was sent, a copy each time."""
    _know(content.registered)
    if not content.makes_one:
        return lambda: with_spec(*pickle.loads(content.environment))
    make: Callable[..., Any] = pickle.loads(content.environment)
    return make


def with_spec(env: Any, spec: Any) -> Any:
    """The environment, with its spec where it lost that by being copied."""
    inner = getattr(env, "unwrapped", env)
    if spec is not None and getattr(inner, "spec", None) is None:
        inner.spec = spec
    return env


def _know(registered: tuple[bytes, ...]) -> None:
    """Registers environments with Gymnasium, except known ones and ones whose modules are missing here."""
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


def read_content(source: IO[bytes]) -> PickledContent:
    """The request of the program that started this process, whose modules are found from then on."""
    content: PickledContent = pickle.load(source)
    known = set(sys.path)
    sys.path += [folder for folder in content.module_folders if folder not in known]
    return content
