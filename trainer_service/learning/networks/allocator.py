"""Settings of the C library's memory allocator for updates, which allocate the same tensors in every minibatch."""

from __future__ import annotations

import ctypes
import os

from unity_bridge.fast_paths import fast_paths_allowed

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
"""Numbers of glibc's parameters, from <malloc.h>."""

_MOST_KEPT = 1 << 28
"""Bytes of freed memory that the process keeps."""

_LARGEST_KEPT = 1 << 25
"""Largest block that is kept, in bytes: glibc's maximum. Larger blocks return to the system when freed."""


def keep_freed_memory() -> bool:
    """Makes the process keep up to 256 MiB of freed memory. Returns whether that succeeded.

    By default, glibc returns freed memory at the heap's end to the system, and requests it again in the next
    minibatch, page by page. That is a fifth of a gradient step of VDN on spread, with tensors of 400 kB. All threads
    share one heap, since the ends of other heaps are never returned: gRPC's threads would keep 150 MB of large
    messages. Other C libraries and user settings are unchanged.
    """
    if not fast_paths_allowed() or any(name.startswith(("MALLOC_", "GLIBC_TUNABLES")) for name in os.environ):
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # another C library, or Windows, which has no such handle
        return False
    # The second is set too, since glibc would adapt it otherwise.
    kept = bool(mallopt(_TRIM_THRESHOLD, _MOST_KEPT)) and bool(mallopt(_MMAP_THRESHOLD, _LARGEST_KEPT))
    return bool(mallopt(_ARENA_MAX, 1)) and kept
