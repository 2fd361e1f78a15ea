"""A reader of the files that ``torch.save`` writes: checkpoints of ML-Agents.

Such a file is a zip archive: ``data.pkl`` describes its values, ``data/0`` … hold the bytes of the tensors.
``data.pkl`` is a program for pickle's stack machine, which ``torch.load(weights_only=True)`` interprets. That executes
nothing either, but makes memory for whatever it is told: a ``bytearray`` of any size, a tensor that repeats one number.
So what a file may name is compared with a short list first, and what comes out with the bytes that are there. It can
take no more memory than a small multiple of its own size.
"""

from __future__ import annotations

import io
import itertools
import pickletools
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import torch

from unity_bridge.untrusted_text import first_line, quoted

_SIGNATURE = b"PK\x03\x04"
_BASE_PICKLE_BYTES, _PICKLE_BYTES_PER_TENSOR = 2**16, 2**11
"""Limit of the bytes of ``data.pkl``: a base, and more for each tensor. Checkpoints have about 150 for each."""
_MAX_VALUES = 2**18
"""Limit of the values in a file, shared ones counted wherever they occur; checkpoints have thousands."""
_MAX_DEPTH = 50
_MAX_DIRECTORY_BYTES = 2**22
"""Limit of the bytes of the archive's directory: forty thousand entries."""
_END, _LOCATOR_64, _END_64 = 22, 20, 56
"""Bytes of the records at an archive's end."""

_NAMES = frozenset(
    {
        "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_parameter", "collections OrderedDict",
        *(f"torch {kind}Storage" for kind in ("Double", "Float", "Half", "BFloat16", "Long", "Int", "Short", "Char")),
        "torch ByteStorage", "torch BoolStorage",
    }
)  # fmt: skip
"""The globals that tensors and plain values need."""


class ArchiveError(ValueError):
    """A file that is damaged, or that holds more than tensors and plain values."""


def read_tensors(path: Path) -> Any:
    """Reads the value that ``torch.save`` wrote, onto the CPU. Executes nothing of the file.

    Raises:
        OSError: the file cannot be read.
        ArchiveError: it is damaged, or holds more than tensors and plain values.
    """
    with path.open("rb") as file:
        if not is_archive(file):
            raise ArchiveError("expected a zip archive, as torch writes")
        try:
            _require_plain(file)
            file.seek(0)
            content = torch.load(file, map_location="cpu", weights_only=True)
        except (zipfile.BadZipFile, EOFError, NotImplementedError, struct.error) as error:
            raise ArchiveError(str(error) or "the archive is cut off") from None
        except ArchiveError:
            raise
        except Exception as error:  # torch has no type for what it cannot read
            raise ArchiveError(f"its archive makes no sense ({first_line(error)})") from None
    _require_finite_size(content)
    return content


def is_archive(file: BinaryIO) -> bool:
    """Whether a file begins as archives do."""
    file.seek(0)
    return file.read(len(_SIGNATURE)) == _SIGNATURE


def open_plain(file: BinaryIO) -> zipfile.ZipFile:
    """Opens an archive that must be uncompressed.

    Raises ArchiveError for an archive that claims more than its file holds, BadZipFile for a file that is none.
    """
    size = file.seek(0, io.SEEK_END)
    start, directory = _directory(file, size)
    if directory > _MAX_DIRECTORY_BYTES:
        raise ArchiveError(f"its list of parts takes {directory} bytes")
    archive = zipfile.ZipFile(file)
    # Python looks for the directory just before the end, other readers where the end says that it is.
    if archive.start_dir != start:
        raise ArchiveError("its end makes no sense")
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ArchiveError("expected an archive that is not compressed")
    if (declared := sum(entry.file_size for entry in entries)) > size:
        raise ArchiveError(f"its parts claim {declared} bytes, the file has {size}")
    return archive


def _directory(file: BinaryIO, size: int) -> tuple[int, int]:
    """Offset and bytes of the directory, which ``zipfile`` reads as a whole, an object per entry."""
    file.seek(max(size - _END_64 - _LOCATOR_64 - _END, 0))
    tail = file.read().rjust(_END_64 + _LOCATOR_64 + _END, b"\0")
    end_64, locator_64, end = tail[:_END_64], tail[_END_64:-_END], tail[-_END:]
    if not end.startswith(b"PK\5\6"):
        raise ArchiveError("it is not a zip archive to its end; is it cut off?")
    if locator_64.startswith(b"PK\6\7"):  # then zipfile believes the larger record that it points to
        place = int.from_bytes(locator_64[8:16], "little")
        if place != size - _END_64 - _LOCATOR_64 - _END or not end_64.startswith(b"PK\6\6"):
            raise ArchiveError("its end makes no sense")
        return int.from_bytes(end_64[48:56], "little"), int.from_bytes(end_64[40:48], "little")
    return int.from_bytes(end[16:20], "little"), int.from_bytes(end[12:16], "little")


def _require_plain(file: BinaryIO) -> None:
    """Raises ArchiveError for an archive that is damaged, or whose values are more than tensors and plain ones."""
    with open_plain(file) as archive:
        entries = archive.infolist()
        programs = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
        if len(programs) != 1:
            raise ArchiveError(f"expected one data.pkl, got {len(programs)}")
        (program,) = programs
        folder = program.filename.removesuffix("data.pkl")
        tensors = sum(entry.filename.startswith(f"{folder}data/") for entry in entries)
        if program.file_size > _BASE_PICKLE_BYTES + _PICKLE_BYTES_PER_TENSOR * tensors:
            raise ArchiveError(
                f"{program.file_size} bytes say what its {tensors} tensors are, which is too much"
            )
        order = f"{folder}byteorder"
        if order in archive.NameToInfo and archive.read(order) != b"little":
            raise ArchiveError("expected numbers in little-endian order")
        if (damaged := archive.testzip()) is not None:
            raise ArchiveError(f"its part {quoted(damaged)} is not what was written (checksum)")
        _require_known_names(archive.read(program))


def _require_known_names(program: bytes) -> None:
    """Raises ArchiveError where a program names anything but what tensors need."""
    try:
        for opcode, argument, _ in pickletools.genops(program):
            if (
                opcode.name in ("GLOBAL", "STACK_GLOBAL", "INST", "EXT1", "EXT2", "EXT4")
                and argument not in _NAMES
            ):
                named = str(argument or opcode.name).replace(" ", ".")
                raise ArchiveError(f"it names {quoted(named)}, and code is never loaded")
    except ArchiveError:
        raise
    except Exception as error:
        raise ArchiveError(f"its data.pkl makes no sense ({first_line(error)})") from None


def _require_finite_size(content: Any) -> None:
    """Raises ArchiveError for values that are small in a file but endless to walk or to copy.

    Lists that are shared by each level or hold themselves, and tensors that repeat their numbers.
    """
    level: list[Any] = [content]
    left = _MAX_VALUES
    for _ in range(_MAX_DEPTH):
        if (foreign := next((value for value in level if not _is_plain(value)), None)) is not None:
            raise ArchiveError(f"it holds a {type(foreign).__name__} that is no plain value")
        level = list(itertools.islice((part for value in level for part in _parts(value)), left + 1))
        if not level:
            return
        left -= len(level)
        if left < 0:
            raise ArchiveError(f"it holds more than {_MAX_VALUES} values")
    raise ArchiveError(f"its values are nested more than {_MAX_DEPTH} levels deep")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        if any(not isinstance(key, str | int | float | None) for key in value):
            raise ArchiveError("it has a key that is neither text nor number")
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


def _is_plain(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return (
            type(value) in (torch.Tensor, torch.nn.Parameter)
            and value.layout == torch.strided
            and value.device.type == "cpu"
            and value.nbytes <= value.untyped_storage().nbytes()
        )
    return value is None or isinstance(value, str | int | float | dict | list | tuple)
