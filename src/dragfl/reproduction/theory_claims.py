"""Verdicts on the claims about Theorem 1 and DRAG's limits, from formulas and the measurements of fixed-points.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dragfl.reproduction.verdicts import Verdict
from dragfl.theory.fixed_points import divergence_boundary, line_fixed_point
from dragfl.theory.theorem import PRINTED, REPAIRED, gamma, largest_c, largest_x

Measured = Mapping[str, Any]  # docs/theory/fixed-points.json
PAPER_C = (0.1, 0.25)  # of the paper's experiments
WITHIN = 0.01
RATE = -0.45
TABLE = {0.0: 0.12366, 0.01: 0.0917, 0.02: 0.0568, 0.03: 0.00315}  # c -> the largest eta L U with Gamma > 0


@dataclass(frozen=True)
class TheoryRow:
    claim: str
    text: str
    measured: str
    verdict: Verdict
    remark: str


def theory_rows(measured: Measured) -> list[TheoryRow]:
    """C32 to C34, in order."""
    return [feasible_region(), line_limit(measured), *rates(measured), *floors(measured)]


def feasible_region() -> TheoryRow:
    found = {c: largest_x(c, PRINTED) or 0.0 for c in TABLE}
    outside = all(gamma(c, 0.0, form) < 0 for c in PAPER_C for form in (PRINTED, REPAIRED))
    agrees = all(abs(found[c] - x) < 5e-4 * x + 5e-6 for c, x in TABLE.items())
    xs = ", ".join(f"{found[c]:.3g} for c = {c:g}" for c in TABLE)
    return TheoryRow(
        "C32",
        "Theorem 1 covers none of the paper's settings, whatever the learning rate",
        f"Γ(c, 0) = {gamma(0.1, 0.0):.3g} for c = 0.1, {gamma(0.25, 0.0):.3g} for c = 0.25; largest ηLU {xs}",
        Verdict.PASS if outside and agrees else Verdict.FAIL,
        f"Γ > 0 needs c < 1/33 = {largest_c(0.0):.4f}.",
    )


def line_limit(measured: Measured) -> TheoryRow:
    circles, boundary = measured["circles"], measured["angles"]["line"]
    due = [line_fixed_point(c) for c in circles["c"]]
    worst = max(abs(seen / limit - 1) for seen, limit in zip(circles["line"], due, strict=True))
    plane = [row["c"] for row in measured["angles"]["plane"]]
    edge = divergence_boundary(measured["distances"]["s"])
    return TheoryRow(
        "C33",
        "Two clients with quadratic losses on a line: DRAG converges to 2c/(1 − 2c) for c < 1/4 and diverges above",
        f"largest deviation from 2c/(1 − 2c): {100 * worst:.2g} %; diverges from c = {boundary:.4f} on",
        Verdict.PASS if worst < WITHIN and abs(boundary / 0.25 - 1) < WITHIN else Verdict.FAIL,
        f"Only on a line. In the plane DRAG circles around the optimum, and diverges from c = {min(plane):.3f} to "
        f"{max(plane):.3f} on (formula {edge:.3f}).",
    )


def rates(measured: Measured) -> list[TheoryRow]:
    curves = measured["rates"]["curves"]
    low, high = curves["covered"]["interval"]
    fixed = {name: curves[key]["slope"] for name, key in (("on a line", "line"), ("4 dimensions", "constant"))}
    return [
        TheoryRow(
            "C34a",
            "With c and η of order 1/√T the mean squared gradient norm falls as 1/√T or faster (slope −0.45 or less)",
            f"slope over T: {curves['covered']['slope']:.3f} ({low:.3f} to {high:.3f})",
            Verdict.PASS if high <= RATE else Verdict.FAIL,
            "",
        ),
        TheoryRow(
            "C34b",
            "The paper, section V: with η of order 1/√T alone, c = 0.2 fixed, it falls as 1/√T (slope −0.45 or less)",
            "<br>".join(f"{name}: slope over T {slope:.2f}" for name, slope in fixed.items()),
            Verdict.PASS if max(fixed.values()) <= RATE else Verdict.FAIL,
            "The bound keeps a term c σ_G² for a fixed c.",
        ),
    ]


def floors(measured: Measured) -> list[TheoryRow]:
    """The slopes of |grad f|^2 over c and over sigma_G, halved: of |grad f| over c, of |grad f|^2 over sigma_G^2."""
    slopes = {(row["d"], row["over"]): row["slope"] / 2 for row in measured["gradient_floors"]}
    return [
        _floor(
            "C34c", slopes, "c", "With a constant c the gradient norm has a floor that is linear in c", "|∇f| over c"
        ),
        _floor("C34d", slopes, "tilt", "The floor of the squared gradient norm is linear in σ_G²", "|∇f|² over σ_G²"),
    ]


def _floor(claim: str, slopes: Mapping[tuple[int, str], float], over: str, text: str, of: str) -> TheoryRow:
    found = {"on a line": slopes[1, over], "4 dimensions": slopes[4, over]}
    return TheoryRow(
        claim,
        f"{text} (slope 0.8 to 1.2)",
        "<br>".join(f"{name}: slope of {of} {slope:.2f}" for name, slope in found.items()),
        Verdict.PASS if all(0.8 <= slope <= 1.2 for slope in found.values()) else Verdict.FAIL,
        "So |∇f|² is quadratic in c, and the bound's floor, linear in c, is loose for small c." if over == "c" else "",
    )
