"""Recordings in ML-Agents' format: each row holds the previous action, and the file repeats its head at the end."""

from __future__ import annotations

import contextlib
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Self

import numpy as np

from unity_bridge.codec.messages import encode_behavior_spec, encode_steps
from unity_bridge.demonstrations.file_format import HEADER_SIZE, delimited, encode_header
from unity_bridge.demonstrations.records import DemonstratedSegment
from unity_bridge.errors import DemonstrationError
from unity_bridge.specs import BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation, StepBatch, join_observations
from unity_bridge.wire.agent_action_pb2 import AgentActionProto
from unity_bridge.wire.agent_info_action_pair_pb2 import AgentInfoActionPairProto
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.demonstration_meta_pb2 import DemonstrationMetaProto
from unity_bridge.wire.unity_rl_output_pb2 import UnityRLOutputProto

_API_VERSION = 1
_LONGEST_NAME = 16
_UNUSUAL = re.compile(r"[^A-Za-z0-9 _-]+")


class DemonstrationWriter:
    """Writes one recording, episode after episode, to a temporary file that takes its name when all is well.

    A ``with`` block that ends with an exception leaves nothing behind, and an older file as it was.
    """

    def __init__(self, path: Path, behavior_name: str, spec: BehaviorSpec, *, name: str = "") -> None:
        """Begins a recording.

        Args:
            path: of the file; its folder is made if it is missing.
            behavior_name: with or without a team.
            spec: of the behavior.
            name: that the recording gives itself; what a head cannot hold of it is left out.

        Raises:
            DemonstrationError: the file cannot be written.
        """
        self._path = path
        self._spec = spec
        self._recorded_spec = replace(
            spec, observation_specs=tuple(map(_recorded_sensor, spec.observation_specs))
        )
        self._meta = DemonstrationMetaProto(
            api_version=_API_VERSION, demonstration_name=_UNUSUAL.sub("", name)[:_LONGEST_NAME]
        )
        self._total_reward = 0.0
        self._agent = 0
        self._is_open = False
        self._temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        self._file = self._begin(behavior_name if "?" in behavior_name else f"{behavior_name}?team=0")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def write(self, segment: DemonstratedSegment) -> None:
        """Adds steps: those of a new episode, or the next ones of the episode that was not ended.

        Raises:
            DemonstrationError: the file cannot be written.
            ValueError: the segment does not fit the behavior, or continues with an episode that is over.
        """
        if not segment.starts_episode and not self._is_open:
            raise ValueError("expected a segment that starts an episode, got the rest of one")
        if segment.starts_episode and self._is_open:
            self._agent += 1  # so that its end, which was not recorded, is not taken for one step more
        infos = self._infos(segment)
        actions = self._actions(segment)
        rows = zip(infos, actions, strict=True)
        if not segment.starts_episode:
            next(rows)  # the final row of the segment before
        self._append(
            b"".join(
                delimited(AgentInfoActionPairProto(agent_info=info, action_info=action).SerializeToString())
                for info, action in rows
            )
        )
        self._count(infos if segment.starts_episode else infos[1:])
        self._is_open = not (segment.terminated or segment.truncated)

    def close(self) -> None:
        """Finishes the file and gives it its name.

        Raises:
            DemonstrationError: the file cannot be written.
        """
        self._meta.number_episodes += 1  # as other writers count: closing is an end
        self._meta.mean_reward = self._total_reward / self._meta.number_episodes
        while self._meta.ByteSize() >= HEADER_SIZE:
            self._meta.demonstration_name = self._meta.demonstration_name[:-1]
        try:
            self._file.write(self._meta.SerializeToString())
            self._file.seek(0)
            self._file.write(encode_header(self._meta))
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()
            os.replace(self._temporary, self._path)
        except OSError as error:
            raise self._failed_write(error) from error

    def abandon(self) -> None:
        """Leaves nothing behind."""
        with contextlib.suppress(OSError):
            self._file.close()
        with contextlib.suppress(OSError):
            self._temporary.unlink()

    def _begin(self, behavior_id: str) -> BinaryIO:
        brain = encode_behavior_spec(behavior_id, self._spec.action_spec)
        brain.is_training = False
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = self._temporary.open("wb")
        except OSError as error:
            raise self._write_error(error) from error
        self._file = file
        self._append(encode_header(self._meta) + delimited(brain.SerializeToString()))
        return file

    def _append(self, data: bytes) -> None:
        try:
            self._file.write(data)
        except OSError as error:
            raise self._failed_write(error) from error

    def _failed_write(self, error: OSError) -> DemonstrationError:
        self.abandon()
        return self._write_error(error)

    def _write_error(self, error: OSError) -> DemonstrationError:
        return DemonstrationError(f"cannot write '{self._path}': {error.strerror or error}")

    def _infos(self, segment: DemonstratedSegment) -> list[AgentInfoProto]:
        """The observations, T + 1 rows; rewards lie beside the observation after they were earned."""
        steps = len(segment)
        seen: list[Observation] = [
            join_observations(pair)
            for pair in zip(segment.observations, segment.final_observations, strict=True)
        ]
        rewards, group_rewards = (np.zeros(steps + 1, np.float32) for _ in range(2))
        rewards[1:], group_rewards[1:] = segment.rewards, segment.group_rewards
        order = np.arange(steps + 1)
        if segment.terminated or segment.truncated:
            order = np.roll(order, 1)  # rows that ended come first in a message
        ended = order == steps
        batch = StepBatch(
            agent_ids=np.full(steps + 1, self._agent, np.int64),
            observations=tuple(values[order] for values in seen),
            rewards=rewards[order],
            terminated=ended & segment.terminated,
            truncated=ended & segment.truncated,
            allowed_actions=np.ones((steps + 1, self._spec.action_spec.mask_size), np.bool_),
            group_ids=np.zeros(steps + 1, np.int64),
            group_rewards=group_rewards[order],
        )
        rows = UnityRLOutputProto.ListAgentInfoProto.FromString(
            encode_steps(batch, self._recorded_spec)
        ).value
        return [rows[place] for place in np.argsort(order).tolist()]

    def _actions(self, segment: DemonstratedSegment) -> list[AgentActionProto]:
        """The actions before each row, T + 1 of them: zeros before the first."""
        spec = self._spec.action_spec
        continuous, discrete = segment.continuous_actions, segment.discrete_actions
        if (continuous.shape[1], discrete.shape[1]) != (spec.continuous_size, spec.discrete_size):
            raise ValueError(
                f"expected {spec.continuous_size} continuous actions and {spec.discrete_size} branches, "
                f"got {continuous.shape[1]} and {discrete.shape[1]}"
            )
        nothing = AgentActionProto(
            continuous_actions=[0.0] * spec.continuous_size, discrete_actions=[0] * spec.discrete_size
        )
        return [nothing] + [
            AgentActionProto(continuous_actions=numbers, discrete_actions=choices)
            for numbers, choices in zip(continuous.tolist(), discrete.tolist(), strict=True)
        ]

    def _count(self, infos: list[AgentInfoProto]) -> None:
        self._meta.number_steps += len(infos)
        self._meta.number_episodes += sum(info.done for info in infos)
        self._total_reward += sum(info.reward for info in infos)


def _recorded_sensor(sensor: ObservationSpec) -> ObservationSpec:
    """The sensor as a recording describes it.

    A writer that describes a picture as (channels, height, width) is taken for one that writes its floats in another
    order than that. Ours are in order, so the description is left out.
    """
    if sensor.is_picture and sensor.shape[0] > 1:
        return replace(sensor, dimension_property=())
    return sensor
