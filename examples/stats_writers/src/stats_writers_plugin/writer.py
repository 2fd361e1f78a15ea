"""ML-Agents' plugins as a writer of summaries."""

from __future__ import annotations

import importlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import yaml

from stats_writers_plugin import settings
from stats_writers_plugin.shim import STATS_WRITER_GROUP, install
from trainer_service.config import RunOptions, parse_run_options
from trainer_service.errors import UserError
from trainer_service.running.metrics import RunEnd, Series, Summary, SummaryWriter
from trainer_service.running.metrics.trackers import TrackedRun
from unity_bridge.plugins import entry_points, reason

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_LATEST = ("Step", "Environment/Lesson Number/")
"""Beginnings of the names of statistics whose latest value counts."""

_logger = logging.getLogger(__name__)


def make_writer(run: TrackedRun) -> PluginWriters:
    """The writer for all installed plugins of ``mlagents.stats_writer``. Raises UserError where there is none."""
    # Those of ML-Agents itself are the run's own writers once more.
    plugins = [each for each in entry_points(STATS_WRITER_GROUP) if not each.module.startswith("mlagents.")]
    if not plugins:
        raise UserError(
            f"--track mlagents: no installed package offers a writer under '{STATS_WRITER_GROUP}'"
        )
    return PluginWriters(plugins, parse_run_options(run.configuration).options)


class PluginWriters(SummaryWriter):
    """The writers of ML-Agents' plugins, called as ML-Agents calls them, one after the other.

    One that raises is left out from then on, with a warning.
    """

    def __init__(self, plugins: Sequence[EntryPoint], options: RunOptions) -> None:
        self._plugins = plugins
        self._options = options
        self._stats: Any = None
        self._own: list[Any] = []
        """Stand-ins for the writers that ML-Agents always has; plugins may look for them."""

    def open(self) -> None:
        """Imports the plugins, and asks them for their writers."""
        install()
        self._stats = stats = importlib.import_module("mlagents.trainers.stats")
        options = settings.RunOptions(self._options)
        folder = options.checkpoint_settings.write_path
        hidden = ["Is Training", "Step"]
        self._own = [
            stats.TensorboardWriter(folder, False, hidden),
            stats.GaugeWriter(),
            stats.ConsoleWriter(),
        ]
        stats.StatsReporter.writers.clear()  # of an earlier run in this process
        for writer in self._own:
            stats.StatsReporter.add_writer(writer)
        for plugin in self._plugins:
            self._load(plugin, options)

    def write(self, summary: Summary) -> None:
        """Hands the summary on in ML-Agents' form."""
        own = {"Is Training": Series.of(summary.is_training), "Step": Series.of(summary.step)}
        values = {key: self._converted(key, series) for key, series in {**summary.tagged(), **own}.items()}

        def add(writer: Any) -> None:
            for key, value in values.items():
                for each in value.full_dist:
                    writer.on_add_stat(summary.behavior, key, each, value.aggregation_method)
            writer.write_stats(summary.behavior, values, summary.step)

        self._call(add)

    def write_settings(self, behavior: str, text: str) -> None:
        """Hands the settings on as a mapping, and whether the behavior plays against itself."""
        values = yaml.safe_load(text)["behaviors"][behavior]
        kinds = self._stats.StatsPropertyType
        self._call(lambda writer: writer.add_property(behavior, kinds.HYPERPARAMETERS, values))
        if values.get("self_play") is not None:
            self._call(lambda writer: writer.add_property(behavior, kinds.SELF_PLAY, True))

    def close(self, end: RunEnd = "finished") -> None:
        """Closes what is ours; ML-Agents tells its writers of no end."""
        for own in self._own:
            if hasattr(own, "close"):
                own.close()

    def _load(self, plugin: EntryPoint, options: Any) -> None:
        try:
            writers = plugin.load()(options)
            for writer in writers:
                if not isinstance(writer, self._stats.StatsWriter):
                    raise TypeError(f"expected a list of StatsWriter, got {writer!r} in it")
        except BaseException as error:  # as in ML-Agents: whatever it is, the plugin is skipped
            _logger.debug("%s failed:", plugin.value, exc_info=error)
            _logger.warning(
                "ML-Agents' stats writer '%s' (%s) is left out: %s.",
                plugin.name,
                plugin.value,
                reason(error),
            )
            return
        for writer in writers:
            self._stats.StatsReporter.add_writer(writer)
        names = ", ".join(type(writer).__qualname__ for writer in writers) or "no writer"
        _logger.info("ML-Agents' stats writer '%s' gets summaries, too: %s.", plugin.name, names)

    def _call(self, call: Callable[[Any], None]) -> None:
        reporter = self._stats.StatsReporter
        for writer in [each for each in reporter.writers if not any(each is own for own in self._own)]:
            try:
                call(writer)
            except BaseException as error:
                reporter.writers.remove(writer)
                _logger.debug("%s failed:", type(writer).__qualname__, exc_info=error)
                _logger.warning(
                    "ML-Agents' stats writer %s.%s is left out from here on: %s. The run continues without it.",
                    type(writer).__module__, type(writer).__qualname__, reason(error),
                )  # fmt: skip

    def _converted(self, key: str, series: Series) -> Any:
        """A statistic in ML-Agents' form: with all values where they are known, else as often its mean."""
        methods = self._stats.StatsAggregationMethod
        whole = len(series.samples) == series.count
        values = series.samples.tolist() if whole else [series.mean] * series.count
        if series.is_sum:
            return self._stats.StatsSummary(values, methods.SUM)
        if series.has_histogram:
            return self._stats.StatsSummary(values, methods.HISTOGRAM)
        latest = key.startswith(_LATEST)
        return self._stats.StatsSummary(values, methods.MOST_RECENT if latest else methods.AVERAGE)
