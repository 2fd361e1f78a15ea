"""Trackers of experiments as summary writers: their view of a run, and their factories by name."""

from __future__ import annotations

import importlib.util
import json
import pkgutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainer_service.config import RunOptions
from trainer_service.config.run.tracking import SUMMARY_WRITER_PLUGINS, SUMMARY_WRITERS
from trainer_service.errors import UserError
from trainer_service.running.metrics.isolated_writer import IsolatedWriter
from trainer_service.running.metrics.summary import Summary
from trainer_service.running.metrics.writers import SummaryWriter
from trainer_service.running.runs.files import read_object, write_atomic
from trainer_service.running.runs.layout import RunLayout
from unity_bridge.extras import install_hint
from unity_bridge.plugins import reason

PROJECT = "trainer-service"
"""Where a tracker puts runs, unless a variable of its own says otherwise."""


@dataclass(frozen=True, slots=True)
class TrackedRun:
    """The run as the factory of a summary writer gets it."""

    run_id: str

    folder: Path
    """The folder of its results, which need not be there before the writer is opened."""

    configuration: Mapping[str, Any]
    """All of its options, as configuration.yaml has them: numbers, texts, lists and mappings."""

    is_resumed: bool

    memory: Path
    """The file in that folder for the state that the writer needs when the run is resumed."""

    def recall(self) -> dict[str, Any]:
        """Returns the values of the last ``remember`` before the run was resumed; empty without one.

        Raises UserError where their file is damaged.
        """
        return read_object(self.memory) if self.is_resumed else {}

    def remember(self, **values: Any) -> None:
        """Keeps values for ``recall``, such as the run's id in the tracker. Raises SaveError."""
        write_atomic(self.memory, json.dumps(values).encode())


def make_trackers(options: RunOptions) -> list[SummaryWriter]:
    """Makes the summary writers that ``track`` names, which are not opened yet; none for a run that writes nothing.

    Raises:
        UserError: a package that one of them needs is not installed, or its factory failed.
    """
    saved = options.checkpoint_settings
    if saved.inference or not options.track:
        return []
    layout = RunLayout(Path(saved.results_dir, saved.run_id).absolute())
    configuration = options.model_dump(mode="json")
    return [
        IsolatedWriter(
            f"Tracker '{name}'",
            _made(
                name,
                TrackedRun(
                    run_id=saved.run_id,
                    folder=layout.path,
                    configuration=configuration,
                    is_resumed=bool(saved.resume),
                    memory=layout.tracker(name),
                ),
            ),
        )
        for name in dict.fromkeys(options.track)
    ]


def _made(name: str, run: TrackedRun) -> SummaryWriter:
    """Lets the factory of that name make its writer. Raises UserError."""
    if name in SUMMARY_WRITER_PLUGINS.built_in:
        require_package(name, name)
    try:
        writer = pkgutil.resolve_name(SUMMARY_WRITERS[name])(run)
    except UserError:
        raise
    except Exception as error:  # it may be code of others
        raise UserError(f"--track {name}: {reason(error)}") from error
    if not isinstance(writer, SummaryWriter):
        raise UserError(f"--track {name}: expected a SummaryWriter, got {writer!r}")
    return writer


def require_package(name: str, extra: str) -> None:
    """Raises UserError where a package is not installed that belongs to an extra of ours."""
    if importlib.util.find_spec(name) is None:
        raise UserError(f"--track {extra}: {name} is not installed: {install_hint(extra)}")


class Tracker(SummaryWriter):
    """A base of our own writers to trackers, which get evaluations as they get summaries."""

    def __init__(self, run: TrackedRun) -> None:
        self._run = run

    def write_evaluation(self, summary: Summary) -> None:
        self.write(summary)


def scalars(summary: Summary) -> dict[str, float]:
    """The finite values of a summary by TensorBoard's tag, with the behavior's name before it as in its folders."""
    return {
        f"{summary.behavior}/{tag}": series.value
        for tag, series in summary.tagged().items()
        if abs(series.value) < float("inf")
    }
