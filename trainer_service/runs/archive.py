"""A reader of the files that ``torch.save`` writes, for numbers, texts, containers and tensors alone.

Such a file is a zip archive: ``data.pkl`` describes its values, ``data/0`` … hold the bytes of the tensors.
``data.pkl`` is a program for pickle's stack machine. Only the opcodes that build plain values are interpreted here,
each in time proportional to its length, and every size in it is compared with the bytes that are there. So a file can
neither run anything, nor take more memory than a small multiple of its own size, whatever version of torch is
installed.
"""

from __future__ import annotations

import io
import itertools
import math
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import torch
from torch import Tensor

from unity_bridge.untrusted_text import quoted

_SIGNATURE = b"PK\x03\x04"
_BASE_PICKLE_BYTES, _PICKLE_BYTES_PER_TENSOR = 2**16, 2**11
"""Limit of the bytes of ``data.pkl``: a base, and more for each tensor. Checkpoints have about 150 for each."""
_MAX_VALUES = 2**18
"""Limit of the values in a file, shared ones counted wherever they occur; checkpoints have thousands."""
_MAX_DEPTH = 50
_MAX_INTEGER_BYTES = 16
"""Limit of the bytes of a whole number."""
_CHUNK_BYTES = 2**20
_MAX_DIRECTORY_BYTES = 2**22
"""Limit of the bytes of the archive's directory: forty thousand entries."""
_END, _LOCATOR_64, _END_64 = 22, 20, 56
"""Bytes of the records at an archive's end."""

_TYPES: Mapping[str, torch.dtype] = {
    "torch DoubleStorage": torch.float64,
    "torch FloatStorage": torch.float32,
    "torch HalfStorage": torch.float16,
    "torch BFloat16Storage": torch.bfloat16,
    "torch LongStorage": torch.int64,
    "torch IntStorage": torch.int32,
    "torch ShortStorage": torch.int16,
    "torch CharStorage": torch.int8,
    "torch ByteStorage": torch.uint8,
    "torch BoolStorage": torch.bool,
}


class ArchiveError(ValueError):
    """A file that is damaged, or that holds more than tensors and plain values."""


def read_tensors(path: Path) -> Any:
    """Reads the value that ``torch.save`` wrote, onto the CPU. Executes nothing of the file.

    Raises:
        OSError: the file cannot be read.
        ArchiveError: it is damaged, or holds more than tensors and plain values.
    """
    with path.open("rb") as file:
        return _read(file)


def read_tensors_from(content: bytes) -> Any:
    """Reads the value that ``torch.save`` wrote, from memory; see ``read_tensors``. Raises ArchiveError."""
    return _read(io.BytesIO(content))


def archive_digest(path: Path) -> int:
    """A number that tells the archives of two states apart: made of the checksums of its parts, which are not read.

    Raises:
        OSError: the file cannot be read.
        ArchiveError: it is no archive of tensors.
    """
    try:
        with path.open("rb") as file, open_plain(file) as archive:
            parts = [(part.filename, part.CRC, part.file_size) for part in archive.infolist()]
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        raise ArchiveError(str(error) or "the archive is cut off") from None
    return zlib.crc32(repr(parts).encode())


def _read(file: BinaryIO) -> Any:
    if file.read(len(_SIGNATURE)) != _SIGNATURE:
        raise ArchiveError("expected a zip archive, as torch writes")
    try:
        with open_plain(file) as archive:
            return _content(archive)
    except (zipfile.BadZipFile, EOFError, NotImplementedError, RuntimeError, struct.error) as error:
        raise ArchiveError(str(error) or "the archive is cut off") from None
    except (ValueError, OverflowError, IndexError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"its archive makes no sense ({error})") from None


def open_plain(file: BinaryIO) -> zipfile.ZipFile:
    """Opens an archive that must be uncompressed.

    Raises ArchiveError for an archive that claims more than its file holds, BadZipFile for a file that is none.
    """
    size = file.seek(0, io.SEEK_END)
    if (directory := _directory_size(file, size)) > _MAX_DIRECTORY_BYTES:
        raise ArchiveError(f"its list of parts takes {directory} bytes")
    archive = zipfile.ZipFile(file)
    entries = archive.infolist()
    if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
        raise ArchiveError("expected an archive that is not compressed")
    if (declared := sum(entry.file_size for entry in entries)) > size:
        raise ArchiveError(f"its parts claim {declared} bytes, the file has {size}")
    return archive


def _directory_size(file: BinaryIO, size: int) -> int:
    """Returns the bytes of the directory at the end, which ``zipfile`` reads as a whole, an object per entry."""
    file.seek(max(size - _END_64 - _LOCATOR_64 - _END, 0))
    tail = file.read().rjust(_END_64 + _LOCATOR_64 + _END, b"\0")
    end_64, locator_64, end = tail[:_END_64], tail[_END_64:-_END], tail[-_END:]
    if not end.startswith(b"PK\5\6"):
        raise ArchiveError("it is not a zip archive to its end; is it cut off?")
    if locator_64.startswith(b"PK\6\7"):  # then zipfile believes the larger record that it points to
        place = int.from_bytes(locator_64[8:16], "little")
        if place != size - _END_64 - _LOCATOR_64 - _END or not end_64.startswith(b"PK\6\6"):
            raise ArchiveError("its end makes no sense")
        return int.from_bytes(end_64[40:48], "little")
    return int.from_bytes(end[12:16], "little")


def _content(archive: zipfile.ZipFile) -> Any:
    entries = archive.infolist()
    programs = [entry for entry in entries if entry.filename.endswith("/data.pkl")]
    if len(programs) != 1:
        raise ArchiveError(f"expected one data.pkl, got {len(programs)}")
    (program,) = programs
    folder = program.filename.removesuffix("data.pkl")
    tensors = {
        entry.filename.removeprefix(f"{folder}data/"): entry
        for entry in entries
        if entry.filename.startswith(f"{folder}data/")
    }
    if program.file_size > _BASE_PICKLE_BYTES + _PICKLE_BYTES_PER_TENSOR * len(tensors):
        raise ArchiveError(
            f"{program.file_size} bytes say what its {len(tensors)} tensors are, which is too much"
        )
    order = f"{folder}byteorder"
    if order in archive.NameToInfo and archive.read(order) != b"little":
        raise ArchiveError("expected numbers in little-endian order")
    content = _Unpickler(archive.read(program), _Storages(archive, tensors)).run()
    _require_finite_size(content)
    return content


def _require_finite_size(content: Any) -> None:
    """Raises ArchiveError for values that are small in a file but endless to walk: shared by each level, or cyclic."""
    level: list[Any] = [content]
    left = _MAX_VALUES
    for _ in range(_MAX_DEPTH):
        level = list(itertools.islice((part for value in level for part in _parts(value)), left + 1))
        if not level:
            return
        left -= len(level)
        if left < 0:
            raise ArchiveError(f"it holds more than {_MAX_VALUES} values")
    raise ArchiveError(f"its values are nested more than {_MAX_DEPTH} levels deep")


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value


@dataclass(frozen=True, slots=True, eq=False)
class _Storage:
    """The numbers that one or several tensors are views of."""

    values: Tensor


class _Storages:
    """The storages beside ``data.pkl``, each read once, when a tensor first refers to it."""

    def __init__(self, archive: zipfile.ZipFile, entries: Mapping[str, zipfile.ZipInfo]) -> None:
        self._archive = archive
        self._entries = entries
        self._read: dict[str, Tensor] = {}

    def find(self, name: object) -> _Storage:
        """Returns the storage that a persistent id describes: ('storage', type, key, device, numbers)."""
        match name:
            case ("storage", _Name() as kind, str() as key, str(), int() as numbers) if kind.text in _TYPES:
                dtype = _TYPES[kind.text]
            case _:
                raise ArchiveError("it names a tensor in a way that torch does not")
        if key not in self._entries:
            raise ArchiveError(f"tensor {key!r:.20} is missing")
        entry = self._entries[key]
        if numbers * dtype.itemsize != entry.file_size:
            raise ArchiveError(
                f"tensor {key!r:.20} claims {numbers} numbers of {dtype.itemsize} bytes, there are {entry.file_size}"
            )
        if key not in self._read:
            self._read[key] = self._bytes(entry)
        return _Storage(self._read[key].view(dtype))

    def _bytes(self, entry: zipfile.ZipInfo) -> Tensor:
        if not entry.file_size:
            return torch.empty(0, dtype=torch.uint8)
        content = bytearray(entry.file_size)
        try:
            with self._archive.open(entry) as file:
                _fill(content, file)
        except zipfile.BadZipFile:
            raise ArchiveError(
                f"its part '{entry.filename:.100}' is not what was written (checksum)"
            ) from None
        return torch.frombuffer(content, dtype=torch.uint8)


def _fill(content: bytearray, file: Any) -> None:
    start = 0
    while chunk := file.read(_CHUNK_BYTES):
        content[start : start + len(chunk)] = chunk
        start += len(chunk)
    if start != len(content):
        raise ArchiveError("the archive is cut off")


@dataclass(frozen=True, slots=True, eq=False)
class _Name:
    """A global of a Python module that the file names. It is never looked up."""

    text: str


def _tensor(storage: object, offset: object, size: object, stride: object, *_: object) -> Tensor:
    """Does what ``torch._utils._rebuild_tensor_v2`` does, after comparing its arguments with each other."""
    if not (isinstance(storage, _Storage) and _whole(offset) and _all_whole(size) and _all_whole(stride)):
        raise ArchiveError("it describes a tensor in a way that torch does not")
    return _strided(storage.values, offset, size, stride)  # type: ignore[arg-type]  # just checked


def _strided(values: Tensor, offset: int, size: Sequence[int], stride: Sequence[int]) -> Tensor:
    numbers = math.prod(size)
    last = (
        offset + sum((most - 1) * step for most, step in zip(size, stride, strict=True))
        if numbers
        else offset
    )
    if numbers > len(values) or (numbers and last >= len(values)):
        raise ArchiveError(f"a tensor of shape {tuple(size)!s:.60} does not fit its {len(values)} numbers")
    return values.as_strided(tuple(size), tuple(stride), offset if numbers else 0)


def _whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 2**48


def _all_whole(value: object) -> bool:
    return isinstance(value, tuple) and len(value) <= 16 and all(map(_whole, value))


def _parameter(tensor: object, *_: object) -> Tensor:
    if not isinstance(tensor, Tensor):
        raise ArchiveError("it describes a parameter in a way that torch does not")
    return tensor


def _ordered(*arguments: object) -> dict[Any, Any]:
    if arguments:
        raise ArchiveError("it fills an OrderedDict in a way that torch does not")
    return {}


_CONSTRUCTORS: Mapping[str, Callable[..., Any]] = {
    "torch._utils _rebuild_tensor_v2": _tensor,
    "torch._utils _rebuild_parameter": _parameter,
    "collections OrderedDict": _ordered,
}
"""The globals that ``data.pkl`` may call, and the functions that are called instead."""


class _Unpickler:
    """An interpreter of ``data.pkl``: a stack, a memo, and one method for each kind of opcode."""

    def __init__(self, program: bytes, storages: _Storages) -> None:
        self._program = program
        self._at = 0
        self._storages = storages
        self._stack: list[Any] = []
        self._marks: list[int] = []
        """Positions on the stack where the arguments of variadic opcodes begin."""
        self._memo: dict[int, Any] = {}

    def run(self) -> Any:
        """Runs the program and returns the value that is left on the stack."""
        while (opcode := self._take(1)) != b".":
            step = _OPCODES.get(opcode)
            if step is None:
                raise ArchiveError(f"its data.pkl has an opcode 0x{opcode.hex()}, which tensors do not need")
            step(self)
        (result,) = self._stack
        return result

    def _take(self, size: int) -> bytes:
        found = self._program[self._at : self._at + size]
        if len(found) != size:
            raise ArchiveError("its data.pkl is cut off")
        self._at += size
        return found

    def _number(self, layout: str) -> Any:
        (number,) = struct.unpack(layout, self._take(struct.calcsize(layout)))
        return number

    def _line(self) -> str:
        end = self._program.index(b"\n", self._at)
        line = self._program[self._at : end].decode()
        self._at = end + 1
        return line

    def _since_mark(self) -> list[Any]:
        start = self._marks.pop()
        found = self._stack[start:]
        del self._stack[start:]
        return found

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def mark(self) -> None:
        self._marks.append(len(self._stack))

    def version(self) -> None:
        self._take(1)

    def named(self) -> None:
        text = f"{self._line()} {self._line()}"
        if text not in _TYPES and text not in _CONSTRUCTORS:
            raise ArchiveError(f"it names {quoted(text.replace(' ', '.'))}, and code is never loaded")
        self.push(_Name(text))

    def call(self) -> None:
        arguments, name = self._stack.pop(), self._stack.pop()
        if not (isinstance(name, _Name) and name.text in _CONSTRUCTORS and type(arguments) is tuple):
            raise ArchiveError("it calls something, and code is never loaded")
        self.push(_CONSTRUCTORS[name.text](*arguments))

    def state(self) -> None:
        """Drops the layers' versions, which torch keeps beside a dictionary of weights and nothing here reads."""
        self._stack.pop()
        if type(self._stack[-1]) is not dict:
            raise ArchiveError("it sets the state of something, and code is never loaded")

    def stored(self) -> None:
        self.push(self._storages.find(self._stack.pop()))

    def text(self) -> None:
        self.push(self._take(self._number("<I")).decode("utf-8", "surrogatepass"))

    def whole(self) -> None:
        if (size := self._number("B")) > _MAX_INTEGER_BYTES:
            raise ArchiveError(f"it has a whole number of {size} bytes")
        self.push(int.from_bytes(self._take(size), "little", signed=True))

    def tuple_of(self, size: int) -> None:
        if len(self._stack) < size:
            raise ArchiveError("its data.pkl takes what is not there")
        found = tuple(self._stack[-size:])
        del self._stack[-size:]
        self.push(found)

    def append(self, values: Sequence[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise ArchiveError("it appends to what is no list")
        target.extend(values)

    def assign(self, pairs: Sequence[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not dict or len(pairs) % 2:
            raise ArchiveError("it fills what is no dictionary")
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            if not isinstance(key, str | int | float | None):
                raise ArchiveError("it has a key that is neither text nor number")
            target[key] = value

    def pair(self) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self.assign((key, value))

    def last(self) -> list[Any]:
        return [self._stack.pop()]

    def remember(self, layout: str) -> None:
        self._memo[self._number(layout)] = self._stack[-1]

    def recall(self, layout: str) -> None:
        self.push(self._memo[self._number(layout)])


_OPCODES: Mapping[bytes, Callable[[_Unpickler], None]] = {
    b"\x80": _Unpickler.version,
    b"c": _Unpickler.named,
    b"R": _Unpickler.call,
    b"b": _Unpickler.state,
    b"Q": _Unpickler.stored,
    b"(": _Unpickler.mark,
    b"N": lambda machine: machine.push(None),
    b"\x88": lambda machine: machine.push(True),
    b"\x89": lambda machine: machine.push(False),
    b"J": lambda machine: machine.push(machine._number("<i")),
    b"K": lambda machine: machine.push(machine._number("<B")),
    b"M": lambda machine: machine.push(machine._number("<H")),
    b"G": lambda machine: machine.push(machine._number(">d")),
    b"\x8a": _Unpickler.whole,
    b"X": _Unpickler.text,
    b")": lambda machine: machine.push(()),
    b"]": lambda machine: machine.push([]),
    b"}": lambda machine: machine.push({}),
    b"\x85": lambda machine: machine.tuple_of(1),
    b"\x86": lambda machine: machine.tuple_of(2),
    b"\x87": lambda machine: machine.tuple_of(3),
    b"t": lambda machine: machine.push(tuple(machine._since_mark())),
    b"a": lambda machine: machine.append(machine.last()),
    b"e": lambda machine: machine.append(machine._since_mark()),
    b"s": _Unpickler.pair,
    b"u": lambda machine: machine.assign(machine._since_mark()),
    b"q": lambda machine: machine.remember("<B"),
    b"r": lambda machine: machine.remember("<I"),
    b"h": lambda machine: machine.recall("<B"),
    b"j": lambda machine: machine.recall("<I"),
}
"""Pickle's opcodes in protocol 2, which ``torch.save`` uses."""
