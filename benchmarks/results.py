"""Results as values: medians, ratios to the baselines, and whether a target is met."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from benchmarks.timing import Tick, interleave
from benchmarks.workloads import SEED
from dragfl.runs import environment

BUSY = 0.5  # a load above which ratios are not to be trusted
Kind = Literal["floor", "bare", "dragfl", "peer"]  # the figure has one colour for each


@dataclass(frozen=True)
class Row:
    """One contender: seconds or megabytes, ratios to the bases, and their targets (upper limits)."""

    name: str
    kind: Kind
    how: str  # threads or processes
    median: float
    low: float  # quartiles
    high: float
    ratios: Mapping[str, float] = field(default_factory=dict)
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def met(self) -> dict[str, bool]:
        """Base -> whether the target is met."""
        return {base: self.ratios[base] <= limit for base, limit in self.limits.items()}


@dataclass(frozen=True)
class Comparison:
    """The contenders of one workload."""

    workload: str
    title: str
    rows: tuple[Row, ...]
    bases: tuple[str, ...]
    repeats: int
    notes: tuple[str, ...] = ()
    unit: str = "ms"  # as shown; times are stored in seconds

    def label(self, row: Row) -> str:
        """The name of a row, with its threads or processes where rows differ in them."""
        return row.name if len({other.how for other in self.rows}) == 1 else f"{row.name}, {row.how}"

    def value(self, row: Row) -> str:
        """The median in the unit of the comparison: one decimal below 100, none above."""
        value = row.median * (1e3 if self.unit == "ms" else 1.0)
        return f"{value:.{1 if value < 100 else 0}f}"


@dataclass(frozen=True)
class Contender:
    """A function to time, with its name and kind."""

    name: str
    kind: Kind
    how: str
    run: Callable[[], object]
    limits: Mapping[str, float] = field(default_factory=dict)

    @property
    def label(self) -> str:
        return f"{self.name} ({self.how})"


def on(threads: int) -> str:
    return f"{threads} thread{'s' if threads > 1 else ''}"


def timed(contenders: Sequence[Contender], repeats: int, tick: Tick) -> dict[str, list[float]]:
    """Time the contenders in turns; the seconds of every turn by label."""
    return interleave({who.label: who.run for who in contenders}, repeats, tick)


def rows(
    contenders: Iterable[Contender], found: Mapping[str, list[float]], bases: Mapping[str, Contender]
) -> tuple[Row, ...]:
    """Rows with medians, quartiles and ratios to the bases."""
    quartiles = {label: np.quantile(seconds, [0.25, 0.5, 0.75]).tolist() for label, seconds in found.items()}
    out = []
    for who in contenders:
        low, median, high = quartiles[who.label]
        ratios = {base: median / quartiles[other.label][1] for base, other in bases.items()}
        out.append(Row(who.name, who.kind, who.how, median, low, high, ratios, who.limits))
    return tuple(out)


def comparison_from_json(table: Mapping[str, Any]) -> Comparison:
    """Rebuild a comparison from its JSON table."""
    made = tuple(Row(**row) for row in table["rows"])
    return Comparison(**{**table, "rows": made, "bases": tuple(table["bases"]), "notes": tuple(table["notes"])})


def describe_environment() -> dict[str, Any]:
    """The machine, the versions, and the load average."""
    return {"machine": environment.describe_environment(SEED), "load": round(os.getloadavg()[0], 2)}
