"""A record of every step that a trainer takes in, written before the step is answered."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

from trainer_service.running.callbacks import Callback, RunView, SimulatorStep

LEDGER = "EXCHANGE_LEDGER"
"""The variable with the path of the record."""


class Ledger(Callback):
    """Appends a line for each row of a step: the numbers that its agent saw. A kill loses none."""

    def __init__(self) -> None:
        self._file = os.open(os.environ[LEDGER], os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def on_step(self, run: RunView, behavior: str, step: SimulatorStep) -> None:
        (seen,) = step.batch.observations
        os.write(self._file, "".join(f"{int(life)} {int(number)}\n" for life, number in seen).encode())


def lives(path: Path) -> dict[int, list[int]]:
    """Returns the numbers that were seen in each life, in the order of arrival."""
    found: dict[int, list[int]] = defaultdict(list)
    for line in path.read_text().splitlines():
        life, number = map(int, line.split())
        found[life].append(number)
    return found
