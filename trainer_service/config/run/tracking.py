"""Names of summary writers that a run may ask for with ``track``."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator

from trainer_service.config.section import require_choice
from trainer_service.config.values import problem
from unity_bridge.extras import install_hint
from unity_bridge.plugins import PluginGroup

SUMMARY_WRITERS: dict[str, str] = {
    "mlflow": "trainer_service.running.metrics.trackers.mlflow_writer:MlflowWriter",
    "trackio": "trainer_service.running.metrics.trackers.trackio_writer:TrackioWriter",
    "wandb": "trainer_service.running.metrics.trackers.wandb_writer:WandbWriter",
}
"""The factory of each summary writer, as MODULE:NAME: none is imported before a run asks for it. A factory takes a
``TrackedRun`` of ``trainer_service.running.metrics.trackers`` and returns a ``SummaryWriter`` of
``trainer_service.running.metrics``; where that cannot work, for a package that is missing, it raises UserError."""


SUMMARY_WRITER_PLUGINS = PluginGroup("tracker", "trainer_service.summary_writers", frozenset(SUMMARY_WRITERS))
"""Factories of other distributions. One comes into the registry when a run names it."""


def _as_tracker(value: Any) -> str:
    if isinstance(value, str) and value not in SUMMARY_WRITERS:
        plugin = SUMMARY_WRITER_PLUGINS.offered().get(value)
        if plugin is not None and plugin.refusal:
            raise problem(f"{plugin}: {plugin.refusal}")
        if plugin is not None:
            SUMMARY_WRITERS[value] = plugin.entry_point.value
    return require_choice(
        "tracker",
        value,
        [*SUMMARY_WRITERS, *SUMMARY_WRITER_PLUGINS.offered()],
        f"; each has its extra: {install_hint(','.join(sorted(SUMMARY_WRITER_PLUGINS.built_in)))}",
    )


TrackerName = Annotated[str, BeforeValidator(_as_tracker)]
"""The name of a summary writer in the registry."""
