"""Numbers as people read them, and the few statistics a summary needs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def bytes_text(count: float) -> str:
    """Bytes in decimal units: 1.23 GB, 512 B."""
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} {_UNITS[power]}" if power == 0 or count >= 99.95 else f"{count:.3g} {_UNITS[power]}"


def span_text(values: Sequence[float]) -> str:
    """`600`, or `400–600` where the values differ."""
    low, high = min(values), max(values)
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation over seeds; no deviation of one value."""

    mean: float
    deviation: float | None

    @staticmethod
    def of(values: Sequence[float]) -> Spread | None:
        """None where there is nothing to average."""
        if not values:
            return None
        return Spread(fmean(values), stdev(values) if len(values) > 1 else None)

    def __str__(self) -> str:
        """In percent: `91.2 %`, `91.2 ± 0.4 %`."""
        spread = "" if self.deviation is None else f" ± {100 * self.deviation:.1f}"
        return f"{100 * self.mean:.1f}{spread} %"


@dataclass(frozen=True)
class Reached:
    """Rounds until the target accuracy, over seeds; a run that ended without it is censored, not left out.

    A run that has not finished and has not reached the target says nothing yet: it is counted in `open` alone.
    """

    rounds: tuple[int, ...]  # of the runs that reached it
    censored: tuple[int, ...] = ()  # rounds run by those that ended without it
    open: tuple[int, ...] = ()  # rounds run so far by those that have neither ended nor reached it

    @property
    def median(self) -> float:
        """The median with censored runs as later than any other; infinite where that reaches into them."""
        if not self.rounds and not self.censored:
            return math.nan
        ordered = sorted([*map(float, self.rounds), *(math.inf for _ in self.censored)])
        return float(median(ordered))

    def __str__(self) -> str:
        """`120`, `120 (110–140)`, `not reached (> 600)`, `130 (110 to > 600; 2 of 3 runs)`."""
        closed = len(self.rounds) + len(self.censored)
        if not self.rounds:
            if self.censored:
                return f"not reached (> {min(self.censored)})" + self._pending()
            return f"not yet (> {min(self.open)})" if self.open else "—"
        if not self.censored:
            span = f" ({span_text(self.rounds)})" if len(set(self.rounds)) > 1 else ""
            return f"{self.median:g}{span}{self._pending()}"
        limit = f"> {min(self.censored)}"
        middle = f"{self.median:g}" if math.isfinite(self.median) else limit
        return f"{middle} ({min(self.rounds)} to {limit}; {len(self.rounds)} of {closed} runs){self._pending()}"

    def _pending(self) -> str:
        return f", {len(self.open)} not yet" if self.open else ""
