"""Freed memory is kept for the next round.

By default glibc gives blocks of some megabytes back to the system as soon as they are freed, and a round that takes
the same vectors again pays for fresh pages: about a tenth of its time.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc's mallopt
KEPT_BYTES, LARGEST_BYTES = 1 << 30, 32 << 20  # at the end of the heap; taken from the heap (glibc allows no more)


def keep_freed_memory() -> None:
    """For the rest of this process; nothing happens where the allocator is another."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES)
