from __future__ import annotations

from unity_bridge.transport.limits import WaitingCalls


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


def test_nothing_is_kept_of_connections_that_are_gone() -> None:
    places = WaitingCalls(shared=8)
    for number in range(100):
        places.enter(f"{number}")
        places.enter(f"{number}")
        places.leave(f"{number}")
        places.leave(f"{number}")
    assert not places._by_peer
