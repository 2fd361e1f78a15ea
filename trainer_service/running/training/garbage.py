"""Python's garbage collector around a run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collected_at_the_end() -> Iterator[None]:
    """A context at whose end everything is collected that was made in it and left in reference cycles.

    All that is there before is excluded meanwhile, mostly torch's modules: to look through them takes more than a tenth
    of a second, and finds nothing.
    """
    was_frozen = gc.get_freeze_count()
    gc.freeze()
    try:
        yield
    finally:
        gc.collect()
        if not was_frozen:
            gc.unfreeze()
