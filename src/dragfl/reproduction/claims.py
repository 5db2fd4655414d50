"""Claims as data: what the paper says, and the comparison of runs that decides it. Read from `claims.toml`.

[[claim]]
id, says                       the claim in words
also_at                        a lower target: a second row of the table, for runs too short for the panel's own
seeds                          how many must have been run before it is decided
if_pass, if_fail               a sentence for the verdict table: what it means, or why it is so
[[claim.part]]                 all parts must hold
panel, of, versus              the curve it is about, and those it is compared with
metric                         rounds (to the target), final, best, mean, unrest, or a number of a record
how                            the value, its ratio to or difference from the best of `versus`, or its rank
relation, threshold            what must be true of that
target                         another target than the panel's
than                           {panel, of, versus}: the same of other curves, which is subtracted first
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dragfl.config.registry import convert
from dragfl.errors import SpecError, nearest
from dragfl.reproduction import figure as panels
from dragfl.reproduction.intervals import Relation
from dragfl.reproduction.summary import NUMBERS

METRICS = ("rounds", "final", "best", "mean", "unrest", *NUMBERS)
How = Literal["value", "ratio", "inverse", "difference", "rank", "margin"]


@dataclass(frozen=True)
class Side:
    """The curves a number is made of."""

    panel: str
    of: str
    versus: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)  # how = "margin": curves are named CURVE-CONDITION


@dataclass(frozen=True)
class Part:
    """One comparison."""

    panel: str
    of: str
    relation: Relation = ">="
    threshold: float = 0.0
    versus: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    metric: str = "rounds"
    how: How = "value"
    target: float | None = None
    than: Side | None = None
    what: str = ""  # in words, where the curves' labels do not say it

    @property
    def sides(self) -> list[Side]:
        mine = Side(self.panel, self.of, self.versus, self.conditions)
        return [mine] if self.than is None else [mine, self.than]

    @property
    def low_is_best(self) -> bool:
        return self.metric in ("rounds", "unrest", "bytes")


@dataclass(frozen=True)
class Claim:
    id: str
    says: str
    part: list[Part]
    seeds: int = 3
    if_pass: str = ""
    if_fail: str = ""
    also_at: float | None = None
    lower: bool = False  # it is the second row of another

    @property
    def panels(self) -> list[str]:
        """The panels it needs, in order."""
        return list(dict.fromkeys(side.panel for part in self.part for side in part.sides))


@dataclass(frozen=True)
class Cause:
    """A reason why paper and measurement may differ, and the comparisons that show how much is due to it."""

    title: str
    text: str
    part: list[Part]


def curves_of(side: Side) -> list[str]:
    """Every curve a side asks for."""
    if side.conditions:
        return [f"{curve}-{condition}" for curve in (side.of, *side.versus) for condition in side.conditions]
    return [side.of, *side.versus]


@cache
def load() -> tuple[Claim, ...]:
    """Every claim, checked: its panels and curves exist."""
    tables = tomllib.loads(files("dragfl.reproduction").joinpath("claims.toml").read_text())
    return tuple(row for table in tables["claim"] for row in rows_of(made(table)))


def rows_of(claim: Claim) -> list[Claim]:
    """The claim, and its twin at a lower target where it has one."""
    if claim.also_at is None:
        return [claim]
    at = f"{claim.also_at:.0%}".replace("%", " %")
    says = f"As {claim.id}, at {at} instead of the panel's target: another claim, which shorter runs can decide"
    parts = [replace(part, target=claim.also_at) for part in claim.part]
    return [claim, replace(claim, id=f"{claim.id} at {at}", says=says, part=parts, also_at=None, lower=True)]


def made(table: dict[str, Any]) -> Claim:
    claim = convert(f"claim {table.get('id', '?')}", table, Claim)
    if not claim.part:
        raise SpecError(f"claim {claim.id}: no [[claim.part]]; nothing would decide it")
    if any("relation" not in part or "threshold" not in part for part in table["part"]):
        raise SpecError(f"claim {claim.id}: a part needs a relation and a threshold")
    _check(f"claim {claim.id}", claim.part)
    return claim


@cache
def causes() -> tuple[Cause, ...]:
    """Every cause, checked likewise."""
    tables = tomllib.loads(files("dragfl.reproduction").joinpath("causes.toml").read_text())
    found = tuple(convert("cause", table, Cause) for table in tables["cause"])
    for cause in found:
        _check(f"cause '{cause.title}'", cause.part)
    return found


def _check(where: str, parts: list[Part]) -> None:
    for part in parts:
        if part.metric not in METRICS:
            raise SpecError(f"{where}: unknown metric '{part.metric}'{nearest(part.metric, METRICS)}")
        if part.how != "value" and not part.versus:
            raise SpecError(f"{where}: {part.how} of {part.of} needs `versus`")
        for side in part.sides:
            for curve in curves_of(side):
                _ = panels.load(side.panel)[curve]


def served_by(panel: str) -> list[str]:
    """The claims a panel serves."""
    return [claim.id for claim in load() if panel in claim.panels]
