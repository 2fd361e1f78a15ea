"""Runs on Trackio: on this machine, on a server of one's own or in a Space of Hugging Face."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from trainer_service.running.metrics.summary import FILM_TAG, Summary
from trainer_service.running.metrics.trackers import PROJECT, TrackedRun, Tracker, scalars
from trainer_service.running.metrics.writers import RunEnd

_logger = logging.getLogger(__name__)


class TrackioWriter(Tracker):
    """A writer to a run of Trackio.

    Everything else is said with Trackio's own variables: TRACKIO_DIR, TRACKIO_SPACE_ID, TRACKIO_SERVER_URL and so on.
    """

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        self._trackio: Any = None
        self._tracked: Any = None

    def open(self) -> None:
        import trackio

        self._trackio = trackio
        known = self._run.recall()
        project = known.get("project") or os.environ.get("TRACKIO_PROJECT", PROJECT)
        name = known.get("name") or self._run.run_id
        self._tracked = trackio.init(
            project=project,
            name=name,
            config=dict(self._run.configuration),
            resume="allow" if known else "never",
        )
        self._run.remember(project=project, name=name)
        _logger.info(
            "Trackio: run %s of project %s; look at it with: trackio show --project %s",
            name,
            project,
            project,
        )

    def write(self, summary: Summary) -> None:
        self._tracked.log(scalars(summary), step=summary.step)

    def write_film(self, behavior: str, step: int, film: Path) -> None:
        video = self._trackio.Video(str(film), format="gif")
        self._tracked.log({f"{behavior}/{FILM_TAG}": video}, step=step)

    def close(self, end: RunEnd = "finished") -> None:
        self._tracked.finish()
