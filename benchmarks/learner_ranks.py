"""How much faster an update is with several learner ranks on this machine, each with one thread.

    python benchmarks/learner_ranks.py --ranks 2 --batch-size 2048

Prints the seconds of one PPO update by one learner and by several ranks, and of one sum over them. On a machine that
others use, look at the seconds of a CPU: they are what the time comes down to where each rank has a core.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from torch import Tensor

from trainer_service.config import TrainerSettings
from trainer_service.distributed.learners.group import LearnerGroup
from trainer_service.distributed.learners.ranks import start_ranks
from trainer_service.learning.algorithms import ALGORITHMS, Compute, Learner
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SPEC = BehaviorSpec((ObservationSpec("seen", (32,)),), ActionSpec(4, ()))
CPU = torch.device("cpu")
EPOCHS = 3


def settings_of(batch_size: int, units: int, minibatches: int) -> TrainerSettings:
    """PPO with a rollout of so many minibatches."""
    return TrainerSettings.model_validate(
        {
            "trainer_type": "ppo",
            "hyperparameters": {
                "batch_size": batch_size,
                "buffer_size": batch_size * minibatches,
                "num_epoch": EPOCHS,
            },
            "network_settings": {"hidden_units": units, "num_layers": 2},
        }
    )


def rollout(steps: int) -> Trajectories:
    """Steps of chance, 64 to a trajectory."""
    rng, segments = np.random.default_rng(1), steps // 64
    return Trajectories(
        observations=(rng.normal(size=(steps, 32)).astype(np.float32),),
        continuous_actions=rng.normal(size=(steps, 4)).astype(np.float32),
        discrete_actions=np.empty((steps, 0), np.int64),
        allowed_actions=np.ones((steps, 0), np.bool_),
        log_probs=np.full(steps, -5.0, np.float32),
        memories=np.zeros((steps, 0), np.float32),
        rewards=rng.normal(size=steps).astype(np.float32),
        group_rewards=np.zeros(steps, np.float32),
        lengths=np.full(segments, 64),
        final_observations=(rng.normal(size=(segments, 32)).astype(np.float32),),
        final_allowed_actions=np.ones((segments, 0), np.bool_),
        final_memories=np.zeros((segments, 0), np.float32),
        terminated=np.zeros(segments, np.bool_),
    )


def fastest_update(learner: Learner, trajectories: Trajectories, updates: int) -> tuple[float, float]:
    """Seconds of the fastest of some updates, the rollout's way to the other ranks included; and of this CPU."""
    times, cpu = [], []
    for _ in range(updates):
        learner.record(trajectories)
        start, start_cpu = time.perf_counter(), time.process_time()
        learner.update(0)
        times.append(time.perf_counter() - start)
        cpu.append(time.process_time() - start_cpu)
    return min(times), min(cpu)


class TimedSums:
    """The sums of a group of ranks: how many there were, and how long this rank was in them, waiting included."""

    def __init__(self, group: LearnerGroup) -> None:
        self.count, self.seconds = 0, 0.0
        self._add_up = group.add_up
        group.add_up = self._timed  # type: ignore[method-assign]

    def _timed(self, tensor: Tensor) -> Tensor:
        start = time.perf_counter()
        self._add_up(tensor)
        self.count += 1
        self.seconds += time.perf_counter() - start
        return tensor


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch-size", type=int, default=2048)
    parser.add_argument("--units", type=int, default=256)
    parser.add_argument("--minibatches", type=int, default=8, help="of a rollout (default 8)")
    parser.add_argument("--updates", type=int, default=5)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    settings = settings_of(arguments.batch_size, arguments.units, arguments.minibatches)
    trajectories = rollout(arguments.batch_size * arguments.minibatches)
    alone = ALGORITHMS["ppo"](SPEC, settings, Compute(CPU, 1))
    one, one_cpu = fastest_update(alone, trajectories, arguments.updates)
    with start_ranks(arguments.ranks, CPU) as ranks:
        sums = TimedSums(ranks.group)
        ranks.set_threads(1)
        shared = ranks.make("Shared", SPEC, settings, Compute(CPU, 1))
        several, several_cpu = fastest_update(shared, trajectories, arguments.updates)
    parameters = sum(parameter.numel() for parameter in alone.actor.policy_network().network.parameters())
    print(
        f"batch_size {arguments.batch_size}, 2 x {arguments.units}, {parameters} parameters, "
        f"{EPOCHS * arguments.minibatches} gradient steps\n"
        f"  1 rank   {one:.3f} s, {one_cpu:.3f} s of its CPU\n"
        f"  {arguments.ranks} ranks  {several:.3f} s, {several_cpu:.3f} s of a CPU, {one / several:.2f} times as fast\n"
        f"  a sum    {1e3 * sums.seconds / sums.count:.2f} ms, waiting for the slowest rank included"
    )


if __name__ == "__main__":
    main()
