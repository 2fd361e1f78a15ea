"""The command ``learn``."""

from __future__ import annotations

import argparse
import os

from trainer_service.commands.common.settings import ATTACH_PORT
from trainer_service.errors import UserError
from trainer_service.running.training.learner_ranks import serves_rank_0
from trainer_service.running.training.stop_signals import StopSignals


def learn(parsed: argparse.Namespace) -> int:
    """Runs ``mlagents-style learn``. Returns the exit code."""
    if serves_rank_0():
        from trainer_service.distributed.learners.rank import end_rank
        from trainer_service.distributed.learners.torchrun import serve_launched

        end_rank(serve_launched())
    given = vars(parsed)
    if "jobs" in given and "seeds" not in given:
        raise UserError("--jobs: expected --seeds beside it, the runs that share the cores")
    if not given.keys().isdisjoint(ATTACH_PORT):
        # Before grpc is loaded. Else it writes a line for each handshake that fails, and a scanner fills the disk.
        os.environ.setdefault("GRPC_VERBOSITY", "ERROR")
    with StopSignals(owns_process=True) as stop:  # first, for what follows takes a second to load
        from trainer_service.commands.learn.run import run

        return run(given, stop)
