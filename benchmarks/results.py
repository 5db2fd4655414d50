"""Results as values: medians, ratios to the baselines, and whether a target is met."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.timing import Tick, Times, interleave
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
    def met(self) -> bool | None:
        """Whether every target is met; None without a target."""
        return all(self.ratios[base] <= limit for base, limit in self.limits.items()) if self.limits else None


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


def timed(contenders: Sequence[Contender], repeats: int, tick: Tick) -> dict[str, Times]:
    """Time the contenders in turns; the times by label."""
    return interleave({who.label: who.run for who in contenders}, repeats, tick)


def rows(
    contenders: Iterable[Contender], found: Mapping[str, Times], bases: Mapping[str, Contender]
) -> tuple[Row, ...]:
    """Rows with medians and ratios to the bases."""
    out = []
    for who in contenders:
        times = found[who.label]
        ratios = {base: times.median / found[other.label].median for base, other in bases.items()}
        out.append(Row(who.name, who.kind, who.how, times.median, *times.quartiles, ratios, who.limits))
    return tuple(out)


def comparison_from_json(table: Mapping[str, Any]) -> Comparison:
    """Rebuild a comparison from its JSON table."""
    made = tuple(Row(**row) for row in table["rows"])
    return Comparison(**{**table, "rows": made, "bases": tuple(table["bases"]), "notes": tuple(table["notes"])})


def describe_environment() -> dict[str, Any]:
    """The machine, the versions, and the load average."""
    machine = environment.describe_environment(SEED, parameters=0)
    del machine["parameters"]
    return {"machine": machine, "load": round(os.getloadavg()[0], 2)}
