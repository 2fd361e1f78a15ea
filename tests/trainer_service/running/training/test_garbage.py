"""Python's garbage collector around a run."""

from __future__ import annotations

import gc
import weakref

from trainer_service.running.training.garbage import collected_at_the_end


class Knot:
    """An object that refers to itself."""

    def __init__(self) -> None:
        self.itself = self


def test_cycles_that_a_run_made_are_gone_at_its_end() -> None:
    gc.disable()
    try:
        with collected_at_the_end():
            gone = weakref.ref(Knot())
            assert gone() is not None
        assert gone() is None
    finally:
        gc.enable()
