"""Keep freed memory in the process for the next round.

By default glibc returns freed blocks of some megabytes to the system at once. A round that allocates the same vectors
again then pays for new pages: about a tenth of its time.
"""

from __future__ import annotations

import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # parameters of glibc's mallopt
KEPT_BYTES, LARGEST_BYTES = 1 << 30, 32 << 20  # kept at the end of the heap; largest block on the heap (glibc's limit)


def keep_freed_memory() -> None:
    """Configure glibc's allocator for the rest of this process. Other allocators are left unchanged."""
    if sys.platform != "linux":
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, KEPT_BYTES)
        mallopt(MMAP_THRESHOLD, LARGEST_BYTES)
