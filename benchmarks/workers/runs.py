"""One run of the trainer with sleeping simulators, in a process of its own: when each update ended.

python -m workers.runs '{"workers": 2, ...}' prints the updates as JSON.
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from measuring.scenes import CHECKOUT

CONFIG = CHECKOUT / "benchmarks" / "configs" / "sleeper.yaml"
BEHAVIOR = "Sleeper"

_SETTLING = 2
"""Updates that do not count: processes start, and workers begin with agents in no episode."""

_FEWEST = 3
"""Updates that count, at least."""

_LIMIT_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """The run's settings."""

    workers: int
    """0 collects in the trainer's own process."""

    collection: str = "sync"
    simulators: int = 1
    """Of each worker."""

    agents: int = 12
    step_ms: float = 5.0
    seconds: float = 20.0
    """How long it is to be measured."""

    @property
    def title(self) -> str:
        """The case in a table."""
        if self.workers == 0:
            return "no workers"
        return f"{self.workers} worker{'s' if self.workers > 1 else ''}, {self.collection}"


@dataclass(frozen=True, slots=True)
class Update:
    """The end of an update."""

    at_s: float
    step: int
    """Agent steps by then."""

    took_s: float


@dataclass(frozen=True, slots=True)
class Measured:
    """The figures of a run's steady state."""

    steps_per_s: float
    update_s: float
    """The mean update."""


def measure(case: Case) -> Measured:
    """Runs a case. Raises RuntimeError, with the last lines of its output, where that fails."""
    with tempfile.TemporaryDirectory(prefix="scaling-") as folder:
        done = subprocess.run(
            [sys.executable, "-m", "workers.runs", json.dumps(asdict(case)), folder],
            env={**os.environ, "PYTHONPATH": _path()},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=_LIMIT_S,
            check=False,
        )
        updates = Path(folder) / "updates.json"
        if done.returncode or not updates.exists():
            raise RuntimeError(f"{case.title}:\n" + "\n".join(done.stdout.splitlines()[-12:]))
        return steady([Update(**each) for each in json.loads(updates.read_text(encoding="utf-8"))])


def steady(updates: Sequence[Update]) -> Measured:
    """Agent steps per second between the first update that counts and the last, update included."""
    counted = updates[_SETTLING - 1 :]
    if len(counted) < 2:
        raise RuntimeError(f"expected more than {_SETTLING} updates, got {len(updates)}")
    first, last = counted[0], counted[-1]
    took = [update.took_s for update in counted[1:]]
    return Measured((last.step - first.step) / (last.at_s - first.at_s), sum(took) / len(took))


def write_simulator(folder: Path, case: Case) -> Path:
    """Writes an executable that plays the sleeping simulator. Returns its path."""
    program = folder / "sleeper"
    arguments = ["--agents", str(case.agents), "--step-ms", str(case.step_ms)]
    program.write_text(
        f"#!/bin/sh\nexport PYTHONPATH={shlex.quote(_path())}\n"
        f'exec {shlex.quote(sys.executable)} -m workers.sleeper {shlex.join(arguments)} "$@"\n',
        encoding="utf-8",
    )
    program.chmod(0o755)
    return program


def _path() -> str:
    return os.pathsep.join([str(CHECKOUT), str(CHECKOUT / "benchmarks")])


def _options(case: Case, folder: Path) -> Mapping[str, Any]:
    distributed = {"num_workers": case.workers, "collection": case.collection, "cpus_per_worker": 0.0}
    return {
        "env_settings": {
            "env_path": str(write_simulator(folder, case)),
            "num_envs": case.simulators,
            "seed": 1,
        },
        "checkpoint_settings": {"run_id": "scaling", "results_dir": str(folder / "results")},
        "torch_settings": {"device": "cpu"},
        **({"distributed": distributed} if case.workers else {}),
    }


def main(argv: Sequence[str]) -> None:
    """Trains until enough was measured, and writes the updates into the folder."""
    import trainer_service
    from trainer_service.running.callbacks import Callback, RunView

    case, folder = Case(**json.loads(argv[0])), Path(argv[1])
    updates: list[Update] = []

    class Watch(Callback):
        begun = 0.0

        def on_update_start(self, run: RunView, behavior: str) -> None:
            self.begun = time.perf_counter()

        def on_update_end(self, run: RunView, behavior: str, metrics: Mapping[str, float]) -> None:
            now = time.perf_counter()
            updates.append(Update(now, run.steps[behavior], now - self.begun))
            counted = updates[_SETTLING - 1 :]
            if len(counted) > _FEWEST and now - counted[0].at_s >= case.seconds:
                run.stop("measured enough")

    options = trainer_service.load_run_options(CONFIG, _options(case, folder)).options
    trainer_service.train(options, callbacks=[Watch()])
    (folder / "updates.json").write_text(json.dumps([asdict(each) for each in updates]), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
