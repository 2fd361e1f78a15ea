"""The plugins that a configuration names, with their distributions; and the missing plugins."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from trainer_service.config.hyperparameters.common import OPTIMIZER_PLUGINS
from trainer_service.config.hyperparameters.off_policy import REPLAY_PLUGINS, ReplayHyperparameters
from trainer_service.config.hyperparameters.registry import ALGORITHM_PLUGINS
from trainer_service.config.network import ENCODER_PLUGINS, OBSERVATION_ENCODER_PLUGINS, NetworkSettings
from trainer_service.config.reading.document import Problem, read_document
from trainer_service.config.rewards import REWARD_SIGNAL_PLUGINS
from trainer_service.config.run.tracking import SUMMARY_WRITER_PLUGINS
from trainer_service.config.run_options import RunOptions
from trainer_service.config.trainer import TrainerSettings
from trainer_service.errors import ConfigError
from trainer_service.plugins import CALLBACK_PLUGINS, MLAGENTS_STATS_WRITERS
from unity_bridge.plugins import Plugin, PluginGroup, plugins_are_on
from unity_bridge.simulators.schemes import SIMULATOR_PLUGINS

PLUGIN_GROUPS = (
    ALGORITHM_PLUGINS,
    ENCODER_PLUGINS,
    OBSERVATION_ENCODER_PLUGINS,
    OPTIMIZER_PLUGINS,
    REPLAY_PLUGINS,
    REWARD_SIGNAL_PLUGINS,
    SIMULATOR_PLUGINS,
    SUMMARY_WRITER_PLUGINS,
    CALLBACK_PLUGINS,
)
"""All that other distributions may offer."""


def plugins_of(settings: TrainerSettings) -> dict[str, str]:
    """The plugins that a behavior needs, by ``algorithms.NAME`` and the like: their distributions and versions."""
    return _sources(_names_in(settings))


def plugins_in(options: RunOptions) -> dict[str, str]:
    """The plugins that a configuration names, as ``plugins_of`` has them."""
    return _sources(_all_names_in(options))


def refused_plugins(options: RunOptions) -> list[str]:
    """Names plugins that a run does not take: of built-in names, and ML-Agents' stats writers without ``--track``."""
    names = dict.fromkeys(_all_names_in(options))
    plugins = (group.shadowed(name) for group, name in names)
    refusals = [f"{plugin}: {plugin.refusal}" for plugin in plugins if plugin is not None]
    writers = [
        each for each in MLAGENTS_STATS_WRITERS.found() if not each.entry_point.module.startswith("mlagents.")
    ]
    if writers and "mlagents" not in options.track and not options.checkpoint_settings.inference:
        refusals.append(
            f"{', '.join(map(str, writers))}: written for ML-Agents, gets no summaries. Install examples/stats_writers "
            "and add --track mlagents; docs/tracking.md says more"
        )
    return refusals


def missing_plugins(remembered: Mapping[str, str]) -> dict[str, str]:
    """Plugins that ``plugins_of`` once returned and that are not offered any more, with the reason in words."""
    why = "which is not installed here" if plugins_are_on() else "and plugins are switched off"
    unregistered = "which this program has not registered (trainer_service.plugins.register)"
    return {
        key: f"is of {source}, {unregistered if source.startswith('module ') else why}"
        for key, source in remembered.items()
        if _offered(key) is None
    }


def missing_problems(raw: Mapping[str, Any]) -> Iterator[Problem]:
    """Yields the missing plugins among the plugins that a configuration or the resumed run lists."""
    for key, text in missing_plugins(_remembered(raw)).items():
        yield Problem(("plugins", key), text)


def changed_versions(options: RunOptions) -> Iterator[Problem]:
    """Yields plugins that are of other versions than a configuration says it was used with."""
    for key, source in options.plugins.items():
        plugin = _offered(key)
        if plugin is not None and plugin.source != source:
            yield Problem(("plugins", key), f"was of {source}, now it is of {plugin.source}")


def _names_in(settings: TrainerSettings) -> Iterator[tuple[PluginGroup, str]]:
    yield ALGORITHM_PLUGINS, settings.trainer_type
    hyper = settings.hyperparameters
    yield OPTIMIZER_PLUGINS, hyper.optimizer
    if isinstance(hyper, ReplayHyperparameters):
        yield REPLAY_PLUGINS, hyper.replay.type
    yield from _encoders_in(settings.network_settings)
    for name, signal in settings.reward_signals.items():
        yield REWARD_SIGNAL_PLUGINS, name
        yield from _encoders_in(signal.network_settings)


def _encoders_in(network: NetworkSettings) -> Iterator[tuple[PluginGroup, str]]:
    yield ENCODER_PLUGINS, network.vis_encode_type
    if network.encoder is not None:
        yield OBSERVATION_ENCODER_PLUGINS, network.encoder


def _all_names_in(options: RunOptions) -> Iterator[tuple[PluginGroup, str]]:
    for settings in (options.default_settings, *options.behaviors.values()):
        if settings is not None:
            yield from _names_in(settings)
    scheme, colon, _ = (options.env_settings.env_path or "").partition(":")
    if colon:
        yield SIMULATOR_PLUGINS, scheme
    for name in options.track:
        yield SUMMARY_WRITER_PLUGINS, name


def _sources(names: Iterator[tuple[PluginGroup, str]]) -> dict[str, str]:
    sources = {}
    for group, name in dict.fromkeys(names):
        if name not in group.built_in and (plugin := group.offered().get(name)):
            sources[f"{_short(group)}.{name}"] = plugin.source
    return sources


def _offered(key: str) -> Plugin | None:
    short, _, name = key.partition(".")
    group = next((group for group in PLUGIN_GROUPS if _short(group) == short), None)
    return None if group is None else group.offered().get(name)


def _short(group: PluginGroup) -> str:
    return group.group.rpartition(".")[2]


def _remembered(raw: Mapping[str, Any]) -> Mapping[str, str]:
    own = raw.get("plugins")
    saved = raw.get("checkpoint_settings")
    if not own and isinstance(saved, Mapping) and saved.get("resume"):
        folder = Path(str(saved.get("results_dir", "results")), str(saved.get("run_id", "ppo")))
        own = _plugins_in_file(folder / "configuration.yaml")
    if not isinstance(own, Mapping):
        return {}
    return {key: source for key, source in own.items() if isinstance(key, str) and isinstance(source, str)}


def _plugins_in_file(path: Path) -> Any:
    try:
        return read_document(path).values.get("plugins")
    except ConfigError:
        return None  # it would only explain an error that is reported anyway
