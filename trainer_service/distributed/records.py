"""The records that a trainer and its rollout workers exchange: frozen, of arrays and plain values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from typing import Any

import numpy as np
import torch

from trainer_service.collection.records import SampleBatch
from trainer_service.collection.router import BehaviorId
from trainer_service.config import PlayerName, TrainerSettings
from trainer_service.config.run_options import Precision
from unity_bridge.side_channels import EnvironmentParameterMessage, StatMessage
from unity_bridge.specs import BehaviorSpec


@dataclass(frozen=True, slots=True, eq=False)
class PublishedOpponent:
    """A fixed opponent, as workers shall act with it."""

    name: PlayerName

    checkpoint: Mapping[str, Any] | None
    """``plain_checkpoint``, with arrays in place of tensors; None for one that has none."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PublishedPolicy:
    """A behavior's policy as workers shall act with it: everything that they know of what was learned."""

    spec: BehaviorSpec
    settings: TrainerSettings

    version: int
    """Updates that the policy is the result of, in this process."""

    step: int
    """Agent steps of the behavior by then."""

    state: Mapping[str, Any]
    """``Actor.state_dict``, with arrays in place of tensors."""

    seed: int
    """What random streams are derived from, together with the step, the quota's number and the worker."""

    training: bool
    """Whether trajectories are wanted; otherwise it only acts."""

    precision: Precision = "float32"
    """The precision in which it encodes pictures."""

    learning_team: int | None = None
    """The team id whose trajectories are wanted, under self-play; None for all."""

    opponents: Mapping[int, Mapping[str, Any]] = field(default_factory=dict)
    """State dicts, as arrays, of the snapshots that other sides act as, by team id."""

    fixed_opponents: Mapping[int, PublishedOpponent] = field(default_factory=dict)
    """The fixed opponents that other sides act as, by team id."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SampleRequest:
    """What every worker is told before it collects."""

    number: int
    """Requests of this run before it."""

    policies: Mapping[str, PublishedPolicy]
    """By behavior name, as far as behaviors are known."""

    parameters: Sequence[EnvironmentParameterMessage] = ()
    """Environment parameters as they are in force."""

    restarts: int = 0
    """How often all episodes had to begin anew so far, for a new lesson or another side's turn."""


@dataclass(frozen=True, slots=True)
class CollectionQuota:
    """One worker's quota of a request, fulfilled when one of its behaviors has one of these."""

    steps: Mapping[str, int]
    """Agent steps in complete trajectories, by behavior name."""

    budget: Mapping[str, int]
    """Agent steps, complete or not, by behavior name: what is left of ``max_steps``."""

    number: int = 0
    """Quotas of this run before it: random streams are derived from it."""


@dataclass(frozen=True, slots=True, eq=False)
class Declaration:
    """A behavior that a worker's simulators have and that it knows no policy of."""

    behavior_id: BehaviorId
    spec: BehaviorSpec
    group_size: int


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class SampleResult:
    """What a worker collected since its last result."""

    number: int
    """Of the request that it answers."""

    versions: Mapping[str, int]
    """Of the policies that acted, by behavior name."""

    restarts: int = 0
    """Of the request that it answers."""

    complete: bool
    """Whether the quota is fulfilled, or cannot be; otherwise the worker goes on when it is asked to."""

    batches: Sequence[tuple[str, SampleBatch]] = ()
    """By behavior name; one for each of its team ids."""

    env_steps: int = 0
    """Environment steps of its simulators."""

    stats: Sequence[tuple[str, StatMessage]] = ()
    """Statistics of simulators, by behavior name."""

    declared: Sequence[Declaration] = ()
    behavior_ids: frozenset[BehaviorId] = frozenset()
    """The behavior ids that its simulators have agents of now."""

    steps_at_once: Mapping[str, int] = field(default_factory=dict)
    """The greatest number of agent steps that every tick so far had a multiple of, by behavior name."""

    timers: str = "{}"
    """The worker's timers so far, as JSON."""

    log: Sequence[tuple[int, str]] = ()
    """Levels and texts of what was logged there."""

    @staticmethod
    def merged(results: Sequence[SampleResult]) -> SampleResult:
        """The result that a worker would have sent if it had not sent these of one request, in order, before.

        When it reports is a matter of time, and sums that are made piece by piece differ in their last bits.
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
    """A copy of nested mappings and sequences with every leaf changed."""
    if isinstance(tree, Mapping):
        return {key: mapped_leaves(value, change) for key, value in tree.items()}
    if isinstance(tree, list | tuple):
        return [mapped_leaves(value, change) for value in tree]
    return change(tree)


def as_arrays(tree: Any) -> Any:
    """A copy of a state in which tensors are arrays on the CPU."""
    return mapped_leaves(
        tree, lambda leaf: leaf.detach().cpu().numpy().copy() if isinstance(leaf, torch.Tensor) else leaf
    )


def as_tensors(tree: Any) -> Any:
    """A copy of a state in which arrays are tensors."""
    return mapped_leaves(tree, lambda leaf: torch.tensor(leaf) if isinstance(leaf, np.ndarray) else leaf)


def writable(record: Any) -> Any:
    """The record, nested ones included, with arrays that may be written, as those from another process may not.

    Learners give arrays to torch, which takes none but writable ones.
    """
    if isinstance(record, np.ndarray):
        return record if record.flags.writeable else record.copy()
    if isinstance(record, tuple):
        return tuple(map(writable, record))
    if is_dataclass(record) and not isinstance(record, type):
        return replace(record, **{each.name: writable(getattr(record, each.name)) for each in fields(record)})
    return record
