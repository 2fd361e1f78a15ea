"""Plugins: what other distributions add to this one, by entry points.

Nothing of a plugin is imported before something is asked for by its name, so a broken one harms only what needs it.
Names are read from the metadata of distributions, which executes nothing.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unity_bridge.errors import PluginError
from unity_bridge.process_guard import HostedExit, call_guarded
from unity_bridge.untrusted_text import printable, quoted

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

SWITCH = "TRAINER_SERVICE_PLUGINS"
"""The environment variable that, at ``off``, lets nothing be offered by any other distribution."""

_REGISTERED: dict[tuple[str, str], EntryPoint] = {}
"""Entry points added by ``register``, by group and name."""

_OFF = frozenset({"off", "0", "no", "false"})


@dataclass(frozen=True, slots=True)
class Plugin:
    """A name that a distribution offers."""

    kind: str
    """The kind of plugin in messages, such as ``trainer type``."""

    name: str

    entry_point: EntryPoint

    distribution: str
    """The distribution that brings it, as ``pip install`` calls it."""

    version: str

    refusal: str = ""
    """Why it is not taken; empty where it is."""

    @property
    def source(self) -> str:
        """The distribution and its version: ``my-plugins 0.1.0``."""
        return f"{self.distribution} {self.version}".strip()

    def __str__(self) -> str:
        return f"{self.kind} '{self.name}' of {self.source}"

    def load(self) -> Any:
        """Imports the object of the entry point. Raises PluginError."""
        if self.refusal:
            raise PluginError(f"{self}: {self.refusal}")
        if not self.entry_point.pattern.match(self.entry_point.value):
            raise PluginError(
                f"{self}: expected an entry point MODULE:OBJECT, got {quoted(self.entry_point.value)}"
            )
        try:
            return call_guarded(self.entry_point.load)
        except Exception as error:  # it is code of others: anything may happen in it
            raise PluginError(f"{self} cannot be loaded: {reason(error)}") from error


@dataclass(frozen=True, slots=True, eq=False)
class PluginGroup:
    """The plugins of one kind."""

    kind: str
    """The kind of plugin, as messages call one of them."""

    group: str
    """The group of entry points by which distributions offer them: a name, and an object in a module."""

    built_in: frozenset[str] = frozenset()
    """Names that are taken: those of this distribution."""

    def found(self) -> list[Plugin]:
        """Returns the plugins of all installed distributions, refused ones included, sorted by name."""
        if not plugins_are_on():
            return []
        entries = sorted(entry_points(self.group), key=lambda entry: (entry.name, entry.value))
        sources: dict[str, list[str]] = {}
        for entry in entries:
            sources.setdefault(entry.name, []).append(_distribution(entry)[0])
        return [self._plugin(entry, sources[entry.name]) for entry in entries]

    def offered(self) -> Mapping[str, Plugin]:
        """The plugins by name, without those whose names are built-in."""
        return {plugin.name: plugin for plugin in self.found() if plugin.name not in self.built_in}

    def shadowed(self, name: str) -> Plugin | None:
        """The plugin that offers a built-in name, and is refused for it; None without one."""
        if name not in self.built_in:
            return None
        return next((plugin for plugin in self.found() if plugin.name == name), None)

    def _plugin(self, entry: EntryPoint, sources: list[str]) -> Plugin:
        refusal = ""
        if entry.name in self.built_in:
            refusal = f"refused, because trainer-service has a {self.kind} of this name itself"
        elif len(sources) > 1:
            refusal = f"refused, because {' and '.join(sources)} both offer this name: uninstall one of them"
        return Plugin(self.kind, entry.name, entry, *_distribution(entry), refusal)


def plugins_are_on() -> bool:
    """Whether plugins are looked for at all; see ``SWITCH``."""
    return os.environ.get(SWITCH, "").strip().lower() not in _OFF


def entry_points(group: str) -> tuple[EntryPoint, ...]:
    """The entry points of a group, of all installed distributions."""
    from importlib import metadata  # takes 20 ms, which only those pay who name a plugin

    own = [entry for entry in _REGISTERED.values() if entry.group == group]
    return (*metadata.entry_points(group=group), *own)


def register(group: str, name: str, made: Any) -> None:
    """Registers a class or function of this process under a name, like an entry point of an installed package.

    A second registration of a name replaces the first. Other processes do not know it.

    group: the group of entry points, such as ``trainer_service.observation_encoders``. Raises ValueError for a class
    or function defined within a function, because its module has no name for it.
    """
    from importlib import metadata

    if "<locals>" in made.__qualname__:
        raise ValueError(f"register: expected a class or function at the top of its module, got {made!r}")
    value = f"{made.__module__}:{made.__qualname__}"
    _REGISTERED[group, name] = metadata.EntryPoint(name=name, value=value, group=group)


def reason(error: BaseException) -> str:
    """One line about an error in foreign code, with the place in that code."""
    error = error.__cause__ if isinstance(error, HostedExit) and error.__cause__ else error
    text = printable(" ".join(str(error).split())[:300])
    frames = traceback.extract_tb(error.__traceback__)
    own = [each for each in frames if "importlib" not in each.filename]
    place = f" ({own[-1].filename}:{own[-1].lineno})" if own[1:] else ""
    return f"{type(error).__name__}: {text}{place}" if text else f"{type(error).__name__}{place}"


def _distribution(entry: EntryPoint) -> tuple[str, str]:
    if entry.dist is None:
        return f"module {entry.module}", ""
    return entry.dist.name, entry.dist.version
