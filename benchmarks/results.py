"""What was measured, as values: rows with medians, their ratios to the bases, and whether a target is met."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.timing import Tick, Times, interleave
from benchmarks.works import SEED
from dragfl.runs.environment import describe_machine
from dragfl.types import FederationInfo

BUSY = 0.5  # a load above which ratios are not to be trusted
Kind = Literal["floor", "bare", "dragfl", "peer"]  # who a row is; the figure gives each a colour


@dataclass(frozen=True)
class Row:
    """One contender: seconds or megabytes, ratios to the bases, and what these should be at most."""

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
        """Is every target met; None without a target."""
        return all(self.ratios[base] <= limit for base, limit in self.limits.items()) if self.limits else None


@dataclass(frozen=True)
class Panel:
    """The rows of one work."""

    work: str
    title: str
    rows: tuple[Row, ...]
    bases: tuple[str, ...]
    repeats: int
    notes: tuple[str, ...] = ()
    unit: str = "ms"  # of what is shown; times are kept in seconds

    def label(self, row: Row) -> str:
        """The name of a row, and what it ran on where that differs; else the title says it."""
        return row.name if len({other.how for other in self.rows}) == 1 else f"{row.name}, {row.how}"

    def value(self, row: Row) -> str:
        """The median in the unit of the panel: one digit after the point, none where there are three before it."""
        value = row.median * (1e3 if self.unit == "ms" else 1.0)
        return f"{value:.{1 if value < 100 else 0}f}"


@dataclass(frozen=True)
class Contender:
    """Who is timed, what it does, and how it is told of."""

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
    """By label."""
    return interleave({who.label: who.run for who in contenders}, repeats, tick)


def rows(
    contenders: Iterable[Contender], found: Mapping[str, Times], bases: Mapping[str, Contender]
) -> tuple[Row, ...]:
    """Rows of what was timed, with ratios to the bases."""
    out = []
    for who in contenders:
        times = found[who.label]
        ratios = {base: times.median / found[other.label].median for base, other in bases.items()}
        out.append(Row(who.name, who.kind, who.how, times.median, *times.quartiles, ratios, who.limits))
    return tuple(out)


def panel_of(table: Mapping[str, Any]) -> Panel:
    """A panel as it was before it went into a JSON file."""
    made = tuple(Row(**row) for row in table["rows"])
    return Panel(**{**table, "rows": made, "bases": tuple(table["bases"]), "notes": tuple(table["notes"])})


def about() -> dict[str, Any]:
    """Where and with what it is measured; the load says whether others were at work on the machine."""
    machine = describe_machine(SEED, FederationInfo(dim=0, clients=1, per_round=1, segments=(0, 0)))
    del machine["parameters"]
    return {"machine": machine, "load": round(os.getloadavg()[0], 2)}
