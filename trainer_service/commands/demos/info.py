"""Contents of a recording, as text and as JSON."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unity_bridge.demonstrations import DemonstratedSegment, DemonstrationFile, DemonstrationMeta
from unity_bridge.specs import BehaviorSpec, ObservationSpec, ObservationType


@dataclass(slots=True, eq=False)
class _Totals:
    """Sums over the segments of a recording."""

    action_sizes: tuple[int, tuple[int, ...]]
    steps: int = 0
    terminated: int = 0
    truncated: int = 0
    returns: list[float] = field(default_factory=list)
    """Returns of every episode so far, the last one perhaps not to its end."""
    group_returns: list[float] = field(default_factory=list)
    lowest: NDArray[np.float32] = field(init=False)
    highest: NDArray[np.float32] = field(init=False)
    chosen: list[NDArray[np.int64]] = field(init=False)

    def __post_init__(self) -> None:
        continuous, branches = self.action_sizes
        self.lowest = np.full(continuous, np.inf, np.float32)
        self.highest = np.full(continuous, -np.inf, np.float32)
        self.chosen = [np.zeros(size, np.int64) for size in branches]

    def add(self, segment: DemonstratedSegment) -> None:
        if segment.starts_episode:
            self.returns.append(0.0)
            self.group_returns.append(0.0)
        self.steps += len(segment)
        self.terminated += segment.terminated
        self.truncated += segment.truncated
        self.returns[-1] += float(segment.rewards.sum(dtype=float))
        self.group_returns[-1] += float(segment.group_rewards.sum(dtype=float))
        self.lowest = np.minimum(self.lowest, segment.continuous_actions.min(axis=0))
        self.highest = np.maximum(self.highest, segment.continuous_actions.max(axis=0))
        for branch, counts in enumerate(self.chosen):
            np.add.at(counts, segment.discrete_actions[:, branch], 1)


@dataclass(frozen=True, slots=True)
class Contents:
    """The contents of a recording, counted row by row. Only figures that cannot be counted come from its head."""

    path: Path
    behavior: str
    meta: DemonstrationMeta
    spec: BehaviorSpec
    is_shifted: bool
    ambiguous_pictures: tuple[str, ...]
    """Sensors whose numbers lie in an order that the file does not tell."""
    steps: int
    terminated: int
    truncated: int
    returns: tuple[float, ...]
    """The return of every episode."""
    group_returns: tuple[float, ...]
    action_ranges: tuple[tuple[float, float], ...]
    """Lowest and highest of each continuous action; empty without steps."""
    choices: tuple[tuple[int, ...], ...]
    """How often each choice of each branch was made."""

    @property
    def unended(self) -> int:
        """The number of episodes without a recorded end."""
        return len(self.returns) - self.terminated - self.truncated


def read_contents(file: DemonstrationFile) -> Contents:
    """Reads a recording to its end.

    Raises:
        DemonstrationError: it is damaged.
    """
    actions = file.spec.action_spec
    totals = _Totals((actions.continuous_size, actions.discrete_branches))
    for segment in file.segments():
        totals.add(segment)
    ranges = zip(totals.lowest.tolist(), totals.highest.tolist(), strict=True) if totals.steps else ()
    return Contents(
        path=file.path,
        behavior=file.behavior_name,
        meta=file.meta,
        spec=file.spec,
        is_shifted=file.is_shifted,
        ambiguous_pictures=file.ambiguous_pictures,
        steps=totals.steps,
        terminated=totals.terminated,
        truncated=totals.truncated,
        returns=tuple(totals.returns),
        group_returns=tuple(totals.group_returns),
        action_ranges=tuple(ranges),
        choices=tuple(tuple(counts.tolist()) for counts in totals.chosen),
    )


def to_json(contents: Contents) -> dict[str, Any]:
    """The object that ``demo-info --json`` prints for a file."""
    return {
        "path": str(contents.path),
        "behavior": contents.behavior,
        "name": contents.meta.demonstration_name,
        "api_version": contents.meta.api_version,
        "closed": contents.meta.number_episodes > 0,
        "actions_lie": "one row later" if contents.is_shifted else "beside their observations",
        "ambiguous_pictures": list(contents.ambiguous_pictures),
        "sensors": [
            {"name": sensor.name, "shape": list(sensor.shape), "type": sensor.observation_type.name}
            for sensor in contents.spec.observation_specs
        ],
        "continuous_actions": contents.spec.action_spec.continuous_size,
        "discrete_branches": list(contents.spec.action_spec.discrete_branches),
        "steps": contents.steps,
        "episodes": len(contents.returns),
        "terminated": contents.terminated,
        "truncated": contents.truncated,
        "returns": _spread(contents.returns),
        "group_returns": _spread(contents.group_returns) if any(contents.group_returns) else None,
        "action_ranges": [list(each) for each in contents.action_ranges],
        "choices": [list(each) for each in contents.choices],
    }


def to_text(contents: Contents) -> str:
    """Lines on a recording, the first with the file's name."""
    meta = contents.meta
    name = f", recorded as '{meta.demonstration_name}'" if meta.demonstration_name else ""
    unclosed = "" if meta.number_episodes else "; the recorder did not close it"
    lines = [str(contents.path), f"  behavior   {contents.behavior}{name}{unclosed}"]
    titles = ["sensors", *[""] * len(contents.spec.observation_specs)]
    for title, sensor in zip(titles, contents.spec.observation_specs, strict=False):
        lines.append(f"  {title:<9}  {_sensor(sensor)}")
    lines.append(f"  actions    {_actions(contents)}")
    lines.append(f"  episodes   {_episodes(contents)}")
    lines.append(f"  steps      {contents.steps:,}")
    if contents.returns:
        lines.append(f"  return     {_returns(contents.returns)}")
    if any(contents.group_returns):
        lines.append(f"  group's    {_returns(contents.group_returns)}")
    where = "one row after what they answer (as today's writers put them)"
    beside = "beside what they answer (as the first writers put them)"
    lines.append(f"  layout     actions lie {where if contents.is_shifted else beside}")
    if contents.ambiguous_pictures:
        names = ", ".join(name or "without a name" for name in contents.ambiguous_pictures)
        lines.append(f"  pictures   not compressed, in an order that the file does not tell: {names}")
    return "\n".join(lines)


def _spread(returns: tuple[float, ...]) -> dict[str, float] | None:
    if not returns:
        return None
    return {"mean": float(np.mean(returns)), "min": min(returns), "max": max(returns)}


def _returns(returns: tuple[float, ...]) -> str:
    return f"mean {np.mean(returns):.3f}, from {min(returns):.3f} to {max(returns):.3f}"


def _sensor(sensor: ObservationSpec) -> str:
    kind = "picture" if sensor.is_picture else "list of things" if sensor.is_entities else "numbers"
    goal = ", states the goal" if sensor.observation_type is ObservationType.GOAL_SIGNAL else ""
    return f"{sensor.name or 'without a name'}: {kind} {'×'.join(map(str, sensor.shape))}{goal}"


def _actions(contents: Contents) -> str:
    spec = contents.spec.action_spec
    parts = []
    if spec.continuous_size:
        lowest = min((low for low, _ in contents.action_ranges), default=0.0)
        highest = max((high for _, high in contents.action_ranges), default=0.0)
        parts.append(f"{spec.continuous_size} continuous, from {lowest:.3f} to {highest:.3f}")
    for branch, counts in enumerate(contents.choices):
        shares = ", ".join(f"{count / max(sum(counts), 1):.0%}" for count in counts)
        parts.append(f"branch {branch} of {len(counts)}, chosen {shares}")
    return "; ".join(parts)


def _episodes(contents: Contents) -> str:
    ends = {
        "ended by the task": contents.terminated,
        "interrupted by the clock": contents.truncated,
        "without a recorded end": contents.unended,
    }
    parts = ", ".join(f"{count} {how}" for how, count in ends.items() if count)
    return f"{len(contents.returns)}: {parts}" if parts else "0"
