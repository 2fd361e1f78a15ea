"""The object of a plugin's entry point: the settings of an algorithm or reward signal, and its factory.

docs/plugins.md lists the groups of entry points and their objects.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from unity_bridge.errors import PluginError
from unity_bridge.plugins import PluginGroup, reason, register
from unity_bridge.process_guard import call_guarded

_Base = TypeVar("_Base")
_Part = TypeVar("_Part")

__all__ = ["AlgorithmPlugin", "RewardSignalPlugin", "register"]

PLUGIN_API = 2
"""Version of the interfaces that plugins are written for: ``Learner``, ``RewardSource``, encoders of pictures,
openers of scenes, ``Callback`` and ``SummaryWriter``. It counts up when plugins have to change."""

CALLBACK_PLUGINS = PluginGroup("callback", "trainer_service.callbacks")
"""Callbacks of other distributions, which ``--hooks NAME`` takes."""

MLAGENTS_STATS_WRITERS = PluginGroup("stats writer", "mlagents.stats_writer")
"""Writers of statistics that were made for ML-Agents: examples/stats_writers runs them."""


@dataclass(frozen=True, slots=True)
class _SettingsAndFactory:
    settings: type[Any]
    """The class of its configuration section. Its module must not import torch, because the trainer checks a
    configuration without torch."""

    factory: str | Callable[..., Any]
    """The function that makes it; as ``module:object`` it is imported when it is needed."""

    api: int = PLUGIN_API
    """The ``PLUGIN_API`` that it was written for, as a number."""

    def load_factory(self) -> Callable[..., Any]:
        """The factory itself. Raises whatever importing it raises."""
        made = pkgutil.resolve_name(self.factory) if isinstance(self.factory, str) else self.factory
        if not callable(made):
            raise TypeError(f"expected a class or function, got {made!r}")
        return made


@dataclass(frozen=True, slots=True)
class AlgorithmPlugin(_SettingsAndFactory):
    """A trainer type: ``settings`` derive from ``Hyperparameters``, ``factory(spec, settings, compute)`` makes a
    ``Learner``."""


@dataclass(frozen=True, slots=True)
class RewardSignalPlugin(_SettingsAndFactory):
    """A reward signal: ``settings`` derive from ``RewardSignalSettings``, ``factory(spec, settings, device, shard)``
    makes a ``RewardSource``."""


def settings_class(
    known: dict[str, type[_Base]],
    group: PluginGroup,
    name: str,
    kind: type[_SettingsAndFactory],
    base: type[_Base],
) -> type[_Base] | None:
    """Returns the settings class of a name, None if nothing has that name. A plugin's class is added to the known ones.

    Raises PluginError if a plugin's class does not derive from ``base``.
    """
    if name not in known and name in group.offered():
        known[name] = _load(group, name, kind, base).settings
    return known.get(name)


def load_factory(
    group: PluginGroup, name: str, kind: type[_SettingsAndFactory], base: type[Any]
) -> Callable[..., Any]:
    """Returns the factory of the plugin of that name. Raises PluginError."""
    found = _load(group, name, kind, base)
    try:
        return call_guarded(found.load_factory)
    except Exception as error:  # it is code of others: anything may happen in it
        raise PluginError(f"{group.offered()[name]} cannot be loaded: {reason(error)}") from error


def guarded(factory: Callable[..., Any], plugin: str) -> Callable[..., Any]:
    """Wraps a factory: errors become a PluginError that names the plugin, except ValueError, which is a refusal."""

    def make(*arguments: Any) -> Any:
        try:
            return factory(*arguments)
        except (ValueError, PluginError):
            raise
        except (Exception, SystemExit) as error:  # it is code of others: anything may happen in it
            raise PluginError(f"{plugin} failed: {reason(error)}") from error

    return make


def make_part(
    group: PluginGroup, name: str, kind: type[_Part], make: Callable[[Callable[..., Any]], Any]
) -> _Part:
    """Makes a part of a learner that a plugin offers.

    Args:
        group: of the plugin.
        name: under which it is offered.
        kind: the class that the part derives from.
        make: calls the plugin's object with its arguments.

    Raises:
        ValueError: the plugin refuses its arguments.
        PluginError: it is not there, failed, or made something else.
    """
    plugin = group.offered().get(name)
    if plugin is None:
        raise PluginError(f"no {group.kind} '{name}': what offered it is not installed")
    made = guarded(make, str(plugin))(plugin.load())
    if not isinstance(made, kind):
        raise PluginError(f"{plugin}: expected a {kind.__name__}, got {made!r}")
    return made


def _load(
    group: PluginGroup, name: str, kind: type[_SettingsAndFactory], base: type[Any]
) -> _SettingsAndFactory:
    plugin = group.offered()[name]
    found = plugin.load()
    if not isinstance(found, kind):
        raise PluginError(f"{plugin}: expected an object of class {kind.__name__}, got {found!r}")
    if found.api != PLUGIN_API:
        is_newer = isinstance(found.api, int) and found.api > PLUGIN_API
        raise PluginError(
            f"{plugin} was written for version {found.api!r} of the plugin interfaces, this trainer has version "
            f"{PLUGIN_API}: upgrade {'trainer-service' if is_newer else plugin.distribution}"
        )
    if not isinstance(found.settings, type) or not issubclass(found.settings, base):
        raise PluginError(f"{plugin}: expected settings derived from {base.__name__}, got {found.settings!r}")
    return found
