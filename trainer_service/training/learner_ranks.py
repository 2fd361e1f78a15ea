"""Whether a run has several learner ranks, who started them, and which of them this process is.

Nothing of ``trainer_service.distributed`` is imported where a run has one learner.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from trainer_service.config import RunOptions
from trainer_service.errors import ConfigError
from trainer_service.runs.layout import RunLayout

if TYPE_CHECKING:
    import torch

    from trainer_service.distributed.learners.ranks import LearnerRanks
    from trainer_service.distributed.learners.torchrun import Launched

_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables that torchrun sets for each process that it starts, and that a rank needs."""

_logger = logging.getLogger(__name__)


def launched_rank() -> Launched | None:
    """The learner rank that torchrun started this process as; None where it did not, or started one alone.

    Raises:
        ConfigError: its variables are there, but are not what torchrun sets.
    """
    if not all(os.environ.get(name) for name in _TORCHRUN) or os.environ["WORLD_SIZE"] == "1":
        return None
    from trainer_service.distributed.learners.torchrun import Launched

    try:
        return Launched.of(os.environ)
    except ValueError as error:
        raise ConfigError(f"RANK and WORLD_SIZE of torchrun: expected whole numbers: {error}") from None


def serves_rank_0() -> bool:
    """Whether this process is a learner rank that only serves rank 0, which is the trainer."""
    launched = launched_rank()
    return launched is not None and launched.rank > 0


def serve_rank_0() -> int:
    """Does what rank 0 says until that ends. Returns the exit code. Prints nothing."""
    from trainer_service.distributed.learners.torchrun import serve_launched

    return serve_launched()


def end_rank(code: int) -> NoReturn:
    """Ends a process that served rank 0, and had nothing else to do."""
    from trainer_service.distributed.learners import rank

    rank.end_rank(code)


def num_learners(options: RunOptions) -> int:
    """Learner ranks of a run. Raises ConfigError where the configuration and torchrun contradict each other."""
    wanted = 1 if options.distributed is None else options.distributed.num_learners
    launched = launched_rank()
    if launched is None:
        return 1 if options.checkpoint_settings.inference else wanted
    if wanted not in (1, launched.world):
        raise ConfigError(
            f"distributed.num_learners: torchrun started {launched.world} learner ranks (WORLD_SIZE), the "
            f"configuration asks for {wanted}: leave num_learners out, or start as many"
        )
    return 1 if options.checkpoint_settings.inference else launched.world


def resumed_after_restart(options: RunOptions) -> RunOptions:
    """The options of a run that goes on, where torchrun has restarted its ranks because one of them ended."""
    launched = launched_rank()
    if launched is None or not launched.restarts:
        return options
    saved = options.checkpoint_settings
    resume = bool(RunLayout(Path(saved.results_dir, saved.run_id)).saved_behaviors())
    # Before the first checkpoint there is nothing to go on from, and nothing to lose.
    changes: dict[str, object] = {"resume": resume, "force": not resume}
    if resume:
        changes["initialize_from"] = None
    _logger.warning(
        "Restart %d by torchrun: the run %s.", launched.restarts, "goes on" if resume else "begins anew"
    )
    return options.model_copy(update={"checkpoint_settings": saved.model_copy(update=changes)})


@contextmanager
def learner_ranks(options: RunOptions, device: torch.device) -> Iterator[LearnerRanks | None]:
    """The ranks of a run, this process being rank 0; None where it is the only one.

    Raises:
        ConfigError: a device that ranks cannot share, or too few of them.
        LearnerRankLost: a rank could not start.
    """
    world = num_learners(options)
    if world == 1:
        yield None
        return
    from trainer_service.distributed.learners.ranks import meet_launched, start_ranks

    launched = launched_rank()
    _require_devices(device, world if launched is None else launched.local_world)
    _logger.info("Starting %d learner ranks on '%s'.", world, device.type)
    with start_ranks(world, device) if launched is None else meet_launched(launched, device) as ranks:
        yield ranks


def _require_devices(device: torch.device, ranks: int) -> None:
    import torch

    if device.type not in ("cpu", "cuda") or device.index not in (None, 0):
        raise ConfigError(
            f"torch_settings.device: learner ranks compute on 'cpu', or on 'cuda' with a GPU for each; got '{device}'"
        )
    if device.type == "cuda" and (there := torch.cuda.device_count()) < ranks:
        raise ConfigError(
            f"distributed.num_learners: {ranks} learner ranks of this machine need a GPU each, it has {there}: "
            f"expected at most {there}, or torch_settings.device 'cpu'"
        )
