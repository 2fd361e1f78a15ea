"""PNG files that are not what they say."""

from __future__ import annotations

import random
import struct
import tracemalloc
import zlib

import numpy as np
import pytest
from fuzzing import DICE, MIB, examples
from hypothesis import given
from mutations import mutated_png, require_fit_to_print
from mutations import png_chunk as chunk

from unity_bridge.codec.pictures import channel_mapping, decode_png, encode_png
from unity_bridge.errors import WireError

SHAPE = (3, 6, 5)


def decode(data: bytes, shape: tuple[int, int, int], mapping: list[int]) -> None:
    """Decodes a picture, or sees it refused in a few printable words."""
    try:
        pixels = decode_png(data, shape, mapping, "sensor 0 'camera'")
    except WireError as error:
        require_fit_to_print(str(error))
    else:
        assert pixels.shape == shape


@examples(800)
@given(DICE)
def test_files_that_were_changed(dice: random.Random) -> None:
    channels = dice.choice([1, 3, 4, 6])
    picture = np.frombuffer(dice.randbytes(channels * 30), np.uint8).reshape(channels, 6, 5)
    mapping = list(channel_mapping(channels))
    if dice.random() < 0.3:
        mapping = [dice.randint(-2, channels) for _ in range(dice.choice([1, 3, 4, 6, 60]))]
    decode(mutated_png(dice, encode_png(picture)), (channels, 6, 5), mapping)


def png(width: int, height: int, *chunks: bytes, colours: int = 2) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, 8, colours, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + b"".join(chunks) + chunk(b"IEND", b"")


PIXELS = chunk(b"IDAT", zlib.compress(bytes(6 * 16)))
SMALL = png(5, 6, PIXELS)
BOMBS = {
    "wide": (png(6000, 6000, PIXELS), []),
    "endless": (png(2**31 - 1, 2**31 - 1, PIXELS), []),
    "pixels inside": (png(5, 6, chunk(b"IDAT", zlib.compress(bytes(40 * MIB), 9))), []),
    "text inside": (png(5, 6, chunk(b"zTXt", b"a\0\0" + zlib.compress(bytes(40 * MIB), 9)), PIXELS), []),
    "profile inside": (png(5, 6, chunk(b"iCCP", b"a\0\0" + zlib.compress(bytes(40 * MIB), 9)), PIXELS), []),
    "chunks": (png(5, 6, *[chunk(b"IDAT", b"")] * 20_000, PIXELS), []),
    "files": (SMALL * 3000, []),
    "files and a mapping": (SMALL * 3000, [0, 1, 2] * 3000),
    "mapping": (SMALL, [0, 1, 2] * 110_880),
    "mapping of zeros": (SMALL, [0] * 332_640),
    "mapping of nothing": (SMALL, [-1] * 332_640),
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_takes_no_memory(name: str) -> None:
    data, mapping = BOMBS[name]
    tracemalloc.start()
    try:
        decode(data, SHAPE, mapping)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10 * MIB + 4 * len(data) + 64 * len(mapping)
