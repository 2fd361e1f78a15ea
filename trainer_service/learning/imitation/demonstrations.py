"""Demonstrated steps in memory, checked against the behavior that shall imitate them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer_service.errors import UserError
from trainer_service.learning.rollout.sensor_roles import SensorRole, role_of
from trainer_service.learning.rollout.trajectories import Trajectories
from unity_bridge.demonstrations import (
    DemonstratedSegment,
    DemonstrationError,
    DemonstrationFile,
    open_demonstrations,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec, FloatOrder
from unity_bridge.steps import join_observations
from unity_bridge.untrusted_text import quoted

_logger = logging.getLogger(__name__)


class DemonstratedSteps(NamedTuple):
    """B steps on a device, in any order, each perhaps more than once."""

    observations: Sequence[Tensor]
    """As they came, one per sensor: not normalized, and bytes where they are bytes. Shapes [B, *sensor shape]."""

    executed_actions: Tensor
    """Continuous actions as the environment executed them, in [−1, 1]. Shape [B, continuous size]."""

    discrete_actions: Tensor
    """int64 [B, branches]"""

    terminated: Tensor
    """The task ended with the step. bool [B]"""


@dataclass(frozen=True, slots=True, eq=False)
class Demonstrations:
    """All steps of some files, episode after episode: S steps of P episodes, on the CPU."""

    steps: DemonstratedSteps
    """All S of them, in time."""

    lengths: NDArray[np.int64]
    """Steps of each episode. Shape [P]."""

    def __len__(self) -> int:
        return len(self.steps.terminated)

    def take(self, rows: Tensor, device: torch.device) -> DemonstratedSteps:
        """Some of the steps. rows: int64 [B], on any device."""
        rows = rows.cpu()
        return DemonstratedSteps(
            [sensor[rows].to(device) for sensor in self.steps.observations],
            *(column[rows].to(device) for column in self.steps[1:]),
        )

    def episodes(self, chosen: NDArray[np.int64]) -> Demonstrations:
        """Some of the episodes, by their numbers, in that order."""
        ends = np.cumsum(self.lengths)
        ranges = [np.arange(ends[i] - self.lengths[i], ends[i]) for i in chosen.tolist()]
        rows = torch.from_numpy(np.concatenate([np.zeros(0, np.int64), *ranges]))
        return Demonstrations(self.take(rows, torch.device("cpu")), self.lengths[chosen])


class DemonstrationStore:
    """The demonstrations below a path, read when they are needed first: acting alone has no use for them."""

    def __init__(self, path: str, spec: BehaviorSpec) -> None:
        """path: a .demo file or a folder of them."""
        self.path = Path(path)
        self._spec = spec
        self._content: Demonstrations | None = None

    def read(self) -> Demonstrations:
        """Returns the steps of the files; they are read once.

        Raises:
            UserError: a file is missing, damaged, without steps, or of other sensors or actions than the behavior's.
        """
        if self._content is None:
            self._content = _joined([*self._segments()])
        return self._content

    def read_trajectories(self) -> Trajectories:
        """Returns the steps with rewards and final observations. Every action is allowed, since masks are not recorded.

        Raises UserError as ``read`` does.
        """
        segments = [segment for segment, _ in self._segments()]
        steps, mask_size = sum(map(len, segments)), self._spec.action_spec.mask_size
        none = np.zeros((len(segments), 0), np.float32)
        seen = zip(*(segment.observations for segment in segments), strict=True)
        final = zip(*(segment.final_observations for segment in segments), strict=True)
        return Trajectories(
            observations=tuple(map(join_observations, seen)),
            continuous_actions=np.concatenate([segment.continuous_actions for segment in segments]),
            discrete_actions=np.concatenate([segment.discrete_actions for segment in segments]),
            allowed_actions=np.ones((steps, mask_size), np.bool_),
            log_probs=np.zeros(steps, np.float32),
            memories=np.zeros((steps, 0), np.float32),
            rewards=np.concatenate([segment.rewards for segment in segments]),
            group_rewards=np.concatenate([segment.group_rewards for segment in segments]),
            lengths=np.array([len(segment) for segment in segments], np.int64),
            final_observations=tuple(map(join_observations, final)),
            final_allowed_actions=np.ones((len(segments), mask_size), np.bool_),
            final_memories=none,
            terminated=np.array([segment.terminated for segment in segments]),
        )

    def _segments(self) -> Iterator[tuple[DemonstratedSegment, bool]]:
        """Reads the segments as the behavior would have them, and whether each begins an episode."""
        try:
            yield from _read(self.path, self._spec)
        except DemonstrationError as error:
            raise UserError(str(error)) from None

    def replace(self, content: Demonstrations) -> None:
        """Replaces the steps, for example by a part of them."""
        self._content = content

    def share(self, other: DemonstrationStore) -> bool:
        """Takes over the steps of another store of the same files and behavior. Returns whether it is such a store."""
        if (self.path, self._spec) != (other.path, other._spec):
            return False
        self._content = other.read()
        return True


def read_all(stores: Sequence[DemonstrationStore]) -> None:
    """Reads what each holds; what several hold is read once. Raises UserError as each of them does."""
    for i, store in enumerate(stores):
        if not any(store.share(other) for other in stores[:i]):
            store.read()


def _read(path: Path, spec: BehaviorSpec) -> Iterator[tuple[DemonstratedSegment, bool]]:
    ambiguous: set[str] = set()
    order = _float_order(spec)
    found = False
    for file in open_demonstrations(path, order):
        sensors = check_fit(file, spec)
        ambiguous.update(file.ambiguous_pictures)
        goes_on = False
        for segment in file.segments():
            fitting = replace(
                segment,
                observations=tuple(segment.observations[sensor] for sensor in sensors),
                final_observations=tuple(segment.final_observations[sensor] for sensor in sensors),
                # A policy can do no more: what goes further is the same to it, and must not tell the two apart.
                continuous_actions=segment.continuous_actions.clip(-1.0, 1.0),
            )
            yield fitting, segment.starts_episode or not goes_on
            goes_on = found = True
    if not found:
        raise UserError(f"'{path}': expected demonstrated steps, found none")
    if ambiguous:
        _log_order(path, ambiguous, order)


def _joined(read: Sequence[tuple[DemonstratedSegment, bool]]) -> Demonstrations:
    segments = [segment for segment, _ in read]
    lengths = np.array([len(segment) for segment in segments], np.int64)
    terminated = np.zeros(lengths.sum(), np.bool_)
    terminated[np.cumsum(lengths) - 1] = [segment.terminated for segment in segments]
    steps = DemonstratedSteps(
        [
            torch.from_numpy(join_observations(sensor))
            for sensor in zip(*(segment.observations for segment in segments), strict=True)
        ],
        torch.from_numpy(np.concatenate([segment.continuous_actions for segment in segments])),
        torch.from_numpy(np.concatenate([segment.discrete_actions for segment in segments])),
        torch.from_numpy(terminated),
    )
    starts = np.flatnonzero([starts for _, starts in read])
    return Demonstrations(steps, np.add.reduceat(lengths, starts))


def _float_order(spec: BehaviorSpec) -> FloatOrder:
    """The order in which the behavior's simulator writes pictures; a recording does not name its package."""
    return "hwc" if any(sensor.float_order == "hwc" for sensor in spec.observation_specs) else "chw"


def _log_order(path: Path, sensors: set[str], order: FloatOrder) -> None:
    words = {"hwc": "(height, width, channels)", "chw": "(channels, height, width)"}
    _logger.info(
        "'%s': the numbers of uncompressed pictures (%s) are read as %s. A recording does not say how they lie; the "
        "connected simulator writes them so (by its version, or by env_settings.picture_layout).",
        path,
        ", ".join(map(quoted, sorted(sensors))),
        words[order],
    )


def check_fit(file: DemonstrationFile, spec: BehaviorSpec) -> list[int]:
    """Numbers of the sensors that agents decide from: all but the global state, which only critics see.

    Raises UserError for other sensors or actions. Names are not compared: they change with a project's scenes.
    """
    numbers = [
        i
        for i, sensor in enumerate(file.spec.observation_specs)
        if role_of(sensor) is not SensorRole.GLOBAL_STATE
    ]
    expected, came = spec.observation_specs, [file.spec.observation_specs[i] for i in numbers]
    if len(came) != len(expected):
        raise UserError(
            f"'{file.path}' was recorded with {len(came)} sensors {_shapes(came)}, "
            f"the behavior has {len(expected)} {_shapes(expected)}"
        )
    for ours, theirs in zip(expected, came, strict=True):
        if theirs.shape != ours.shape:
            raise UserError(
                f"'{file.path}': sensor '{theirs.name}' was recorded with shape {theirs.shape}, "
                f"sensor '{ours.name}' of the behavior has {ours.shape}"
            )
    if file.spec.action_spec != spec.action_spec:
        raise UserError(
            f"'{file.path}' was recorded with {_actions(file.spec.action_spec)}, "
            f"the behavior has {_actions(spec.action_spec)}"
        )
    return numbers


def _shapes(sensors: Sequence[Any]) -> str:
    return ", ".join(str(sensor.shape) for sensor in sensors)


def _actions(spec: ActionSpec) -> str:
    return f"{spec.continuous_size} continuous actions and branches {list(spec.discrete_branches)}"
