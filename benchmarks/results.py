"""What was measured, as values: rows with medians, their ratios to the bases, and whether a target is met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from benchmarks.timing import Times
from benchmarks.works import SEED
from dragfl.experiment.machine import describe_machine
from dragfl.types import Setting

Kind = Literal["floor", "bare", "dragfl", "peer"]  # who a row is; the figure gives each a colour
BASES: dict[Kind, str] = {"bare": "bare loop", "floor": "floor"}


@dataclass(frozen=True)
class Row:
    """One contender: seconds, ratios to the bases, and what these should be at most."""

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


@dataclass(frozen=True)
class Contender:
    """Who was timed, and how it is told of."""

    name: str
    kind: Kind
    how: str
    limits: Mapping[str, float] = field(default_factory=dict)


def rows(
    told: Mapping[str, Contender], found: Mapping[str, Times], bases: Mapping[str, str] | None = None
) -> tuple[Row, ...]:
    """Rows of what was timed; `bases` names for each base the contender that it is."""
    out = []
    for key, who in told.items():
        times = found[key]
        ratios = {base: times.median / found[other].median for base, other in (bases or {}).items()}
        out.append(Row(who.name, who.kind, who.how, times.median, *times.quartiles, ratios, who.limits))
    return tuple(out)


def panel_of(table: Mapping[str, Any]) -> Panel:
    """A panel as it was before it went into a JSON file."""
    made = tuple(Row(**row) for row in table["rows"])
    return Panel(**{**table, "rows": made, "bases": tuple(table["bases"]), "notes": tuple(table["notes"])})


def about() -> dict[str, Any]:
    """Where and with what it was measured."""
    machine = describe_machine(SEED, Setting(dim=0, clients=1, per_round=1, segments=(0, 0)))
    del machine["parameters"]
    return {"machine": machine}
