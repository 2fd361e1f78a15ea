"""Collected experience as tensors, for checkpoints that load without unpickling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from trainer_service.rollout.trajectories import GroupIndex, Trajectories

_EARLIER_NAMES = {"joint": "group_index", "slots": "agent_indices"}
"""Names of fields in checkpoints of earlier versions, and those of today."""


def to_tensors(trajectories: Trajectories) -> dict[str, Any]:
    """Every field under its name; one tensor, or a list of one per sensor."""
    packed: dict[str, Any] = {}
    for field in fields(Trajectories):
        value = getattr(trajectories, field.name)
        if value is None:
            continue
        if isinstance(value, GroupIndex):
            packed[field.name] = {
                column.name: torch.from_numpy(getattr(value, column.name)) for column in fields(GroupIndex)
            }
        elif isinstance(value, tuple):
            packed[field.name] = [torch.from_numpy(sensor) for sensor in value]
        else:
            packed[field.name] = torch.from_numpy(value)
    return packed


def from_tensors(packed: Mapping[str, Any]) -> Trajectories:
    """The record that ``to_tensors`` packed. Raises KeyError where a field is missing."""
    unpacked: dict[str, Any] = {}
    packed = _renamed(packed)
    for field in fields(Trajectories):
        if field.name in ("group_index", "ended") and field.name not in packed:
            continue
        value = packed[field.name]
        if isinstance(value, Mapping):
            unpacked[field.name] = GroupIndex(
                **{name: column.numpy() for name, column in _renamed(value).items()}
            )
        elif isinstance(value, list):
            unpacked[field.name] = tuple(sensor.numpy() for sensor in value)
        else:
            unpacked[field.name] = value.numpy()
    return Trajectories(**unpacked)


def _renamed(packed: Mapping[str, Any]) -> dict[str, Any]:
    """Everything under the names of today."""
    return {_EARLIER_NAMES.get(name, name): value for name, value in packed.items()}
