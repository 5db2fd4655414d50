"""Claims as data, read from `claims.toml`: a statement, and the comparisons of runs that decide it.

[[claim]]
id, text                       the number and the statement
source, section                "paper" and where the paper states it, or "ours" for what we ask beyond it
seeds                          number of seeds needed for a verdict
if_pass, if_mixed, if_fail     a remark for the verdict table
[claim.settings]               plausible values of what the paper leaves open, judged one by one:
"LABEL" = { NAME = VALUE }     in the comparisons, the curve, competitor or figure NAME is replaced by VALUE
[[claim.comparisons]]          all of them must hold
figure, curve, versus          the curve, and the curves it is compared with
conditions                     for "margin": the curves are named CURVE-CONDITION
metric                         rounds (to the target), final, best, mean, accuracy_std, or a key of summary.TELEMETRY
statistic                      the value; its ratio to, or difference from, the best of `versus`; its rank; its margin
relation, threshold            what must hold for the statistic
target                         a lower target than the figure's; where no curve reaches it, see verdicts.py
minus                          {figure, curve, versus}: the same statistic of other curves, which is subtracted first
label                          a name for the statistic, where the labels of the curves are not enough
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any, Literal

from dragfl.config.convert import convert
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

    def with_names(self, names: Mapping[str, str]) -> Comparison:
        """The comparison with other curves or figures in place of these."""
        return replace(
            self,
            figure=names.get(self.figure, self.figure),
            curve=names.get(self.curve, self.curve),
            versus=[names.get(name, name) for name in self.versus],
            minus=None if self.minus is None else self.minus.with_names(names),
        )


@dataclass(frozen=True)
class Claim:
    id: str
    text: str
    comparisons: list[Comparison]
    seeds: int = 3
    source: Literal["paper", "ours"] = "ours"
    section: str = ""
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    if_pass: str = ""
    if_mixed: str = ""
    if_fail: str = ""

    @property
    def variants(self) -> dict[str, list[Comparison]]:
        """The comparisons of each setting by its label; "" for a claim without settings."""
        settings = self.settings or {"": {}}
        return {label: [c.with_names(names) for c in self.comparisons] for label, names in settings.items()}

    @property
    def figures(self) -> list[str]:
        """The figures it needs, in order."""
        terms = [term for comparisons in self.variants.values() for c in comparisons for term in c.terms]
        return list(dict.fromkeys(term.figure for term in terms))


@dataclass(frozen=True)
class Cause:
    """A possible reason for a difference between paper and measurement, and comparisons that quantify it."""

    title: str
    text: str
    comparisons: list[Comparison]


@cache
def load_claims() -> tuple[Claim, ...]:
    return tuple(parse_claim(table) for table in _read_tables("claim"))


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
    if claim.source == "paper" and not claim.section:
        raise SpecError(f'claim {claim.id}: no section; name the place in the paper, or set source = "ours"')
    used = {name for c in claim.comparisons for term in c.terms for name in (term.figure, term.curve, *term.versus)}
    for label, names in claim.settings.items():
        if unused := [name for name in names if name not in used]:
            raise SpecError(f"claim {claim.id}: setting '{label}' replaces '{unused[0]}', which no comparison names")
    for comparisons in claim.variants.values():
        _check_comparisons(f"claim {claim.id}", comparisons)
    return claim


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
