from __future__ import annotations

import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from unity_bridge.transport.limits import WaitingCalls, inflated

MIB = 1 << 20


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
@pytest.mark.parametrize("level", [1, 6, 9])
def test_a_message_is_inflated_up_to_its_limit(compress: Callable[..., bytes], level: int) -> None:
    message = bytes(1000)
    assert inflated(compress(message, level), 1000) == message
    assert inflated(compress(message, level), 999) is None


@pytest.mark.parametrize("compress", [gzip.compress, zlib.compress], ids=["gzip", "deflate"])
def test_a_bomb_is_not_unpacked(compress: Callable[..., bytes]) -> None:
    bomb = compress(bytes(32 * MIB))
    tracemalloc.start()
    assert inflated(bomb, 4 * MIB) is None
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10 * MIB


@pytest.mark.parametrize(
    "data", [b"", b"\x0a\x02\x08\x00", b"\x1f\x8b", b"\x1f\x8b\x08 garbage", b"\x78\x9cgarbage"]
)
def test_other_bytes_are_left_as_they_are(data: bytes) -> None:
    assert inflated(data, 4) == data


def test_a_connections_first_call_always_has_a_place() -> None:
    places = WaitingCalls(shared=2)
    assert [places.enter("flood") for _ in range(5)] == [True, True, True, False, False]
    assert places.enter("simulator")


def test_a_place_that_was_given_back_is_free_again() -> None:
    places = WaitingCalls(shared=0)
    for _ in range(3):
        assert places.enter("simulator")
        assert not places.enter("simulator")
        places.leave("simulator")


def test_shared_places_are_shared_by_all_connections() -> None:
    places = WaitingCalls(shared=1)
    assert [places.enter(peer) for peer in ("a", "b", "a", "b")] == [True, True, True, False]
    places.leave("a")
    assert places.enter("b")
