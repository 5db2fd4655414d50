"""Statistics over seeds, and numbers as text."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

from dragfl.report.statistics import t_interval

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


def format_bytes(count: float) -> str:
    """Bytes in decimal units: 1.23 GB, 512 B."""
    power = 0
    while count >= 999.5 and power < len(_UNITS) - 1:
        count, power = count / 1000, power + 1
    return f"{count:.0f} {_UNITS[power]}" if power == 0 or count >= 99.95 else f"{count:.3g} {_UNITS[power]}"


def format_seconds(seconds: float) -> str:
    """`0.42 s`, `12.3 s`, `4560 s`."""
    return f"{seconds:.0f} s" if seconds >= 99.95 else f"{seconds:.3g} s"


def format_count(value: float) -> str:
    return f"{value:g}"


def format_range(values: Sequence[float], number: Callable[[float], str] = format_count) -> str:
    """`600`, or `400–600` where the values differ."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{low}–{high}"


def format_seeds(seeds: Sequence[int]) -> str:
    """`0, 1, 2`; five or more in a row are a range: `0–39`."""
    parts: list[list[int]] = []
    for seed in seeds:
        parts[-1].append(seed) if parts and seed == parts[-1][-1] + 1 else parts.append([seed])
    return ", ".join(format_range(part) if len(part) > 4 else ", ".join(map(str, part)) for part in parts)


def unbroken(text: str) -> str:
    """The text with spaces that do not end a line between a number, its deviation and its unit."""
    return re.sub(r"(?<=[\d±>–≥]) (?=[\d±%BkMGTPs])", "\u00a0", text)


def format_diverged(rounds: Sequence[int]) -> str:
    """`diverged at round 12`, or `diverged at round 12–40` of several runs."""
    return f"diverged at round {format_range(rounds)}"


@dataclass(frozen=True)
class MeanStd:
    """Mean, sample standard deviation and 95 % t-interval of the mean over n seeds; only the mean of one value."""

    mean: float
    std: float | None
    n: int = 1
    interval: tuple[float, float] | None = None

    def __str__(self) -> str:
        """In percent: `91.2 %`, `91.2 ± 0.4 %`."""
        return f"{self.format_percent()} %"

    def format_percent(self) -> str:
        std = "" if self.std is None else f" ± {100 * self.std:.1f}"
        return f"{100 * self.mean:.1f}{std}"

    def format_interval(self) -> str:
        """In percent: `[90.3, 92.1]`; a dash for one value."""
        if self.interval is None:
            return "—"
        low, high = self.interval
        return f"[{100 * low:.1f}, {100 * high:.1f}]"


def mean_std(values: Sequence[float]) -> MeanStd | None:
    """None without values."""
    if not values:
        return None
    return MeanStd(fmean(values), stdev(values) if len(values) > 1 else None, len(values), t_interval(values))


@dataclass(frozen=True)
class RoundsToTarget:
    """Rounds until the target accuracy, over seeds; a run that ended without reaching it is censored, not left out.

    Also bytes or seconds until the target, with `describe(format_bytes)`.
    """

    reached: tuple[float, ...]  # rounds of the runs that reached the target
    censored: tuple[float, ...] = ()  # rounds of the runs that ended without reaching it
    unfinished: tuple[float, ...] = ()  # rounds so far of the unfinished runs that have not reached it
    diverged: tuple[int, ...] = ()  # rounds in which runs diverged; they count as not reaching it

    @property
    def median(self) -> float:
        """The median with censored and diverged runs counted as infinite; unfinished runs are not counted."""
        without = [math.inf] * (len(self.censored) + len(self.diverged))
        return float(median([*map(float, self.reached), *without])) if self.reached or without else math.nan

    @property
    def counted(self) -> int:
        """The number of runs in the median."""
        return len(self.reached) + len(self.censored) + len(self.diverged)

    def __str__(self) -> str:
        """`120`, `120 (110–140)`, `not reached (> 600)`, `130 (110 to > 600; 2 of 3 runs)`, `diverged at round 12`."""
        return self.describe(format_count)

    def describe(self, number: Callable[[float], str]) -> str:
        """The same text for other quantities than rounds, each formatted by `number`."""
        more = f", {len(self.unfinished)} not yet" if self.unfinished else ""
        if not self.reached and not self.censored:
            if self.diverged:
                return format_diverged(self.diverged) + more
            return f"not yet (> {number(min(self.unfinished))})" if self.unfinished else "—"
        more = (f", {len(self.diverged)} diverged" if self.diverged else "") + more
        if not self.reached:
            return f"not reached (> {number(min(self.censored))}){more}"
        if not self.censored and not self.diverged:
            span = f" ({format_range(self.reached, number)})" if len(set(self.reached)) > 1 else ""
            return f"{number(self.median)}{span}{more}"
        limit = f"> {number(min(self.censored))}" if self.censored else "never"
        middle = number(self.median) if math.isfinite(self.median) else limit
        runs = f"{len(self.reached)} of {self.counted} runs"
        return f"{middle} ({number(min(self.reached))} to {limit}; {runs}){more}"
