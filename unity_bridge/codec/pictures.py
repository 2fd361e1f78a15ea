"""Pictures as PNG files: each carries three channels, so a picture of C channels takes a third as many files.

A mapping says to which channel of the picture each decoded channel goes: −1 drops it, and several that go to one
are averaged, which is how grey pictures travel in colour files.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from unity_bridge.codec.png_files import PngFile, parse_files
from unity_bridge.errors import WireError
from unity_bridge.specs import LONGEST_SHOWN
from unity_bridge.steps import Observation

COLOURS = 3
"""Channels of a file as Unity writes it."""

MOST_PER_CHANNEL = 4
MOST_BESIDE = 32
"""How many channels may be decoded, and how many files may come, for a picture: so many for each of its channels, and
so many more. Unity sends a grey picture as a file of three. What a message says must not cost more than it makes."""

LARGEST_DECODED = 1 << 26
"""Most numbers that the files of one picture may decode to, those included which its mapping drops or averages."""

CACHED_BYTES = 1 << 25
"""Most memory that is spent on remembering files that were encoded."""

Sources = tuple[tuple[int, ...], ...]
"""The decoded channels of which each channel of a picture is the mean."""


@dataclass(frozen=True, slots=True)
class Picture:
    """PNG files that make one picture of the right size; nothing of them is decoded yet."""

    shape: tuple[int, int, int]

    files: tuple[PngFile | None, ...]
    """PNG files in order; None stands for a file of zeros that was not sent."""

    in_colour: bool
    """Whether every file counts as three channels: grey ones are repeated, and alpha is dropped."""

    sources: Sources

    sent: tuple[PngFile, ...]
    """Files that are decoded for it, at most."""

    decoded_size: int
    """Numbers that these decode to, those included which are dropped or averaged."""

    must_be_black: str = ""
    """The error if the first file that was sent is not black; empty where it need not be."""

    def pixels(self) -> Observation:
        """Decodes the picture: [C, H, W], bytes, or floats of 0 to 1 if a mean is not a byte. Not to be written to.

        Raises:
            WireError: the compressed pixels of a file are damaged or too few, or a file had to be black.
        """
        if self.must_be_black and self.sent[0].pixels().any():
            raise WireError(self.must_be_black)
        decoded = [self._decode(file) for file in self.files]
        channels = decoded[0] if len(decoded) == 1 else np.concatenate(decoded)
        if self.sources == _in_order(len(channels)):
            return channels
        if all(_channels_are_equal(channels, source) for source in self.sources):
            return channels[[source[0] for source in self.sources]]
        return np.stack([_mean(channels, source) for source in self.sources])

    def _decode(self, file: PngFile | None) -> NDArray[np.uint8]:
        """[bands, H, W]"""
        if file is None:
            return np.zeros((COLOURS, *self.shape[1:]), np.uint8)
        pixels = file.pixels().transpose(2, 0, 1)
        if not self.in_colour or len(pixels) == COLOURS:
            return pixels
        return pixels[:COLOURS] if len(pixels) > COLOURS else pixels[[0] * COLOURS]


def decode_png(data: bytes, shape: tuple[int, ...], mapping: Sequence[int], where: str) -> Observation:
    """Returns the picture that PNG files back to back make.

    Args:
        data: the files.
        shape: that it must have: (C, H, W).
        mapping: the picture's channel for each decoded channel; empty where channels are taken as they come, or,
            for C = 1, as the mean of the first file's colours.
        where: for error messages.

    Returns:
        [C, H, W], bytes, or floats of 0 to 1 if a mean of several channels is not a byte.

    Raises:
        WireError: the files do not make such a picture.
    """
    pixels = parse_picture(data, shape, mapping, where).pixels()
    return pixels.copy(order="C")


def parse_picture(data: bytes, shape: tuple[int, ...], mapping: Sequence[int], where: str) -> Picture:
    """Returns a picture before it is decoded, checked as far as that takes no memory for its pixels.

    Files that hold as many channels as are wanted are taken as they are. Otherwise each counts as three: grey or
    transparent files with Unity's usual mappings stand for the colours that one sees.
    """
    channels, height, width = shape
    most = MOST_BESIDE + MOST_PER_CHANNEL * channels
    if len(mapping) > most:
        raise WireError(
            f"{where}: expected a mapping of at most {most} decoded channels to {channels}, got {len(mapping)}"
        )
    files = parse_files(data, height, width, where, most)
    bands = sum(file.bands for file in files)
    size = max(bands, COLOURS * len(files)) * height * width
    if size > LARGEST_DECODED:
        raise WireError(
            f"{where}: expected PNG files of {LARGEST_DECODED} numbers at most, "
            f"got {len(files)} of {width} x {height} pixels"
        )
    sent = tuple(files)
    if mapping:
        return _mapped(sent, bands, size, (channels, height, width), tuple(mapping), where)
    if len(files) == channels == 1:
        return Picture((1, height, width), sent, True, (tuple(range(COLOURS)),), sent, size)
    if bands != channels and len(files) != -(-channels // COLOURS):
        raise WireError(
            f"{where}: expected PNG files of {channels} channels, got {bands} channels in {len(files)} files"
        )
    return Picture((channels, height, width), sent, bands != channels, _in_order(channels), sent, size)


def _mapped(
    sent: tuple[PngFile, ...],
    bands: int,
    size: int,
    shape: tuple[int, int, int],
    mapping: tuple[int, ...],
    where: str,
) -> Picture:
    in_colour = bands != len(mapping)
    complete = _with_empty_slots(sent, mapping) if in_colour else sent
    mismatch = f"{where}: expected {len(mapping)} channels for the mapping, got {bands} channels in {len(sent)} files"
    if in_colour and COLOURS * len(complete) != len(mapping):
        raise WireError(mismatch)
    sources = _sources(mapping, shape[0])
    if sources is None:
        raise WireError(f"{where}: expected a mapping to channels 0 to {shape[0] - 1}, got {_shown(mapping)}")
    must_be_black = mismatch if len(complete) > len(sent) else ""
    return Picture(shape, complete, in_colour, sources, sent, size, must_be_black)


def _shown(mapping: tuple[int, ...]) -> str:
    """Returns the mapping, cut where it is long."""
    shown = list(mapping[:LONGEST_SHOWN])
    return str(shown) if len(mapping) <= LONGEST_SHOWN else f"{shown}… ({len(mapping)} channels)"


@lru_cache(maxsize=32)
def _in_order(channels: int) -> Sources:
    return tuple((channel,) for channel in range(channels))


@lru_cache(maxsize=32)
def _sources(mapping: tuple[int, ...], channels: int) -> Sources | None:
    """Returns the sources of each channel; None if one has none, or a target is no channel."""
    sources: list[list[int]] = [[] for _ in range(channels)]
    for source, target in enumerate(mapping):
        if not -1 <= target < channels:
            return None
        if target >= 0:
            sources[target].append(source)
    return tuple(map(tuple, sources)) if all(sources) else None


def _with_empty_slots(files: Sequence[PngFile], mapping: tuple[int, ...]) -> tuple[PngFile | None, ...]:
    """Returns the files, with an empty slot for each black file that Unity's stacked sensor does not send.

    A stacked sensor holds several pictures, the oldest first. For a picture that it does not have yet, it sends one
    black file, even if its mapping gives each picture several files. Black files are equal bytes; decoding the picture
    checks that they are black.
    """
    expected = len(mapping) // COLOURS
    for slots in range(expected // 2, 1, -1):
        per_slot, rest = divmod(expected, slots)
        if rest or not _repeats(mapping, slots):
            continue
        empty, rest = divmod(expected - len(files), per_slot - 1)
        if not rest and 0 < empty < slots and _files_are_equal(files[:empty]):
            return (None,) * (empty * per_slot) + tuple(files[empty:])
    return tuple(files)


def _files_are_equal(files: Sequence[PngFile]) -> bool:
    return all(file.data == files[0].data for file in files)


def _repeats(mapping: tuple[int, ...], slots: int) -> bool:
    """Whether the mapping is that of one picture, again and again, each time to the next channels."""
    length, rest = divmod(len(mapping), slots)
    first = mapping[:length]
    channels = max(first) + 1
    again = tuple(
        target if target < 0 else target + slot * channels for slot in range(slots) for target in first
    )
    return not rest and mapping == again


def _channels_are_equal(channels: NDArray[np.uint8], source: tuple[int, ...]) -> bool:
    return len(source) == 1 or bool((channels[list(source[1:])] == channels[source[0]]).all())


def _mean(channels: NDArray[np.uint8], source: tuple[int, ...]) -> NDArray[np.float32]:
    """[H, W]: the mean as a part of white, rounded once."""
    total = channels[list(source)].sum(axis=0, dtype=np.uint32)
    mean: NDArray[np.float32] = total.astype(np.float32) / np.float32(255 * len(source))
    return mean


def encode_png(picture: NDArray[np.uint8]) -> bytes:
    """Encodes a picture, [C, H, W], as Unity does: a file of three channels for every three of its own.

    A single channel is written three times, and what the last file lacks is zero; ``channel_mapping`` says so.
    Files that were encoded lately are remembered, so a repeated picture costs nothing.
    """
    if len(picture) == 1:
        return _FILES.encode(np.repeat(picture, COLOURS, axis=0))
    missing = -len(picture) % COLOURS
    padded = (
        np.concatenate([picture, np.zeros((missing, *picture.shape[1:]), np.uint8)]) if missing else picture
    )
    return b"".join(
        _FILES.encode(padded[start : start + COLOURS]) for start in range(0, len(padded), COLOURS)
    )


def channel_mapping(channels: int) -> tuple[int, ...]:
    """Returns the mapping of encode_png's files; empty where none is needed."""
    if channels == 1:
        return (0,) * COLOURS
    missing = -channels % COLOURS
    return (*range(channels), *(-1,) * missing) if missing else ()


class _FileCache:
    """A cache of encoded files, which forgets the least recently used when they take too much memory."""

    def __init__(self) -> None:
        self._files: dict[tuple[bytes, tuple[int, ...]], bytes] = {}
        self._size = 0

    def encode(self, colours: NDArray[np.uint8]) -> bytes:
        """[3, H, W] as one file."""
        # A digest, because the pixels would take far more memory than the file, and so be forgotten sooner.
        key = hashlib.blake2b(colours.tobytes(), digest_size=16).digest(), colours.shape
        data = self._files.pop(key, b"")
        if not data:
            data = _encode_file(colours)
            self._size += len(data)
        self._files[key] = data  # at the end, being the latest
        while self._size > CACHED_BYTES:
            self._size -= len(self._files.pop(next(iter(self._files))))
        return data


_FILES = _FileCache()


def _encode_file(colours: NDArray[np.uint8]) -> bytes:
    from PIL import Image  # most behaviors have no pictures

    file = io.BytesIO()
    pixels = np.ascontiguousarray(colours.transpose(1, 2, 0))
    # The fastest level: a picture lives for one message.
    Image.fromarray(pixels).save(file, "PNG", compress_level=1)
    return file.getvalue()
