"""Checks of plugins: each is loaded, as in a run that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from trainer_service.commands.doctor.report import Finding
from trainer_service.config import Hyperparameters, RewardSignalSettings
from trainer_service.config.hyperparameters.registry import ALGORITHM_PLUGINS, MLAGENTS_TRAINERS
from trainer_service.config.reading.used_plugins import PLUGIN_GROUPS
from trainer_service.config.rewards import REWARD_SIGNAL_PLUGINS
from trainer_service.plugins import AlgorithmPlugin, RewardSignalPlugin, load_factory
from unity_bridge.errors import PluginError
from unity_bridge.plugins import SWITCH, Plugin, plugins_are_on


def plugins() -> Iterator[Finding]:
    """Checks every plugin that is installed."""
    if not plugins_are_on():
        yield Finding("ok", "plugins", f"switched off by {SWITCH}")
        return
    found = [plugin for group in PLUGIN_GROUPS for plugin in group.found()]
    yield from map(_finding, found)
    yield from map(_of_mlagents, MLAGENTS_TRAINERS.found())
    if not found:
        yield Finding("ok", "plugins", "none is installed")


def _finding(plugin: Plugin) -> Finding:
    subject = f"plugin {plugin.kind} '{plugin.name}'"
    try:
        if plugin.refusal:
            raise PluginError(plugin.refusal)
        _LOADERS.get(plugin.entry_point.group, _load)(plugin)
    except PluginError as error:
        remedy = f"only what names it is concerned: mend or uninstall {plugin.distribution}"
        return Finding("warn", subject, f"{plugin.source}, {_reason(plugin, error)}", remedy)
    return Finding("ok", subject, plugin.source)


def _reason(plugin: Plugin, error: PluginError) -> str:
    return str(error).removeprefix(f"{plugin} ").removeprefix(f"{plugin}: ")


def _of_mlagents(plugin: Plugin) -> Finding:
    remedy = "docs/plugins.md says how to port it"
    return Finding(
        "warn",
        f"plugin {plugin.kind} '{plugin.name}'",
        f"{plugin.source}, for ML-Agents' own trainer",
        remedy,
    )


def _load(plugin: Plugin) -> None:
    plugin.load()


_LOADERS: Mapping[str, Callable[[Plugin], object]] = {
    ALGORITHM_PLUGINS.group: lambda plugin: load_factory(
        ALGORITHM_PLUGINS, plugin.name, AlgorithmPlugin, Hyperparameters
    ),
    REWARD_SIGNAL_PLUGINS.group: lambda plugin: load_factory(
        REWARD_SIGNAL_PLUGINS, plugin.name, RewardSignalPlugin, RewardSignalSettings
    ),
}
"""Loaders of plugins with more than one object, by group."""
