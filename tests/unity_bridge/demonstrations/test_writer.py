"""Files as today's writer leaves them, byte for byte; whole or not at all."""

from __future__ import annotations

import errno
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from unity_bridge.demonstrations import (
    DemonstratedSegment,
    DemonstrationError,
    DemonstrationWriter,
)
from unity_bridge.specs import ActionSpec, BehaviorSpec, ObservationSpec

SMALL = BehaviorSpec((ObservationSpec("n", (1,)),), ActionSpec(1))


def column(*numbers: float) -> Any:
    return np.array(numbers, np.float32).reshape(-1, 1)


def two_steps(**ends: bool) -> DemonstratedSegment:
    """Saw 1, did 0.5 for 10; saw 2, did −0.5 for 20; saw 3."""
    return DemonstratedSegment(
        observations=(column(1, 2),),
        continuous_actions=column(0.5, -0.5),
        discrete_actions=np.zeros((2, 0), np.int64),
        rewards=np.float32([10, 20]),
        group_rewards=np.float32([0, 0]),
        final_observations=(column(3),),
        **{"terminated": True, "truncated": False, "starts_episode": True, **ends},
    )


def floats(*numbers: float) -> bytes:
    return struct.pack(f"<{len(numbers)}f", *numbers)


def test_a_file_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "x.demo"
    with DemonstrationWriter(path, "B", SMALL, name="x") as writer:
        writer.write(two_steps())

    def observed(value: float) -> bytes:
        data = b"\x22\x06" + b"\x0a\x04" + floats(value)
        return b"\x6a" + bytes([len(data) + 6]) + b"\x0a\x01\x01" + data + b"\x42\x01n"

    def row(info: bytes, action: float) -> bytes:
        did = b"\x32\x04" + floats(action)
        pair = b"\x0a" + bytes([len(info)]) + info + b"\x12" + bytes([len(did)]) + did
        return bytes([len(pair)]) + pair

    # version 1, name x, 3 rows, 2 episodes (the one that ended, and closing counts too), mean 30/2.
    meta = b"\x08\x01" + b"\x12\x01x" + b"\x18\x03" + b"\x20\x02" + b"\x2d" + floats(15.0)
    brain = b"\x3a\x08B?team=0" + b"\x4a\x02\x08\x01"
    expected = (bytes([len(meta)]) + meta).ljust(33, b"\0")
    expected += bytes([len(brain)]) + brain
    found = path.read_bytes()
    assert found[: len(expected)] == expected
    rest = found[len(expected) :]
    rows = [
        row(observed(1.0), 0.0),
        row(b"\x3d" + floats(10.0) + observed(2.0), 0.5),
        row(b"\x3d" + floats(20.0) + b"\x40\x01" + observed(3.0), -0.5),
    ]
    assert rest == b"".join(rows) + meta
    assert list(path.parent.iterdir()) == [path]


def test_a_failure_leaves_the_older_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "x.demo"
    path.write_bytes(b"older")

    def interrupted() -> None:
        with DemonstrationWriter(path, "B", SMALL) as writer:
            writer.write(two_steps())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_bytes() == b"older"
    assert list(tmp_path.iterdir()) == [path]
    with DemonstrationWriter(path, "B", SMALL) as writer:
        writer.write(two_steps())
    assert path.read_bytes() != b"older"


def test_full_disk_is_reported_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with (
        pytest.raises(DemonstrationError, match=r"cannot write '.*x\.demo': No space left on device"),
        DemonstrationWriter(tmp_path / "x.demo", "B", SMALL) as writer,
    ):
        writer.write(two_steps())
    assert list(tmp_path.iterdir()) == []
