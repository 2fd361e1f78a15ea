"""Files of tensors and plain values in the format of safetensors.

The tensors lie in the file as they are, under the names of their places (``algorithm.network.0.weight``); every
program that knows safetensors reads them. Everything else is one JSON text in the header's metadata, where a tensor is
referred to by its name. Nothing in such a file can be executed, and reading takes no more memory than a small multiple
of its size.

Source: https://huggingface.co/docs/safetensors (the format).
"""

from __future__ import annotations

import io
import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import safetensors
import safetensors.torch
import torch
from torch import Tensor

from unity_bridge.untrusted_text import first_line, quoted

_VALUES, _CHECKSUM = "values", "crc32"
"""Keys of the metadata."""
_SIZE_BYTES = 8
"""Bytes before the header, which say how long it is."""
_MAX_HEADER_BYTES = 2**26
"""Limit of the bytes of a header, which becomes Python objects; checkpoints have tens of thousands."""
_MARK = "$"
"""The key of values without a JSON form: tensors, tuples, mappings with other keys than texts, numbers such as NaN."""
_TYPES: Mapping[torch.dtype, str] = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class TensorFileError(ValueError):
    """A file that is damaged, or that was not written by ``write_values``."""


def write_values(content: Any, file: BinaryIO) -> None:
    """Writes tensors and plain values, one tensor after the other: no second copy of them in memory.

    The library's own writer would keep other threads from running until all is written.

    content: tensors, texts, numbers, None, and lists, tuples and mappings of these.

    Raises:
        TypeError: something else is in it.
        OSError: the file cannot take it.
    """
    found: dict[str, Tensor] = {}
    values = json.dumps(_encoded(content, "", found, {}))
    # Wide numbers first: each tensor then begins at a multiple of its numbers' size, as readers expect.
    tensors = dict(sorted(found.items(), key=lambda item: -item[1].itemsize))
    header: dict[str, Any] = {
        "__metadata__": {"format": "pt", _VALUES: values, _CHECKSUM: str(_checksum(values, tensors))}
    }
    start = 0
    for name, tensor in tensors.items():
        stop = start + tensor.nbytes
        header[name] = {
            "dtype": _TYPES[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [start, stop],
        }
        start = stop
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _SIZE_BYTES)
    file.write(len(text).to_bytes(_SIZE_BYTES, "little") + text)
    for tensor in tensors.values():
        file.write(_bytes_of(tensor))


def read_values(path: Path) -> Any:
    """Reads what ``write_values`` wrote, onto the CPU. Executes nothing of the file.

    Raises:
        OSError: the file cannot be read.
        TensorFileError: it is damaged, or something else.
    """
    with path.open("rb") as file:
        metadata = _metadata(file)
    try:
        with safetensors.safe_open(path, framework="pt") as content:
            # Copied: a mapped file could not be replaced on Windows while its tensors are in use.
            tensors = {name: content.get_tensor(name).clone() for name in content.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, RuntimeError, ValueError) as error:
        raise TensorFileError(first_line(error)) from None
    return _values(metadata, tensors)


def read_values_from(content: bytes) -> Any:
    """Reads what ``write_values`` wrote, from memory; see ``read_values``. Raises TensorFileError."""
    metadata = _metadata(io.BytesIO(content))
    try:
        tensors = safetensors.torch.load(content)
    except (safetensors.SafetensorError, RuntimeError, ValueError, KeyError) as error:
        raise TensorFileError(first_line(error)) from None
    return _values(metadata, tensors)


def checksum_of(path: Path) -> int:
    """The checksum that a file says of its content, which is not read.

    Raises:
        OSError: the file cannot be read.
        TensorFileError: it is no such file.
    """
    with path.open("rb") as file:
        return _said(_metadata(file))


def _metadata(file: BinaryIO) -> Mapping[str, Any]:
    size = int.from_bytes(file.read(_SIZE_BYTES), "little")
    if size > _MAX_HEADER_BYTES:
        raise TensorFileError(f"its header claims {size} bytes; expected at most {_MAX_HEADER_BYTES}")
    text = file.read(size)
    if len(text) < size or not size:
        raise TensorFileError("it is cut off")
    try:
        header = json.loads(text)
        metadata = header["__metadata__"]
        if not isinstance(metadata[_VALUES], str):
            raise TypeError
    except (ValueError, LookupError, TypeError, RecursionError):
        raise TensorFileError("its header is not one of this trainer's checkpoints") from None
    return metadata  # type: ignore[no-any-return]  # a dictionary, of which one text is known


def _values(metadata: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Any:
    if _said(metadata) != _checksum(metadata[_VALUES], tensors):
        raise TensorFileError("it is not what was written (checksum)")
    try:
        return _decoded(json.loads(metadata[_VALUES]), tensors)
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise TensorFileError(f"its values make no sense ({first_line(error)})") from None


def _said(metadata: Mapping[str, Any]) -> int:
    said = metadata.get(_CHECKSUM)
    if not isinstance(said, str) or not said.isdecimal() or len(said) > len(str(2**32)):
        raise TensorFileError(f"its checksum is {quoted(str(said))}; expected a whole number")
    return int(said)


def _checksum(values: str, tensors: Mapping[str, Tensor]) -> int:
    """CRC-32 of all values, and of the names, types, shapes and numbers of all tensors."""
    crc = zlib.crc32(values.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        crc = zlib.crc32(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode(), crc)
        crc = zlib.crc32(_bytes_of(tensor), crc)
    return crc


def _bytes_of(tensor: Tensor) -> memoryview:
    """The numbers of a tensor on the CPU, not copied where they lie side by side already."""
    return tensor.contiguous().reshape(-1).view(torch.uint8).numpy().data


def _encoded(value: Any, place: str, tensors: dict[str, Tensor], names: dict[tuple[object, ...], str]) -> Any:
    """Converts to JSON values. Tensors are collected by name. names: of those collected already, by their memory."""
    if isinstance(value, Tensor):
        return {_MARK: "tensor", "name": _collected(value.detach(), place, tensors, names)}
    if isinstance(value, float) and not math.isfinite(value):
        return {_MARK: "float", "value": repr(float(value))}
    if value is None or isinstance(value, str | int | float):
        return value

    def encoded(part: Any, key: object) -> Any:
        return _encoded(part, f"{place}.{key}" if place else str(key), tensors, names)

    if isinstance(value, Mapping):
        if all(isinstance(key, str) for key in value) and _MARK not in value:
            return {key: encoded(part, key) for key, part in value.items()}
        return {
            _MARK: "dict",
            "items": [[encoded(key, ""), encoded(part, key)] for key, part in value.items()],
        }
    if isinstance(value, list | tuple):
        parts = [encoded(part, number) for number, part in enumerate(value)]
        return parts if isinstance(value, list) else {_MARK: "tuple", "items": parts}
    raise TypeError(f"{place}: expected a tensor or a plain value, got {type(value).__name__}")


def _collected(
    tensor: Tensor, place: str, tensors: dict[str, Tensor], names: dict[tuple[object, ...], str]
) -> str:
    tensor = tensor.cpu()
    memory = (tensor.data_ptr() or id(tensor), tensor.dtype, tuple(tensor.shape), tensor.stride())
    if memory not in names:
        name = place or "value"
        while name in tensors or name == "__metadata__":
            name += "_"
        names[memory], tensors[name] = name, tensor
    return names[memory]


def _decoded(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    if isinstance(value, list):
        return [_decoded(part, tensors) for part in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$": "tensor", "name": str(name)}:
            return tensors[name]
        case {"$": "float", "value": str(text)}:
            return float(text)
        case {"$": "tuple", "items": list(items)}:
            return tuple(_decoded(items, tensors))
        case {"$": "dict", "items": list(items)}:
            return {_key(key, tensors): _decoded(part, tensors) for key, part in items}
        case {"$": kind}:
            raise ValueError(f"it has a value of kind {quoted(str(kind))}")
    return {key: _decoded(part, tensors) for key, part in value.items()}


def _key(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    key = _decoded(value, tensors)
    if not isinstance(key, str | int | float | None):
        raise TypeError("it has a key that is neither text nor number")
    return key
