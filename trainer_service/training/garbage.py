"""Python's garbage collector during a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

THRESHOLD = 50_000
"""New objects between two collections. Records of arrays hold no cycles: nearly all of them go without a collection."""


@contextmanager
def few_collections() -> Iterator[None]:
    """Excludes the present objects, mostly torch's modules, from garbage collection, and collects less often.

    One collection of all objects takes more than a tenth of a second, and finds nothing.
    """
    threshold, was_frozen = gc.get_threshold(), gc.get_freeze_count()
    gc.freeze()
    gc.set_threshold(THRESHOLD, *threshold[1:])
    try:
        yield
    finally:
        gc.set_threshold(*threshold)
        if not was_frozen:
            gc.unfreeze()
