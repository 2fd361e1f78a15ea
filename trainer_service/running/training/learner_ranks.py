"""The number of a run's learner ranks, what started them, and which of them this process is."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainer_service.config import RunOptions
from trainer_service.errors import ConfigError
from trainer_service.running.runs.layout import RunLayout

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torchrun sets for each process that it starts, and that a rank needs."""

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LaunchedRank:
    """A rank as torchrun describes it in its environment."""

    rank: int
    world: int
    local_rank: int
    """Its number among the ranks of this machine."""

    local_world: int
    """Ranks of this machine."""

    master: str
    """The address of rank 0's machine."""

    restarts: int
    """How often torchrun has restarted the ranks."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> LaunchedRank:
        """Raises KeyError or ValueError where the environment is not torchrun's."""
        return cls(
            rank=int(environment["RANK"]),
            world=int(environment["WORLD_SIZE"]),
            local_rank=int(environment.get("LOCAL_RANK", "0")),
            local_world=int(environment.get("LOCAL_WORLD_SIZE", "1")),
            master=environment["MASTER_ADDR"],
            restarts=int(environment.get("TORCHELASTIC_RESTART_COUNT", "0")),
        )

    @property
    def one_machine(self) -> bool:
        """Whether all ranks are on this machine."""
        return self.local_world == self.world


def launched_rank() -> LaunchedRank | None:
    """The learner rank that torchrun started this process as; None where it did not, or started one alone.

    Raises:
        ConfigError: its variables are there, but are not what torchrun sets.
    """
    if not all(os.environ.get(name) for name in _TORCHRUN) or os.environ["WORLD_SIZE"] == "1":
        return None
    try:
        return LaunchedRank.of(os.environ)
    except ValueError as error:
        raise ConfigError(f"RANK and WORLD_SIZE of torchrun: expected whole numbers: {error}") from None


def serves_rank_0() -> bool:
    """Whether this process is a learner rank that only serves rank 0, which is the trainer."""
    launched = launched_rank()
    return launched is not None and launched.rank > 0


def num_learners(options: RunOptions) -> int:
    """Learner ranks of a run. Raises ConfigError where the configuration and torchrun contradict each other."""
    wanted = 1 if options.distributed is None else options.distributed.num_learners
    launched = launched_rank()
    if launched is None:
        return 1 if options.checkpoint_settings.inference else wanted
    if wanted not in (1, launched.world):
        raise ConfigError(
            f"distributed.num_learners: torchrun started {launched.world} learner ranks (WORLD_SIZE), the "
            f"configuration has {wanted}: leave num_learners out, or start as many"
        )
    return 1 if options.checkpoint_settings.inference else launched.world


def resumed_after_restart(options: RunOptions) -> RunOptions:
    """The options of a run that continues, where torchrun has restarted its ranks because one of them ended."""
    launched = launched_rank()
    if launched is None or not launched.restarts:
        return options
    saved = options.checkpoint_settings
    resume = bool(RunLayout(Path(saved.results_dir, saved.run_id)).saved_behaviors())
    # Before the first checkpoint there is nothing to resume from, and nothing to lose.
    changes: dict[str, object] = {"resume": resume, "force": not resume}
    if resume:
        changes["initialize_from"] = None
    _logger.warning(
        "Restart %d by torchrun: the run %s.", launched.restarts, "resumes" if resume else "starts again"
    )
    return options.model_copy(update={"checkpoint_settings": saved.model_copy(update=changes)})
