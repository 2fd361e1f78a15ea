"""Quotas of steps for rollout workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_service.distributed.records import CollectionQuota

LARGEST_BUDGET = 4
"""Factor of a worker's budget: the most agent steps, complete or not, for each step of its quota, if workers do not
wait for each other."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Steps wanted of all workers together for one behavior."""

    steps: int
    """Agent steps in complete trajectories."""

    left: int | None
    """Remaining agent steps of ``max_steps``; None for a behavior that only acts."""

    at_once: int = 1
    """Agent steps that arrive together, as agents of a simulator act at once. Parts of ``left`` are multiples of it."""


def quota_of(
    demands: Mapping[str, Demand],
    holders: Mapping[str, Sequence[int]],
    worker: int,
    number: int,
    *,
    bounded: bool,
) -> CollectionQuota | None:
    """Returns one worker's quota; None if no steps are left for it.

    The budgets of all quotas of a behavior add up to its remaining steps, so that all workers together keep to
    ``max_steps``.

    Args:
        demands: by behavior name. Without any, the quota lasts until a behavior is declared.
        holders: the workers that share a behavior's steps, in order, by behavior name.
        worker: number of the worker.
        number: number of the quota.
        bounded: whether a budget is limited to a small multiple of the steps, so that later quotas get a part.
    """
    if not demands:
        return CollectionQuota({}, {}, number)
    steps: dict[str, int] = {}
    budget: dict[str, int] = {}
    for name, demand in demands.items():
        if worker not in holders[name]:
            continue
        index, workers = holders[name].index(worker), len(holders[name])
        wanted = max(part(demand.steps, index, workers), 1)
        allowed, unit = wanted, demand.at_once
        if demand.left is not None:
            allowed = part(-(-demand.left // unit), index, workers) * unit
        if bounded:
            allowed = min(allowed, -(-LARGEST_BUDGET * wanted // unit) * unit)
        if allowed:
            steps[name], budget[name] = wanted, allowed
    return CollectionQuota(steps, budget, number) if steps else None


def part(whole: int, index: int, workers: int) -> int:
    """Returns part ``index`` of ``workers`` parts that add up to the whole and differ by at most one."""
    return whole // workers + (index < whole % workers)
