"""Python's garbage collector around a run: it finds what a run leaves, and is afterwards as it was."""

from __future__ import annotations

import gc
import weakref

from trainer_service.running.training.garbage import collected_at_the_end


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_the_collector_is_afterwards_as_it_was() -> None:
    before, frozen = gc.get_threshold(), gc.get_freeze_count()
    with collected_at_the_end():
        assert gc.get_threshold() == before
        assert gc.get_freeze_count() > 1000
    assert (gc.get_freeze_count() > 0) == (frozen > 0)


def test_cycles_that_were_made_in_it_are_gone_at_its_end() -> None:
    gc.disable()
    try:
        with collected_at_the_end():
            gone = weakref.ref(Knot())
            assert gone() is not None
        assert gone() is None
    finally:
        gc.enable()
