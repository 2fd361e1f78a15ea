"""Divides the wanted steps among rollout workers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trainer_service.distributed.records import CollectionQuota

LARGEST_BUDGET = 4
"""Agent steps, complete or not, that a worker counts at most for each one that it is asked for, where no other waits
for it."""


@dataclass(frozen=True, slots=True)
class Demand:
    """Steps wanted of all workers together for one behavior."""

    steps: int
    """Agent steps in complete trajectories."""

    left: int | None
    """Agent steps of ``max_steps`` that are left; None for a behavior that only acts."""

    at_once: int = 1
    """Agent steps that come together, as agents of a simulator act at once: quotas of what is left are multiples."""


def quota_of(
    demands: Mapping[str, Demand],
    holders: Mapping[str, Sequence[int]],
    worker: int,
    number: int,
    *,
    bounded: bool,
) -> CollectionQuota | None:
    """One worker's quota; None where nothing is left for it.

    Quotas of a behavior's budget add up to what is left of it, so that all workers together keep to ``max_steps``.

    Args:
        demands: by behavior name; without any, the quota has no end but a declaration.
        holders: the workers that a behavior is divided among, in order, by its name.
        worker: whose quota it is.
        number: of the quota.
        bounded: whether a budget is a small multiple of the steps, so that some of it is left for the next quota.
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
    """Part number ``index`` of so many that add up to the whole and differ by one at most."""
    return whole // workers + (index < whole % workers)
