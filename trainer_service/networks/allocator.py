"""Settings of the C library's allocator for updates, which make the same tensors in every minibatch."""

from __future__ import annotations

import ctypes
import os

from unity_bridge.fast_paths import fast_paths_allowed

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Numbers of glibc's parameters, as <malloc.h> has them."""

_MOST_KEPT = 1 << 28
"""Bytes of freed memory that stay with the process."""

_LARGEST_KEPT = 1 << 25
"""Bytes of the largest block that is kept: the most that glibc takes. Larger ones go back to the system when freed."""


def keep_freed_memory() -> bool:
    """Lets the process keep memory that it freed, up to 256 MiB, and returns whether it does.

    glibc gives the system back what lies freed at the heap's end, and asks for it again in the next minibatch, page by
    page: of a gradient step of VDN on spread, with tensors of 400 kB, that is a fifth. All threads share one heap,
    since the ends of others are never given back: gRPC's threads would keep 150 MB of large messages. Other C
    libraries, and settings of the user's own, are left alone.
    """
    if not fast_paths_allowed() or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or Windows, which has no such handle
        return False
    # The second, too, for it would go on adapting itself otherwise.
    kept = bool(mallopt(_TRIM_THRESHOLD, _MOST_KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT))
    return bool(mallopt(_ARENA_MAX, 1)) and kept
