"""PNG files are found, checked and decoded, or refused before they take memory."""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mutations import png_chunk as chunk
from numpy.typing import NDArray
from PIL import Image

from unity_bridge.codec.png_files import SIGNATURE, parse_files
from unity_bridge.errors import WireError
from unity_bridge.fast_paths import SLOW

GREY, RGB = 0, 2


@pytest.fixture(scope="module", autouse=True, params=["", "1"], ids=["fast", "slow"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Plain files are decoded in two ways, which must not be told apart."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SLOW, request.param)
        yield


def header(width: int = 3, height: int = 2, depth: int = 8, colour: int = RGB, interlaced: int = 0) -> bytes:
    return chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, interlaced))


def rows(*pixels: Sequence[int]) -> bytes:
    """The pixels' chunk: every row begins with its filter, 0 for none."""
    return chunk(b"IDAT", zlib.compress(b"".join(bytes([0, *row]) for row in pixels)))


END = chunk(b"IEND", b"")
PIXELS = rows(range(9), range(10, 19))
PLAIN = SIGNATURE + header() + PIXELS + END
"""2 x 3 pixels in colour: 0 to 8 in the first row, 10 to 18 in the second."""


def decode(data: bytes) -> list[NDArray[np.uint8]]:
    return [file.pixels() for file in parse_files(data, 2, 3, "here")]


def test_a_file_is_decoded_row_by_row_from_the_top() -> None:
    (pixels,) = decode(PLAIN)
    np.testing.assert_array_equal(pixels.reshape(2, 9), [range(9), range(10, 19)])


def test_files_are_told_apart_though_one_holds_the_others_signature() -> None:
    nested = SIGNATURE + header() + chunk(b"tEXt", PLAIN) + PIXELS + END
    assert len(decode(nested + PLAIN)) == 2


@pytest.mark.parametrize("mode", ["RGB", "RGBA", "L", "LA", "P", "1"])
def test_all_modes_of_eight_bits_or_less_are_understood(mode: str) -> None:
    picture = Image.frombytes("RGBA", (3, 2), bytes(range(200, 224))).convert(mode)
    file = io.BytesIO()
    picture.save(file, "PNG")
    (pixels,) = decode(file.getvalue())
    expected = picture.convert({"P": "RGB", "1": "L"}.get(mode, mode))
    np.testing.assert_array_equal(pixels, np.asarray(expected).reshape(2, 3, -1))


BOMBS = [
    pytest.param(header(100_000, 100_000), "got 100000 x 100000", id="huge"),
    pytest.param(header(2**32 - 1, 2), "got 4294967295 x 2", id="wide"),
    pytest.param(header(3, 3), "got 3 x 3", id="a row too many"),
    pytest.param(header(2, 3), "got 2 x 3", id="turned"),
    pytest.param(header(0, 0), "got 0 x 0", id="empty"),
]


@pytest.mark.parametrize(("claim", "got"), BOMBS)
def test_a_header_of_another_size_is_refused_before_decoding(
    claim: bytes, got: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "open", lambda *_, **__: pytest.fail("decoded"))
    with pytest.raises(WireError) as refusal:
        parse_files(PLAIN + SIGNATURE + claim + PIXELS + END, 2, 3, "here")
    assert str(refusal.value) == f"here, PNG file 1: expected 3 x 2 pixels (width x height), {got}"


def test_the_number_of_pixels_limits_the_number_of_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each costs time, and none needs more than twelve bytes."""
    walked: list[int] = []
    checksum = zlib.crc32
    monkeypatch.setattr(zlib, "crc32", lambda data: walked.append(1) or checksum(data))
    file = SIGNATURE + header() + chunk(b"tEXt", b"") * 80_000 + PIXELS + END
    walked.clear()
    with pytest.raises(WireError) as refusal:
        parse_files(file, 2, 3, "here")
    assert str(refusal.value) == "here, PNG file 0: expected at most 64 chunks, got more"
    assert len(walked) == 65


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        pytest.param(b"\xff\xd8\xff\xe0JFIF", ": expected a PNG file, got 8 other bytes", id="a JPEG file"),
        pytest.param(SIGNATURE, ", PNG file 0: expected 20 bytes or more, got 8", id="only a signature"),
        pytest.param(
            SIGNATURE + PIXELS + END,
            ", PNG file 0: expected a header (IHDR) of 13 bytes, got b'IDAT'",
            id="no header",
        ),
        pytest.param(
            SIGNATURE + header(depth=16) + PIXELS + END,
            ", PNG file 0: expected at most 8 bits per channel of a known colour type, "
            "got 16 bits of colour type 2",
            id="two bytes per channel",
        ),
        pytest.param(
            PLAIN.replace(END, chunk(b"IEND", b"")[:-1] + b"\0"),
            ", PNG file 0: the checksum of its chunk b'IEND' is wrong",
            id="a wrong checksum",
        ),
        pytest.param(
            PLAIN + PLAIN[:-1],
            f", PNG file 1: expected {len(PLAIN)} bytes or more, got {len(PLAIN) - 1}",
            id="cut",
        ),
        pytest.param(
            SIGNATURE + header() + b"\xff\xff\xff\xff" + PIXELS[4:] + END,
            f", PNG file 0: expected {33 + 8 + 2**32 - 1 + 4} bytes or more, got {len(PLAIN)}",
            id="a chunk that claims to be huge",
        ),
        pytest.param(
            SIGNATURE + header() + rows(range(9)) + END,
            ", PNG file 0: expected 20 bytes of pixels, got 10",
            id="a row too few",
        ),
    ],
)
def test_files_that_are_none_are_refused_by_name(data: bytes, reason: str) -> None:
    with pytest.raises(WireError) as refusal:
        decode(data)
    assert str(refusal.value) == f"here{reason}"


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="no pixels"),
        pytest.param(chunk(b"IDAT", b""), id="pixels of no bytes"),
        pytest.param(chunk(b"IDAT", b"\xff" * 20), id="pixels that are not compressed"),
        pytest.param(rows(range(9), range(5)), id="half a row"),
        pytest.param(chunk(b"IDAX", zlib.compress(bytes(20))), id="a chunk of another kind"),
    ],
)
def test_pixels_that_cannot_be_decoded_are_refused(body: bytes) -> None:
    with pytest.raises(WireError, match=r"^here, PNG file 0: expected pixels that can be decoded, got: "):
        decode(SIGNATURE + header() + body + END)


def test_black_pixels_with_a_wrong_checksum_are_refused() -> None:
    """Found by random files: the decoder does not look at a checksum that is split, what counts black rows does."""
    stream = zlib.compress(bytes(2 * 10))[:-4] + b"\0\0\0\7"
    parts = chunk(b"IDAT", stream[:-1]) + chunk(b"IDAT", stream[-1:])
    with pytest.raises(
        WireError, match=r"^here, PNG file 0: expected pixels that can be decoded, got: Error -3"
    ):
        decode(SIGNATURE + header() + parts + END)


@settings(deadline=None, max_examples=100)
@given(at=st.integers(0, len(PLAIN) - 1), bit=st.integers(0, 7))
def test_a_flipped_bit_is_noticed(at: int, bit: int) -> None:
    damaged = bytearray(PLAIN)
    damaged[at] ^= 1 << bit
    with pytest.raises(WireError):
        decode(bytes(damaged))


def decoded_or_refusal(data: bytes) -> list[NDArray[np.uint8]] | str:
    try:
        return decode(data)
    except WireError as error:
        return str(error)


@settings(deadline=None, max_examples=120)
@given(
    first=st.builds(header, colour=st.sampled_from([0, 2, 4, 6])),
    bands=st.integers(1, 4),
    pixels=st.binary(max_size=40),
    filters=st.lists(st.integers(0, 5), min_size=2, max_size=2),
    cuts=st.lists(st.integers(0, 60), max_size=2),
    between=st.sampled_from([b"", chunk(b"PLTE", bytes(3)), chunk(b"tEXt", b"k\0v")]),
    surplus=st.binary(max_size=6),
)
def test_both_ways_decode_or_refuse_alike(
    first: bytes,
    bands: int,
    pixels: bytes,
    filters: list[int],
    cuts: list[int],
    between: bytes,
    surplus: bytes,
) -> None:
    rows = [pixels[row * 3 * bands :][: 3 * bands] for row in range(2)]
    raw = b"".join(bytes([kind]) + row for kind, row in zip(filters, rows, strict=True))
    stream = zlib.compress(raw) + surplus
    ends = sorted(min(cut, len(stream)) for cut in cuts)
    parts = [stream[start:end] for start, end in zip([0, *ends], [*ends, len(stream)], strict=True)]
    data = SIGNATURE + first + between.join(chunk(b"IDAT", part) for part in parts) + END
    found = decoded_or_refusal(data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SLOW, "1")
        slow = decoded_or_refusal(data)
    if isinstance(slow, str):
        assert found == slow
    else:
        np.testing.assert_array_equal(found, slow)
