"""Files of tensors and plain values. Checkpoints as a whole are tested in test_checkpoint."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch
from plain_values import PLAIN_VALUES, same

from trainer_service.running.runs.tensor_file import (
    TensorFileError,
    read_values,
    read_values_from,
    write_values,
)

KEPT: dict[str, Any] = {
    **PLAIN_VALUES,
    "numbers": [0, -1, 2**63 - 1, 2**127, 2.5, 0.1, -0.0, float("inf"), float("-inf"), True, False, None],
    "mixed keys": {None: 1, 2.5: 2, True: 3, "d": 4},
    "marked": {"$": "tensor", "name": "numbers"},
    "a.b": {"c": torch.ones(1)},
    "a": {"b.c": torch.zeros(1)},
    "__metadata__": torch.ones(1),
}


def written(content: Any) -> bytes:
    file = io.BytesIO()
    write_values(content, file)
    return file.getvalue()


def test_what_was_written_is_read_to_the_bit(tmp_path: Path) -> None:
    (tmp_path / "kept").write_bytes(written(KEPT))
    assert same(read_values(tmp_path / "kept"), KEPT)
    assert same(read_values_from(written(KEPT)), KEPT)
    nan = read_values_from(written({"a": float("nan"), "b": torch.tensor(float("nan"))}))
    assert nan["a"] != nan["a"]
    assert nan["b"] != nan["b"]


def test_other_programs_read_the_tensors_by_their_places() -> None:
    content = {"step": 3, "algorithm": {"network": {"0.weight": torch.eye(2)}, "rates": [torch.ones(3)]}}
    theirs = safetensors.torch.load(written(content))
    assert sorted(theirs) == ["algorithm.network.0.weight", "algorithm.rates.0"]
    assert torch.equal(theirs["algorithm.network.0.weight"], torch.eye(2))


def test_one_tensor_in_two_places_is_written_once() -> None:
    weights = torch.arange(1000.0)
    once, twice = written({"a": weights}), written({"a": weights, "b": [weights, weights.view(-1)]})
    assert len(twice) < len(once) + 200
    read = read_values_from(twice)
    read["a"][0] = 7
    assert read["b"][1][0] == 7


@pytest.mark.parametrize("value", [object(), {"a": {1, 2}}, [b"bytes"]])
def test_what_is_no_plain_value_is_not_written(value: Any) -> None:
    with pytest.raises(TypeError, match="expected a tensor or a plain value, got"):
        written({"state": value})


def with_header(file: bytes, change: Callable[[dict[str, Any]], None]) -> bytes:
    size = int.from_bytes(file[:8], "little")
    header = json.loads(file[8 : 8 + size])
    change(header)
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + file[8 + size :]


def changed_step(file: bytes) -> bytes:
    def change(header: dict[str, Any]) -> None:
        header["__metadata__"]["values"] = header["__metadata__"]["values"].replace("100", "200")

    return with_header(file, change)


def renamed_tensor(file: bytes) -> bytes:
    def change(header: dict[str, Any]) -> None:
        header["other"] = header.pop("weights")

    return with_header(file, change)


def claims_more(file: bytes) -> bytes:
    return with_header(file, lambda header: header["weights"].update(shape=[2**40], data_offsets=[0, 2**42]))


def deep(file: bytes) -> bytes:
    return with_header(file, lambda header: header.update(a="[")).replace(b'"["', b"[" * 10**5)


def no_checksum(file: bytes) -> bytes:
    return with_header(file, lambda header: header["__metadata__"].update(crc32="x\x1b"))


FOREIGN = "its header is not one of this trainer's checkpoints"
CHANGED = r"it is not what was written \(checksum\)"
DAMAGES: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "no header": (lambda _: b"", "it is cut off"),
    "half a header": (lambda file: file[:50], "it is cut off"),
    "too short": (lambda file: file[:-1], "deserializing"),
    "too long": (lambda file: file + b"\0", "deserializing"),
    "an endless header": (
        lambda file: (2**40).to_bytes(8, "little") + file[8:],
        "claims 1099511627776 bytes",
    ),
    "another program's": (lambda _: safetensors.torch.save({"a": torch.ones(3)}, {"format": "pt"}), FOREIGN),
    "a changed weight": (lambda file: file[:-1] + bytes([file[-1] ^ 1]), CHANGED),
    "a changed step": (changed_step, CHANGED),
    "a renamed tensor": (renamed_tensor, CHANGED),
    "a claim of more": (claims_more, "deserializing"),
    "a deep header": (deep, FOREIGN),
    "no checksum": (no_checksum, r"its checksum is 'x\\x1b'; expected a whole number"),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_refused(tmp_path: Path, name: str) -> None:
    damage, expected = DAMAGES[name]
    path = tmp_path / "damaged"
    path.write_bytes(damage(written({"step": 100, "weights": torch.ones(4)})))
    with pytest.raises(TensorFileError, match=expected):
        read_values(path)
    with pytest.raises(TensorFileError, match=expected):
        read_values_from(path.read_bytes())
