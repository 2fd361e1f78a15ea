"""Recordings as Unity's packages since 3.0.0-exp.1 write them, made of ours."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from unity_bridge.demonstrations.file_format import delimited, index_file, read_rows
from unity_bridge.specs import PICTURE, FloatOrder
from unity_bridge.wire.agent_info_action_pair_pb2 import AgentInfoActionPairProto


def as_unity_writes(path: Path, order: FloatOrder) -> Path:
    """Rewrites a recording of float pictures: described as (channels, height, width), with floats in this order."""
    index, content = index_file(path), path.read_bytes()
    rows = list(read_rows(path, index))
    end = index.first_row + sum(len(delimited(row)) for row in rows)
    path.write_bytes(
        content[: index.first_row]
        + b"".join(delimited(_described(row, order)) for row in rows)
        + content[end:]
    )
    return path


def _described(row: bytes, order: FloatOrder) -> bytes:
    pair = AgentInfoActionPairProto.FromString(row)
    for seen in pair.agent_info.observations:
        seen.dimension_properties.extend(PICTURE)
        floats = np.array(seen.float_data.data, np.float32).reshape(tuple(seen.shape))
        seen.float_data.data[:] = (floats.transpose(1, 2, 0) if order == "hwc" else floats).ravel().tolist()
    return pair.SerializeToString()
