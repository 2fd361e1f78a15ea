"""Checks of what other distributions offer: each plugin is loaded, as a run that names it would."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from trainer_service.config import Hyperparameters, RewardSignalSettings
from trainer_service.config.hyperparameters.registry import ALGORITHM_PLUGINS, MLAGENTS_TRAINERS
from trainer_service.config.reading.used_plugins import PLUGIN_GROUPS, stats_writers_of_mlagents
from trainer_service.config.rewards import REWARD_SIGNAL_PLUGINS
from trainer_service.doctor.report import Finding
from trainer_service.metrics.stats_writers.shim import install
from trainer_service.plugins import AlgorithmPlugin, RewardSignalPlugin, load_factory
from unity_bridge.errors import PluginError
from unity_bridge.plugins import SWITCH, Plugin, plugins_are_on, reason


def plugins() -> Iterator[Finding]:
    """Checks every plugin that is installed."""
    if not plugins_are_on():
        yield Finding("ok", "plugins", f"switched off by {SWITCH}")
        return
    found = [plugin for group in PLUGIN_GROUPS for plugin in group.found()]
    yield from map(_finding, found)
    writers = stats_writers_of_mlagents()
    yield from map(_stats_writer, writers)
    yield from map(_of_mlagents, MLAGENTS_TRAINERS.found())
    if not found and not writers:
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


def _stats_writer(plugin: Plugin) -> Finding:
    """Imports a plugin of ML-Agents that writes statistics; what it makes of a run is not tried."""
    subject = f"plugin ML-Agents' stats writer '{plugin.name}'"
    install()
    try:
        plugin.entry_point.load()
    except (Exception, SystemExit) as error:
        remedy = f"runs leave it out: mend or uninstall {plugin.distribution}"
        return Finding("warn", subject, f"{plugin.source}, {reason(error)}", remedy)
    return Finding("ok", subject, plugin.source)


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
"""How to load what is more than one object, by group."""
