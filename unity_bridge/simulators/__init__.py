"""The bundled simulator: a gRPC client that hosts scenes and Gymnasium environments in a process of its own.

On the wire it is a Unity build. ``python -m unity_bridge.simulators sim:3dball --mlagents-port 5004``
"""

from unity_bridge.plugins import PluginGroup

BUNDLED_SCHEMES = ("sim", "gym", "gymma", "pettingzoo")
"""``scheme:name`` environments that the bundled simulator hosts."""

PROGRAM_SCHEME = "python"
"""The scheme of environments that are objects of a program, which sends them itself."""

SIMULATOR_PLUGINS = PluginGroup(
    "environment scheme", "trainer_service.simulators", frozenset({*BUNDLED_SCHEMES, PROGRAM_SCHEME})
)
"""Schemes of other distributions, whose environments it hosts, too: what opens a scene, see ``SceneOpener``."""

LAUNCHED = "TRAINER_SERVICE_LAUNCHED"
"""An environment variable that a trainer sets for each program which it starts, so that a simulator knows that it must
not outlive its trainer."""


def is_bundled(env: str) -> bool:
    """Whether the bundled simulator hosts an environment, which then is ``scheme:name`` or ``FILE.py:NAME``."""
    return has_scheme(env) or in_file(env) is not None


def has_scheme(env: str) -> bool:
    """Whether an environment is of the form ``scheme:name``."""
    scheme, colon, _ = env.partition(":")
    return bool(colon) and (scheme in SIMULATOR_PLUGINS.built_in or scheme in SIMULATOR_PLUGINS.offered())


def in_file(env: str) -> tuple[str, str] | None:
    """The path and the name of ``FILE.py:NAME``, a class or function in a file; None for other environments."""
    path, _, name = env.rpartition(":")
    return (path, name) if path.endswith(".py") and name.isidentifier() and not has_scheme(env) else None
