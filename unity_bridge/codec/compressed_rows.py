"""The encoding of rows with compressed pictures as a ListAgentInfoProto, for simulators.

PNG files differ in length, so these rows are no table; most of their time goes into compressing the pictures.
"""

from __future__ import annotations

import numpy as np

from unity_bridge.codec.pictures import channel_mapping, encode_png
from unity_bridge.codec.rows import varint_width, write_varints
from unity_bridge.specs import BehaviorSpec, ObservationSpec
from unity_bridge.steps import Observation, StepBatch, as_floats
from unity_bridge.wire.agent_info_pb2 import AgentInfoProto
from unity_bridge.wire.observation_pb2 import PNG, ObservationProto
from unity_bridge.wire.unity_rl_output_pb2 import UnityRLOutputProto

_PACKED_DATA_TAG = b"\x0a"


def encode_compressed(batch: StepBatch, spec: BehaviorSpec) -> bytes:
    """Returns one behavior's rows as bytes; see encode_steps, which has checked the batch."""
    message = UnityRLOutputProto.ListAgentInfoProto()
    forbidden = ~batch.allowed_actions
    masks = forbidden.tolist() if forbidden.any() else [()] * len(batch)
    sensors = [
        _observations(sensor, values)
        for sensor, values in zip(spec.observation_specs, batch.observations, strict=True)
    ]
    for row, mask in enumerate(masks):
        message.value.append(
            AgentInfoProto(
                reward=batch.rewards[row],
                done=bool(batch.terminated[row] or batch.truncated[row]),
                max_step_reached=bool(batch.truncated[row]),
                id=int(batch.agent_ids[row]),
                action_mask=mask,
                observations=[observations[row] for observations in sensors],
                group_id=int(batch.group_ids[row]),
                group_reward=batch.group_rewards[row],
            )
        )
    return message.SerializeToString()


def _observations(sensor: ObservationSpec, values: Observation) -> list[ObservationProto]:
    """Returns one sensor's observation of each agent; pictures of bytes are compressed."""
    observations = [
        ObservationProto(
            shape=sensor.shape,
            dimension_properties=[int(flags) for flags in sensor.dimension_property],
            observation_type=sensor.observation_type.value,  # type: ignore[arg-type]  # the enum's numbers
            name=sensor.name,
        )
        for _ in values
    ]
    if values.dtype == np.uint8 and values.ndim == 4:
        for observation, picture in zip(observations, values, strict=True):
            observation.compression_type = PNG
            observation.compressed_data = encode_png(picture)
            observation.compressed_channel_mapping.extend(channel_mapping(len(picture)))
    else:
        width = varint_width(4 * sensor.size)
        head = _PACKED_DATA_TAG + write_varints(np.array([4 * sensor.size]), width).tobytes()
        for observation, floats in zip(observations, as_floats(values), strict=True):
            observation.float_data.ParseFromString(head + floats.astype("<f4", copy=False).tobytes())
    return observations
