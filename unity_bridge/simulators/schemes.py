"""The forms of ``--env`` that the bundled simulator hosts: ``sim:NAME``, ``gym:ID``, ``FILE.py:NAME`` and others.

Whatever differs between them is in their records. Nothing else asks for one of them by its name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unity_bridge.extras import install_hint
from unity_bridge.plugins import PluginGroup
from unity_bridge.simulators.academy import Academy
from unity_bridge.simulators.scene import Scene, SceneError

_SEVERAL = ("copies", "with_state", "behaviors")

OPTIONS_OF_KIND: Mapping[str, tuple[str, ...]] = {
    "single": ("wrap", "vector"),
    "vector": ("wrap", "vector"),
    "pettingzoo": (*_SEVERAL, "aec"),
    "list": (*_SEVERAL, "steps", "common_reward"),
}
"""The options that each kind of environment understands: of one agent, several copies in one, or several agents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SceneRequest:
    """The arguments that open a scene."""

    agents: int | None = None
    """The number of agents; None for the scene's default."""
    academy: Academy | None = None
    """The environment parameters that the scene reads, and the statistics that it writes."""
    pictures: Any = None
    """The format of camera observations; None for the scene's default."""
    env_kwargs: Mapping[str, Any] | None = None
    """Arguments of the environment; for environments of other libraries only."""
    options: Mapping[str, Any] | None = None
    """Options by name; the defaults for missing ones."""
    rendered: bool = False
    """Whether render() will be called."""

    def refuse_settings_of_scenes(self, env: str) -> None:
        """Refuses settings that only bundled scenes and those of plugins can use. Raises SceneError."""
        if self.pictures:
            raise SceneError(f"{env}: --pictures is for bundled scenes with a camera")
        if self.academy is not None:
            self.academy.parameters.declare(env, ())


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One form of ``--env``: how its environments are opened, and what they need."""

    name: str = ""
    """The word before the colon; empty for a Python file."""
    form: str = ""
    """As users write it; empty where no command line leads there."""
    meaning: str = ""
    aliases: tuple[str, ...] = ()
    """Other words that people write before the colon."""
    opener: str = "unity_bridge.simulators.foreign.open:open_named"
    """``module:function``, which takes the environment and a ``SceneRequest``."""
    maker: str = ""
    """``module:class`` of a factory of environments of another library, by the name that the user wrote."""
    kind: str = ""
    """Of its environments: a key of OPTIONS_OF_KIND, ``any`` of them, ``scene`` for ours, or empty for others'."""
    names: str = ""
    """``module:NAME`` of the names that it knows, or of a function that returns them, to suggest one of them."""
    copies: tuple[str, int] = ("", 0)
    """The flag that sets the number of copies, and how many a run without a configuration has, of other than bundled
    scenes (see ``copies_of``). More of them make a rollout more varied and its steps cheaper."""
    packages: tuple[str, ...] = ()
    """Modules that environments import, which an extra with the name of the scheme installs."""
    needs_all: bool = True
    """Whether environments need all ``packages``, or each its own alone."""
    is_isolated: bool = False
    """Whether even a single simulator gets a process of its own."""

    def open(self, env: str, wanted: SceneRequest) -> Scene:
        """Opens an environment; see ``open_scene``. The modules of libraries, which are extras, are imported here."""
        scene: Scene = load_opener(self.opener, env, self.name)(env, wanted)
        return scene


_LOOKUP = "unity_bridge.simulators.foreign.lookup"
_REGISTRY = "unity_bridge.simulators.registry"

FILE = Scheme(
    form="FILE.py:NAME", meaning="a class or function in a Python file", kind="any",
    opener="unity_bridge.simulators.objects:open_file", copies=("--copies", 0),
)  # fmt: skip
PROGRAM = Scheme(name="python", kind="any", copies=("--copies", 0))
"""Objects of a program, which opens them itself."""

_BUILT_IN = (
    Scheme(
        name="sim", form="sim:NAME", meaning="a bundled scene", kind="scene",
        opener=f"{_REGISTRY}:open_bundled", names=f"{_REGISTRY}:SCENE_NAMES",
    ),
    Scheme(
        name="gym", form="gym:ID", meaning="a Gymnasium environment", kind="single", aliases=("gymnasium",),
        maker=f"{_LOOKUP}.ids:Maker", names="gymnasium:registry", packages=("gymnasium",), copies=("--agents", 8),
    ),
    Scheme(
        name="gymma", form="gymma:ID", meaning="one with lists of agents", kind="list", maker=f"{_LOOKUP}.ids:Maker",
        packages=("lbforaging", "rware", "ma_gym", "smaclite", "gfootball"), needs_all=False, copies=("--copies", 16),
        is_isolated=True,  # they seed the global random generators
    ),
    Scheme(
        name="pettingzoo", form="pettingzoo:MODULE", meaning="a PettingZoo environment", kind="pettingzoo",
        aliases=("pz",), maker=f"{_LOOKUP}.pettingzoo_modules:PettingZooMaker",
        names=f"{_LOOKUP}.pettingzoo_modules:installed_modules", packages=("pettingzoo", "mpe2"),
        copies=("--copies", 16),
    ),
    PROGRAM,
)  # fmt: skip
SCHEMES: Mapping[str, Scheme] = {scheme.name: scheme for scheme in _BUILT_IN}
"""By the word before the colon."""

SIMULATOR_PLUGINS = PluginGroup("environment scheme", "trainer_service.simulators", frozenset(SCHEMES))
"""Schemes of other distributions, whose environments the simulator hosts, too: what opens a scene, see
``SceneOpener``."""


def known_schemes() -> list[Scheme]:
    """All forms that users may write."""
    plugins = map(_of_plugin, SIMULATOR_PLUGINS.offered())
    return [each for each in (*SCHEMES.values(), *plugins, FILE) if each.form]


def scheme_of(env: str) -> Scheme | None:
    """The scheme of an environment; None for the path of a program and for any other text."""
    word, colon, _ = env.partition(":")
    if colon and word in SCHEMES:
        return SCHEMES[word]
    if colon and word in SIMULATOR_PLUGINS.offered():
        return _of_plugin(word)
    path, _, name = env.rpartition(":")
    return FILE if path.endswith(".py") and name.isidentifier() else None


def load(place: str) -> Any:
    """The object that ``module:NAME`` names."""
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(module), name)


def load_opener(place: str, env: str, extra: str = "gym") -> Callable[..., Scene]:
    """The function that opens an environment. Raises SceneError where Gymnasium, of an extra, is missing or too old."""
    try:
        opener: Callable[..., Scene] = load(place)
    except ModuleNotFoundError as error:
        if error.name != "gymnasium":
            raise
        raise SceneError(f"{env}: Gymnasium is not installed; run: {install_hint(extra)}") from None
    except ImportError as error:
        raise SceneError(f"{env}: Gymnasium is too old ({error}); run: {install_hint(extra)}") from None
    return opener


def _of_plugin(name: str) -> Scheme:
    return Scheme(name=name, form=f"{name}:NAME", opener=f"{_REGISTRY}:open_plugin", is_isolated=True)
