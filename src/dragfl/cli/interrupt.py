"""Ctrl-C, SIGTERM and SIGHUP (a closed terminal): the first one ends the round, the second one stops immediately."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
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
        with suppress(OSError):  # the terminal may be closed
            print("\nending the round and writing a checkpoint; Ctrl-C again stops immediately", file=sys.stderr)

    signals = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:  # started by nohup
        signals.remove(signal.SIGHUP)
    before = {number: signal.signal(number, handle) for number in signals}
    try:
        yield lambda: asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
