"""The expected speed of a run with rollout workers, from the costs of its parts."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

EPOCHS = 3
"""Times that an update goes over its rollout; as benchmarks/configs/sleeper.yaml."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Costs of the parts on this machine, each measured alone."""

    step_s: float
    """The simulator's time for a step, its sleep included."""

    exchange_s: float
    """The trainer's time for one simulator's step: the wire, decoding, acting, encoding."""

    call_s: float
    """A call of a Ray actor, many at once."""

    put_bytes_per_s: float
    """Of a worker's result into Ray's object store, which all workers do at once."""

    take_bytes_per_s: float
    """Out of it, and copied so that it may be written, which the learner does with all of them."""

    policy_bytes: int
    """Of the policy that a worker gets before it collects."""

    samples_per_s: float
    """Of the learner: steps of a minibatch, forward and back."""

    large_samples_per_s: float
    """Of the learner with large minibatches, as a large rollout is learned from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How a run is spread, and how much it collects for an update."""

    workers: int
    """0 collects in the trainer's own process."""

    simulators: int
    """Of each worker."""

    agents: int
    """Of each simulator."""

    steps: int
    """Agent steps of a rollout."""

    step_bytes: float
    """Of an agent's step on its way to the learner."""

    epochs: int = EPOCHS

    network_bytes_per_s: float = inf
    """Into the learner's machine, where workers are on others."""


@dataclass(frozen=True, slots=True)
class Round:
    """Seconds that one rollout takes."""

    collect: float
    move: float
    update: float

    @property
    def sync(self) -> float:
        """Where learning waits for collecting, and collecting for learning."""
        return self.collect + self.move + self.update

    @property
    def overlapped(self) -> float:
        """Where both run at once, as with ``collection: async``: the slower one counts."""
        return max(self.collect, self.move + self.update)


def predict(costs: Costs, shape: Shape) -> Round:
    """The seconds of one rollout.

    A worker answers all of its simulators in turn. So its step takes the time of one simulator with its answer, or that
    of all answers if it is longer.
    """
    sources = max(shape.workers, 1)
    exchanges = shape.steps / (sources * shape.simulators * shape.agents)
    step = max(costs.step_s + costs.exchange_s, shape.simulators * costs.exchange_s)
    move = 0.0
    if shape.workers:
        rollout_bytes = shape.steps * shape.step_bytes
        move = rollout_bytes / (shape.workers * costs.put_bytes_per_s)
        move += (rollout_bytes + shape.workers * costs.policy_bytes) / shape.network_bytes_per_s
        move += rollout_bytes / costs.take_bytes_per_s + 2 * shape.workers * costs.call_s
    return Round(exchanges * step, move, shape.steps * shape.epochs / costs.samples_per_s)


def steps_per_s(costs: Costs, shape: Shape, collection: str) -> float:
    """Agent steps per second. collection: ``sync`` or ``async``."""
    times = predict(costs, shape)
    return shape.steps / (times.overlapped if collection == "async" else times.sync)


def learner_for(times: Round, shape: Shape, share: float) -> float | None:
    """Samples per second with which collecting takes this share of the time in sync mode.

    Returns:
        None where moving the rollout alone takes too long.
    """
    left = times.collect * (1 / share - 1) - times.move
    return shape.steps * shape.epochs / left if left > 0 else None


def efficiency(rate: float, workers: int, rate_of_one: float) -> float:
    """The share of as many times the speed of one worker."""
    return rate / (workers * rate_of_one)
