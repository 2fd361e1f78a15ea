"""Collected experience as tensors, for checkpoints that load without unpickling."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from trainer_service.rollout.trajectories import Trajectories


def to_tensors(trajectories: Trajectories) -> dict[str, Any]:
    """Every field under its name; one tensor, or a list of one per sensor."""
    packed: dict[str, Any] = {}
    for field in fields(Trajectories):
        value = getattr(trajectories, field.name)
        if isinstance(value, tuple):
            packed[field.name] = [torch.from_numpy(sensor) for sensor in value]
        else:
            packed[field.name] = torch.from_numpy(value)
    return packed


def from_tensors(packed: Mapping[str, Any]) -> Trajectories:
    """The record that ``to_tensors`` packed. Raises KeyError where a field is missing."""
    unpacked: dict[str, Any] = {}
    for field in fields(Trajectories):
        value = packed[field.name]
        if isinstance(value, list):
            unpacked[field.name] = tuple(sensor.numpy() for sensor in value)
        else:
            unpacked[field.name] = value.numpy()
    return Trajectories(**unpacked)
