"""Ctrl-C: the first ends the round, checkpoints and says how to resume; the second stops at once."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def polite_interrupt() -> Iterator[Callable[[], bool]]:
    """Gives a function that says whether the user has asked to stop."""
    asked = False

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True
        print("\nending the round and writing a checkpoint; Ctrl-C again stops at once", file=sys.stderr)

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
