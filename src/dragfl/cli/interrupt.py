"""Ctrl-C and SIGTERM: the first one ends the round and writes a checkpoint, the second one stops immediately."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def catch_interrupts() -> Iterator[Callable[[], bool]]:
    """Yields `should_stop`, which returns whether the user has asked to stop."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print("\nending the round and writing a checkpoint; Ctrl-C again stops immediately", file=sys.stderr)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
