"""PNG files back to back: parsed, checked against the size that they must have, and decoded.

A file is walked chunk by chunk before anything is decoded, because a header is a claim: Pillow would take as much
memory as it says. Chunks that do not change the pixels are left out, so that no compressed text is expanded.
"""

from __future__ import annotations

import io
import itertools
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from unity_bridge.errors import WireError
from unity_bridge.fast_paths import fast_paths_allowed

SIGNATURE = b"\x89PNG\r\n\x1a\n"
"""The first bytes of every PNG file."""

_CHANNELS = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}
"""Numbers per pixel, by colour type: grey, colours, index into a palette, grey with alpha, colours with alpha."""

_DEPTHS = {0: (1, 2, 4, 8), 2: (8,), 3: (1, 2, 4, 8), 4: (8,), 6: (8,)}
"""Bits per number, by colour type, as far as a byte holds them."""

_PALETTE = 3

_PLAIN_MODES = {0: "L", 2: "RGB", 4: "LA", 6: "RGBA"}
"""Pillow's names of pixels that are a byte for each of their numbers, by colour type."""

MOST_FILES = 1 << 14
"""Files that may come back to back."""

_CHUNKS = 64
_BYTES_PER_CHUNK = 1024
"""Most chunks of a file: a fixed number, and one more for each this many bytes of its pixels. Encoders write 8 KiB at
once; a chunk costs as much time as a thousand bytes, so small ones must not be free."""

_KEPT = frozenset({b"PLTE", b"IDAT", b"IEND"})
"""The chunks that make the pixels, besides the first. A second header would overrule the one that was checked."""


class _Header(NamedTuple):
    """The content of the first chunk of a file."""

    width: int
    height: int
    depth: int
    colour_type: int
    compression: int
    filtering: int
    interlaced: int

    @property
    def stream_size(self) -> int:
        """Bytes of all pixels once inflated: per row, a byte that names its filter, then the pixels."""
        bits = self.width * self.depth * _CHANNELS[self.colour_type]
        return self.height * (1 + -(-bits // 8))

    @property
    def plain_mode(self) -> str | None:
        """Pillow's name of the pixels where they are bytes in the order of the picture; None where they are not."""
        unusual = self.interlaced or self.filtering or self.depth != 8
        return None if unusual else _PLAIN_MODES.get(self.colour_type)

    @property
    def most_chunks(self) -> int:
        """Chunks that the file may have."""
        return _CHUNKS + self.stream_size // _BYTES_PER_CHUNK


_HEADER = struct.Struct(">IIBBBBB")


@dataclass(frozen=True, slots=True)
class PngFile:
    """One complete file with a header that fits; its pixels are not decoded yet."""

    data: bytes
    """The bytes of those chunks that make the pixels."""

    streams: tuple[slice, ...]
    """Ranges of the compressed pixels among these bytes."""

    header: _Header

    where: str
    """For error messages."""

    @property
    def bands(self) -> int:
        """1 grey; 2 grey and alpha; 3 red, green and blue; 4 these and alpha."""
        return 3 if self.header.colour_type == _PALETTE else _CHANNELS[self.header.colour_type]

    def pixels(self) -> NDArray[np.uint8]:
        """Decodes the file: [height, width, bands], row 0 at the top.

        Raises:
            WireError: the compressed pixels are damaged or too few.
        """
        pixels = self._plain_pixels() if fast_paths_allowed() else None
        if pixels is None:
            pixels = self._any_pixels()
        return pixels.reshape(*pixels.shape[:2], self.bands)

    def _plain_pixels(self) -> NDArray[np.uint8] | None:
        """Decodes bytes in the order of the picture without another look at the chunks, which takes half as long.

        None where they are none, or something is wrong with them: what it is, the decoder of any file says.
        """
        from PIL import Image  # most behaviors have no pictures

        mode = self.header.plain_mode
        if mode is None or any(a.stop + 12 != b.start for a, b in itertools.pairwise(self.streams)):
            return None
        size = (self.header.width, self.header.height)
        try:
            pixels = np.asarray(Image.frombytes(mode, size, self._stream(), "zip", mode, 0))
            self._require_rows_that_came(pixels[-1])
        except (OSError, ValueError, WireError):
            return None
        return pixels

    def _any_pixels(self) -> NDArray[np.uint8]:
        """Decodes any file."""
        from PIL import Image  # most behaviors have no pictures

        try:
            with Image.open(io.BytesIO(self.data), formats=("PNG",)) as image:
                pixels = np.asarray(image)
                last_row = pixels[-1]
                if image.mode not in ("L", "LA", "RGB", "RGBA"):  # a palette, or grey of one bit
                    pixels = np.asarray(image.convert("RGB" if self.bands == 3 else "L"))
        except (OSError, SyntaxError, ValueError) as error:
            raise WireError(f"{self.where}: expected pixels that can be decoded, got: {error}") from error
        self._require_rows_that_came(last_row)
        return pixels

    def _stream(self) -> bytes:
        """The compressed pixels."""
        return b"".join(self.data[part] for part in self.streams)

    def _require_rows_that_came(self, last_row: NDArray[np.uint8]) -> None:
        """Raises WireError where rows are missing: Pillow leaves those zero that a short stream does not reach."""
        if last_row.any() or self.header.interlaced:  # whose rows do not come in order
            return
        expected = self.header.stream_size
        try:
            got = len(zlib.decompressobj().decompress(self._stream(), expected))
        except zlib.error as error:
            raise WireError(f"{self.where}: expected pixels that can be decoded, got: {error}") from error
        if got != expected:
            raise WireError(f"{self.where}: expected {expected} bytes of pixels, got {got}")


def parse_files(data: bytes, height: int, width: int, where: str, most: int = MOST_FILES) -> list[PngFile]:
    """Returns the files in ``data``, all of the given size and none of them decoded.

    Whatever lies between the end of a file and the next signature is ignored, as ML-Agents does.

    Args:
        data: at least one PNG file, and nothing before it.
        height: of every file, in pixels.
        width: of every file, in pixels.
        where: for error messages.
        most: files that may come.

    Raises:
        WireError: something else than PNG files of this size, too many, or files that are cut or damaged.
    """
    if not data.startswith(SIGNATURE):
        raise WireError(f"{where}: expected a PNG file, got {len(data)} other bytes")
    files: list[PngFile] = []
    start = 0
    while start >= 0:
        if len(files) == most:
            raise WireError(f"{where}: expected at most {most} PNG files, got more")
        file, stop = _read_file(data, start, (height, width), f"{where}, PNG file {len(files)}")
        files.append(file)
        start = data.find(SIGNATURE, stop)
    return files


def _read_file(data: bytes, start: int, size: tuple[int, int], where: str) -> tuple[PngFile, int]:
    """Returns the file that begins at ``start``, and where it stops."""
    chunks = _chunks(data, start, where)
    first = last = next(chunks)
    if first.kind != b"IHDR" or first.stop - first.start != _HEADER.size:
        raise WireError(f"{where}: expected a header (IHDR) of {_HEADER.size} bytes, got {first.kind!r}")
    header = _Header(*_HEADER.unpack_from(data, first.start))
    _require_size(header, size, where)
    kept, streams = [SIGNATURE, _whole(data, first)], []
    end = sum(map(len, kept))
    for number, last in enumerate(chunks, start=2):
        if number > header.most_chunks:
            raise WireError(f"{where}: expected at most {header.most_chunks} chunks, got more")
        if last.kind in _KEPT:
            kept.append(_whole(data, last))
            if last.kind == b"IDAT":
                streams.append(slice(end + 8, end + len(kept[-1]) - 4))
            end += len(kept[-1])
    return PngFile(b"".join(kept), tuple(streams), header, where), last.stop + 4


def _whole(data: bytes, chunk: _Chunk) -> bytes:
    """Returns a chunk with its length, kind and checksum."""
    return data[chunk.start - 8 : chunk.stop + 4]


def _require_size(header: _Header, size: tuple[int, int], where: str) -> None:
    if (header.height, header.width) != size:
        raise WireError(
            f"{where}: expected {size[1]} x {size[0]} pixels (width x height), "
            f"got {header.width} x {header.height}"
        )
    if header.depth not in _DEPTHS.get(header.colour_type, ()):
        raise WireError(
            f"{where}: expected at most 8 bits per channel of a known colour type, "
            f"got {header.depth} bits of colour type {header.colour_type}"
        )


class _Chunk(NamedTuple):
    kind: bytes
    start: int
    """First byte of its content."""
    stop: int


def _chunks(data: bytes, start: int, where: str) -> Iterator[_Chunk]:
    """Yields the chunks of the file that begins at ``start``, to the last, each checked for length and checksum."""
    view = memoryview(data)
    kind, stop = b"", start + len(SIGNATURE) - 4
    while kind != b"IEND":
        begin = stop + 12  # past the last checksum, this length and this kind
        kind = data[begin - 4 : begin]
        stop = begin + int.from_bytes(data[begin - 8 : begin - 4], "big")
        if stop + 4 > len(data):
            raise WireError(f"{where}: expected {stop + 4 - start} bytes or more, got {len(data) - start}")
        if zlib.crc32(view[begin - 4 : stop]) != int.from_bytes(data[stop : stop + 4], "big"):
            raise WireError(f"{where}: the checksum of its chunk {kind!r} is wrong")
        yield _Chunk(kind, begin, stop)
