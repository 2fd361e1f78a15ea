"""Runs on Weights & Biases, on its servers, on one's own or offline."""

from __future__ import annotations

import logging
import os
import uuid
from pathlib import Path
from typing import Any

from trainer_service.errors import UserError
from trainer_service.running.metrics.isolated_writer import SHUTDOWN_TIMEOUT_S
from trainer_service.running.metrics.summary import FILM_TAG, Summary
from trainer_service.running.metrics.trackers import PROJECT, TrackedRun, Tracker, scalars
from trainer_service.running.metrics.writers import RunEnd

_EXIT_CODES: dict[RunEnd, int] = {"finished": 0, "failed": 1, "interrupted": 255}
"""Exit codes that the pages of W&B show as finished, failed and killed."""

_logger = logging.getLogger(__name__)


class WandbWriter(Tracker):
    """A writer to a run of Weights & Biases.

    Each behavior counts its own steps, so its values are drawn over ``BEHAVIOR/Step``. Everything else is said with
    W&B's own variables: WANDB_PROJECT, WANDB_ENTITY, WANDB_MODE and so on.
    """

    def __init__(self, run: TrackedRun) -> None:
        super().__init__(run)
        self._wandb: Any = None
        self._tracked: Any = None
        self._behaviors: set[str] = set()

    def open(self) -> None:
        import wandb

        # It would ask at the terminal, where a run is under way.
        if wandb.setup().settings.mode == "online" and not wandb.login(prompt=False):
            raise UserError("not logged in: run 'wandb login', or set WANDB_API_KEY, or WANDB_MODE=offline")
        self._wandb = wandb
        run_id = self._run.recall().get("id") or uuid.uuid4().hex[:8]
        self._run.remember(id=run_id)
        self._tracked = wandb.init(
            id=run_id,
            name=self._run.run_id,
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            dir=os.environ.get("WANDB_DIR", str(self._run.folder)),
            config=dict(self._run.configuration),
            resume="allow",
            allow_val_change=True,
            # Its lines would run into the table of a terminal; and an end without network must not wait for ever.
            settings=wandb.Settings(silent=True, console="off", finish_timeout=SHUTDOWN_TIMEOUT_S / 2),
        )
        folder = Path(self._tracked.dir).parent
        where = f"offline in '{folder}'" if self._tracked.offline else self._tracked.url
        _logger.info("W&B: run %s, %s", run_id, where)

    def write(self, summary: Summary) -> None:
        self._log(summary.behavior, summary.step, scalars(summary))

    def write_film(self, behavior: str, step: int, film: Path) -> None:
        video = self._wandb.Video(str(film), format="gif")
        self._log(behavior, step, {f"{behavior}/{FILM_TAG}": video})

    def close(self, end: RunEnd = "finished") -> None:
        self._tracked.finish(exit_code=_EXIT_CODES[end])

    def _log(self, behavior: str, step: int, values: dict[str, Any]) -> None:
        axis = f"{behavior}/Step"
        if behavior not in self._behaviors:
            self._behaviors.add(behavior)
            self._tracked.define_metric(axis, hidden=True)
            self._tracked.define_metric(f"{behavior}/*", step_metric=axis)
        self._tracked.log({axis: step, **values})
