"""CPU time of a learner's updates by oneDNN's products and by MKL's, in turns within one run.

python benchmarks/products.py CONFIG --env=ENV [what `learn` takes], for example
python benchmarks/products.py spread_qmix --env=sim:spread --set behaviors.Spread.max_steps=60000
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence

from trainer_service.cli import main as command
from trainer_service.config import TrainerSettings
from trainer_service.learning.algorithms import ALGORITHMS, Compute, Learner
from trainer_service.learning.networks import products
from unity_bridge.specs import BehaviorSpec

WARM_UP = 4
"""Updates before the first that counts."""


class Turns:
    """Times of updates, each by another product than the one before."""

    def __init__(self) -> None:
        self._onednn = products._onednn
        self.count = 0
        self.milliseconds: dict[str, list[float]] = {"MKL": [], "oneDNN": []}

    def time(self, learner: Learner) -> Learner:
        """Times a learner's updates from now on, by gradient step where it has a replay buffer."""
        update, replay = learner.update, getattr(learner, "replay", None)

        def timed(step: int) -> dict[str, float]:
            name = ("MKL", "oneDNN")[self.count % 2]
            products._onednn = self._onednn if name == "oneDNN" else _none
            before, start = getattr(replay, "updates", 0), time.thread_time()
            metrics = dict(update(step))
            spent = time.thread_time() - start
            self.count += 1
            if self.count > WARM_UP:
                steps = max(getattr(replay, "updates", 1) - before, 1)
                self.milliseconds[name].append(1e3 * spent / steps)
            return metrics

        learner.update = timed  # type: ignore[method-assign]
        return learner


def _none() -> None:
    return None


def main(argv: Sequence[str]) -> int:
    """Trains and prints. Returns the exit code."""
    turns = Turns()
    for name, make in list(ALGORITHMS.items()):

        def timed(
            spec: BehaviorSpec, settings: TrainerSettings, compute: Compute, make: object = make
        ) -> Learner:
            return turns.time(make(spec, settings, compute))  # type: ignore[operator]

        ALGORITHMS[name] = timed
    with tempfile.TemporaryDirectory() as folder:
        code = command(["learn", *argv, "--run-id=products", f"--results-dir={folder}"])
    quarters = [statistics.quantiles(times, n=4)[0] for times in turns.milliseconds.values()]
    print(
        f"ms of CPU, lower quartiles of {turns.count - WARM_UP} updates: MKL {quarters[0]:.2f}, "
        f"oneDNN {quarters[1]:.2f}, ratio {quarters[0] / quarters[1]:.2f}"
    )
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
