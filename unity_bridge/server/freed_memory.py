"""Memory that was freed and is still with the process, given back to the system."""

from __future__ import annotations

import ctypes


def give_back() -> bool:
    """Gives freed memory back, and returns whether any was; only glibc can.

    What one large message took lies in small pieces, which the allocator would keep for ever otherwise. It costs a few
    milliseconds, and the next update as many, so it is for when the sender of such a message has left.
    """
    try:
        return bool(ctypes.CDLL(None).malloc_trim(0))
    except (AttributeError, OSError, TypeError):  # another C library, or Windows, which has no such handle
        return False
