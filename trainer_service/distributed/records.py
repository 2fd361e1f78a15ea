"""The records that a trainer and its rollout workers exchange: frozen, of arrays and plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from trainer_service.config import PlayerName, TrainerSettings
from trainer_service.config.run_options import Precision
from trainer_service.running.collection.records import SampleBatch
from trainer_service.running.collection.router import BehaviorId
from unity_bridge.side_channels import StatMessage
from unity_bridge.specs import BehaviorSpec


@dataclass(frozen=True, slots=True, eq=False)
class PublishedOpponent:
    """A fixed opponent, published for workers."""

    name: PlayerName

    checkpoint: Mapping[str, Any] | None
    """``plain_checkpoint`` with arrays instead of tensors; None for an opponent without a checkpoint."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PublishedPolicy:
    """A behavior's policy, published for workers: all that they get of the learner."""

    spec: BehaviorSpec
    settings: TrainerSettings

    version: int
    """Number of updates of the policy, in this process."""

    step: int
    """Agent steps of the behavior at that time."""

    state: Mapping[str, Any]
    """``Actor.state_dict`` with arrays instead of tensors."""

    seed: int
    """Seed of random streams, combined with the step, the quota's number and the worker."""

    training: bool
    """Whether to return trajectories; otherwise the policy only acts."""

    precision: Precision = "float32"
    """The precision of its picture encoders."""

    learning_team: int | None = None
    """The team id whose trajectories are returned under self-play; None for all."""

    opponents: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """State dicts, as arrays, of the other sides' snapshots, by team id."""

    fixed_opponents: Mapping[int, PublishedOpponent] = field(default_factory=dict)
    """The other sides' fixed opponents, by team id."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SampleRequest:
    """The common input of all workers before collection."""

    number: int
    """Number of earlier requests in this run."""

    policies: Mapping[str, PublishedPolicy]
    """Policies of the known behaviors, by name."""

    lessons: Mapping[str, int] = field(default_factory=dict)
    """The number of each environment parameter's current lesson."""

    restarts: int = 0
    """Number of times that all episodes restarted so far, for a new lesson or another learning side."""


@dataclass(frozen=True, slots=True)
class CollectionQuota:
    """One worker's quota of a request. It is fulfilled when one of its behaviors reaches one of these limits."""

    steps: Mapping[str, int]
    """Agent steps in complete trajectories, by behavior name."""

    budget: Mapping[str, int]
    """Agent steps, complete or not, by behavior name: its part of the remaining ``max_steps``."""

    number: int = 0
    """Number of earlier quotas in this run, from which random streams are derived."""


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """A behavior of a worker's simulators for which the worker has no policy."""

    behavior_id: BehaviorId
    spec: BehaviorSpec
    group_size: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SampleResult:
    """The experience that a worker collected since its last result."""

    number: int
    """Number of the request."""

    versions: Mapping[str, int]
    """Versions of the policies that acted, by behavior name."""

    restarts: int = 0
    """``restarts`` of the request."""

    complete: bool
    """Whether the quota is fulfilled, or cannot be. If not, the worker continues at the next call."""

    batches: Sequence[tuple[str, SampleBatch]] = ()
    """Batches by behavior name, one for each team id."""

    env_steps: int = 0
    """Environment steps of its simulators."""

    stats: Sequence[tuple[str, StatMessage]] = ()
    """Statistics of simulators, by behavior name."""

    declared: Sequence[Declaration] = ()
    behavior_ids: frozenset[BehaviorId] = frozenset()
    """The behavior ids of its simulators' present agents."""

    steps_at_once: Mapping[str, int] = field(default_factory=dict)
    """The greatest common divisor of the agent steps of all ticks so far, by behavior name."""

    timers: str = "{}"
    """The worker's timers so far, as JSON."""

    log: Sequence[tuple[int, str, str]] = ()
    """Levels, texts and topics of the worker's log entries; only notices of simulators have a topic."""

    @staticmethod
    def merged(results: Sequence[SampleResult]) -> SampleResult:
        """Merges a worker's results of one request, in order, to the result that it would have sent at once.

        The times of results vary, and sums of parts differ in their last bits.
        """
        parts: dict[tuple[str, int], list[SampleBatch]] = {}
        for result in results:
            for name, batch in result.batches:
                parts.setdefault((name, batch.team), []).append(batch)
        return replace(
            results[-1],
            batches=[(name, SampleBatch.concatenate(part)) for (name, _), part in parts.items()],
            env_steps=sum(result.env_steps for result in results),
            stats=[stat for result in results for stat in result.stats],
            log=[line for result in results for line in result.log],
        )


def mapped_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Returns a copy of nested mappings and sequences with every leaf changed."""
    if isinstance(tree, Mapping):
        return {key: mapped_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [mapped_leaves(value, change) for value in tree]
    return change(tree)


def as_arrays(tree: Any) -> Any:
    """Returns a copy of a state with tensors as arrays on the CPU."""
    return mapped_leaves(
        tree, lambda leaf: leaf.detach().cpu().numpy().copy() if isinstance(leaf, torch.Tensor) else leaf
    )


def as_tensors(tree: Any) -> Any:
    """Returns a copy of a state with arrays as tensors."""
    return mapped_leaves(tree, lambda leaf: torch.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf)


def writable(record: Any) -> Any:
    """Returns the record with writable arrays, also in nested records. Arrays of other processes are read-only.

    Learners pass arrays to torch, which requires writable ones.
    """
    if isinstance(record, np.ndarray):
        return record if record.flags.writeable else record.copy()
    if isinstance(record, tuple):
        return tuple(map(writable, record))
    if is_dataclass(record) and not isinstance(record, type):
        return replace(record, **{each.name: writable(getattr(record, each.name)) for each in fields(record)})
    return record
