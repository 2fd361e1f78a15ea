"""Python's garbage collector during a run: quiet, and afterwards as it was."""

from __future__ import annotations

import gc
import weakref

from trainer_service.training.garbage import THRESHOLD, few_collections


class Knot:
    """An object that holds itself."""

    def __init__(self) -> None:
        self.itself = self


def test_the_collector_is_afterwards_as_it_was() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with few_collections():
        assert gc.get_threshold() == (THRESHOLD, *before[1:])
        assert gc.get_freeze_count() > 1000
    assert gc.get_threshold() == before
    assert (gc.get_freeze_count() > 0) == (frozen > 0)


def test_garbage_of_a_run_is_collected_still() -> None:
    with few_collections():
        gone = weakref.ref(Knot())
        for _ in range(THRESHOLD // 100):
            kept = [Knot() for _ in range(200)]
        del kept
        assert gone() is None
