"""Claims as data, read from `claims.toml`: a statement, and the comparisons of runs that decide it.

[[claim]]
id, text                       the number and the statement
lower_target                   adds a second row with this target, which shorter runs can decide
seeds                          number of seeds needed for a verdict
if_pass, if_fail               a remark for the verdict table
[[claim.comparisons]]          all of them must hold
figure, curve, versus          the curve, and the curves it is compared with
conditions                     for "margin": the curves are named CURVE-CONDITION
metric                         rounds (to the target), final, best, mean, accuracy_std, or a key of summary.TELEMETRY
statistic                      the value; its ratio to, or difference from, the best of `versus`; its rank; its margin
relation, threshold            what must hold for the statistic
target                         another target than the figure's
minus                          {figure, curve, versus}: the same statistic of other curves, which is subtracted first
label                          a name for the statistic, where the labels of the curves are not enough
"""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dragfl.config.registry import convert
from dragfl.errors import SpecError, nearest
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.intervals import Relation
from dragfl.reproduction.summary import TELEMETRY

ACCURACY_METRICS = ("final", "best", "mean", "accuracy_std")
METRICS = ("rounds", *ACCURACY_METRICS, *TELEMETRY)
Statistic = Literal["value", "ratio", "inverse_ratio", "difference", "rank", "margin"]


@dataclass(frozen=True)
class Comparison:
    """A statistic of some curves, and the relation that must hold for it; see the top of this file."""

    figure: str
    curve: str
    relation: Relation = ">="
    threshold: float = 0.0
    versus: list[str] = field(default_factory=list)
    conditions: list[str] = field(default_factory=list)
    metric: str = "rounds"
    statistic: Statistic = "value"
    target: float | None = None
    minus: Comparison | None = None  # only its curves are read
    label: str = ""

    @property
    def curves(self) -> list[str]:
        names = [self.curve, *self.versus]
        return [f"{name}-{condition}" for name in names for condition in self.conditions] if self.conditions else names

    @property
    def terms(self) -> list[Comparison]:
        """The comparison itself, and the one that is subtracted from it."""
        return [self] if self.minus is None else [self, self.minus]

    @property
    def low_is_best(self) -> bool:
        return self.metric in ("rounds", "accuracy_std", "bytes")


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    comparisons: list[Comparison]
    seeds: int = 3
    if_pass: str = ""
    if_fail: str = ""
    lower_target: float | None = None
    has_lower_target: bool = False  # a second row, made from the `lower_target` of another claim

    @property
    def figures(self) -> list[str]:
        """The figures it needs, in order."""
        return list(dict.fromkeys(term.figure for c in self.comparisons for term in c.terms))


@dataclass(frozen=True)
class Cause:
    """A possible reason for a difference between paper and measurement, and comparisons that quantify it."""

    title: str
    text: str
    comparisons: list[Comparison]


@cache
def load_claims() -> tuple[Claim, ...]:
    """All claims, each followed by its row with a lower target."""
    return tuple(row for table in _read_tables("claim") for row in expand_claim(parse_claim(table)))


@cache
def load_causes() -> tuple[Cause, ...]:
    causes = tuple(convert("cause", table, Cause) for table in _read_tables("cause"))
    for cause in causes:
        _check_comparisons(f"cause '{cause.title}'", cause.comparisons)
    return causes


def parse_claim(table: dict[str, Any]) -> Claim:
    claim = convert(f"claim {table.get('id', '?')}", table, Claim)
    if not claim.comparisons:
        raise SpecError(f"claim {claim.id}: no [[claim.comparisons]]; add at least one")
    if any("relation" not in c or "threshold" not in c for c in table["comparisons"]):
        raise SpecError(f"claim {claim.id}: a comparison needs a relation and a threshold")
    _check_comparisons(f"claim {claim.id}", claim.comparisons)
    return claim


def expand_claim(claim: Claim) -> list[Claim]:
    """The claim, and its second row where it has a lower target."""
    if claim.lower_target is None:
        return [claim]
    target = f"{100 * claim.lower_target:.0f} %"
    lower = replace(
        claim,
        id=f"{claim.id} at {target}",
        text=f"{claim.id} with a target of {target}: a different claim, which shorter runs can decide",
        comparisons=[replace(c, target=claim.lower_target) for c in claim.comparisons],
        lower_target=None,
        has_lower_target=True,
    )
    return [claim, lower]


def claims_for(figure: str) -> list[str]:
    """The claims that need a figure."""
    return [claim.id for claim in load_claims() if figure in claim.figures]


def _read_tables(kind: str) -> list[dict[str, Any]]:
    tables: list[dict[str, Any]] = tomllib.loads(files(__package__).joinpath(f"{kind}s.toml").read_text())[kind]
    return tables


def _check_comparisons(where: str, comparisons: Sequence[Comparison]) -> None:
    for c in comparisons:
        if c.metric not in METRICS:
            raise SpecError(f"{where}: unknown metric '{c.metric}'{nearest(c.metric, METRICS)}")
        if c.statistic != "value" and not c.versus:
            raise SpecError(f"{where}: {c.statistic} of {c.curve} needs `versus`")
        for term in c.terms:
            for curve in term.curves:
                _ = load_figure(term.figure)[curve]
