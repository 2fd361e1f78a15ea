"""What agents saw and earned, as bytes: a serialized ListAgentInfoProto. The simulator's side."""

from __future__ import annotations

from unity_bridge.specs import BehaviorSpec
from unity_bridge.steps import StepBatch
from unity_bridge.wire.unity_rl_output_pb2 import UnityRLOutputProto

ListAgentInfoProto = UnityRLOutputProto.ListAgentInfoProto


def encode_steps(batch: StepBatch, spec: BehaviorSpec) -> bytes:
    """One behavior's rows as a serialized ListAgentInfoProto, in the batch's order.

    As from Unity, zeros are left out. Masks are sent, for all rows, as soon as one row forbids something.
    """
    return _encode_row_by_row(batch, spec)


def _encode_row_by_row(batch: StepBatch, spec: BehaviorSpec) -> bytes:
    message = ListAgentInfoProto()
    masked = not batch.allowed_actions.all()
    for row in range(len(batch)):
        info = message.value.add(
            reward=batch.rewards[row],
            done=bool(batch.terminated[row] or batch.truncated[row]),
            max_step_reached=bool(batch.truncated[row]),
            id=batch.agent_ids[row],
            action_mask=(~batch.allowed_actions[row]).tolist() if masked else (),
            group_id=batch.group_ids[row],
            group_reward=batch.group_rewards[row],
        )
        for sensor, values in zip(spec.observation_specs, batch.observations, strict=True):
            observation = info.observations.add(
                shape=sensor.shape,
                dimension_properties=[int(flags) for flags in sensor.dimension_property],
                observation_type=sensor.observation_type.value,
                name=sensor.name,
            )
            observation.float_data.data.extend(values[row].ravel().tolist())
    return message.SerializeToString()
