"""Costs of Ray: a call, and a rollout on its way from a worker to the learner."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

import numpy as np

from trainer_service.distributed.records import SampleResult, writable
from trainer_service.learning.rollout.trajectories import Trajectories
from trainer_service.running.collection.records import SampleBatch

HORIZON = 64
"""Steps of a trajectory."""

Kind = Literal["vectors", "pictures, bytes", "pictures, floats"]
KINDS: tuple[Kind, ...] = ("vectors", "pictures, bytes", "pictures, floats")

_CALLS = 500


@dataclass(frozen=True, slots=True)
class RolloutCosts:
    """Of one rollout. Medians, in seconds."""

    kind: Kind
    steps: int
    bytes: int
    serialize_s: float
    """To make a message of it, without copying its arrays."""
    put_s: float
    """Into the object store, which copies: a worker does that with its result."""
    get_s: float
    """Out of it, as arrays that lie there."""
    copy_s: float
    """Into memory of the learner's own, which it may write."""

    @property
    def step_bytes(self) -> float:
        """Of one step, its part of the trajectory's end included."""
        return self.bytes / self.steps

    @property
    def put_bytes_per_s(self) -> float:
        """Of one worker."""
        return self.bytes / self.put_s

    @property
    def take_bytes_per_s(self) -> float:
        """Of the learner."""
        return self.bytes / (self.get_s + self.copy_s)


def measure_call(calls: int = _CALLS) -> float:
    """Seconds of a call of an actor that does nothing, where many are under way."""
    import ray

    class Idle:
        def call(self) -> None:
            """Does nothing."""

    actor = ray.remote(Idle).options(num_cpus=0).remote()
    try:
        ray.get([actor.call.remote() for _ in range(calls // 10)])
        started = time.perf_counter()
        ray.get([actor.call.remote() for _ in range(calls)])
        return (time.perf_counter() - started) / calls
    finally:
        ray.kill(actor)


def measure_rollout(kind: Kind, steps: int, repetitions: int) -> RolloutCosts:
    """The cost of moving so many steps of a kind from a worker to the learner."""
    result = result_of(rollout(kind, steps))
    times = [_journey(result) for _ in range(repetitions + 1)]
    medians = [median(column) for column in zip(*times[1:], strict=True)]
    return RolloutCosts(kind, steps, size_of(result), *medians)


def _journey(result: SampleResult) -> tuple[float, float, float, float]:
    """Seconds to serialize a result, to put it, to get it, and to copy it."""
    import ray

    serialize_s, _ = _timed(lambda: buffers_of(result))
    put_s, ref = _timed(lambda: ray.put(result))
    get_s, got = _timed(lambda: ray.get(ref))
    copy_s, _ = _timed(lambda: [writable(batch) for _, batch in got.batches])
    return serialize_s, put_s, get_s, copy_s


def buffers_of(record: Any) -> tuple[bytes, list[pickle.PickleBuffer]]:
    """The record as Ray sends it: its structure, and its arrays as they lie in memory."""
    buffers: list[pickle.PickleBuffer] = []
    return pickle.dumps(record, protocol=5, buffer_callback=buffers.append), buffers


def size_of(record: Any) -> int:
    """Bytes of a record as Ray sends it."""
    head, buffers = buffers_of(record)
    return len(head) + sum(buffer.raw().nbytes for buffer in buffers)


def rollout(kind: Kind, steps: int) -> Trajectories:
    """Steps of 3DBall's shapes, or of a camera of 84×84 in colours with five choices. Noise: it costs as much."""
    rng = np.random.default_rng(1)
    segments = -(-steps // HORIZON)
    lengths = np.full(segments, HORIZON)
    lengths[-1] -= segments * HORIZON - steps
    seen: Callable[[int], np.ndarray[Any, Any]]
    if kind == "vectors":
        seen = lambda rows: rng.normal(size=(rows, 8)).astype(np.float32)  # noqa: E731
    elif kind == "pictures, bytes":
        seen = lambda rows: rng.integers(0, 256, (rows, 3, 84, 84), np.uint8)  # noqa: E731
    else:
        seen = lambda rows: rng.random((rows, 3, 84, 84), np.float32)  # noqa: E731
    continuous, branches = (2, 0) if kind == "vectors" else (0, 1)
    choices = 5 * branches
    return Trajectories(
        observations=(seen(steps),),
        continuous_actions=rng.normal(size=(steps, continuous)).astype(np.float32),
        discrete_actions=np.zeros((steps, branches), np.int64),
        allowed_actions=np.ones((steps, choices), np.bool_),
        log_probs=np.zeros(steps, np.float32),
        memories=np.zeros((steps, 0), np.float32),
        rewards=np.zeros(steps, np.float32),
        group_rewards=np.zeros(steps, np.float32),
        lengths=lengths,
        final_observations=(seen(segments),),
        final_allowed_actions=np.ones((segments, choices), np.bool_),
        final_memories=np.zeros((segments, 0), np.float32),
        terminated=np.zeros(segments, np.bool_),
        ended=np.zeros(segments, np.bool_),
    )


def result_of(trajectories: Trajectories) -> SampleResult:
    """The answer of a worker that collected them."""
    batch = SampleBatch(0, len(trajectories), trajectories)
    return SampleResult(number=1, versions={"B": 1}, complete=True, batches=[("B", batch)])


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    value = work()
    return time.perf_counter() - started, value
