"""Draw docs/figures/theory-*.png and write the tables of docs/theory.md: python docs/figures/make_theory.py

The measurements are docs/theory/fig3a.json and covered.json, the theory.json of

    dragfl theory fig3a
    dragfl theory fig3a --rounds 100 algorithm.c=0.01 clients.lr=0.0004
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dragfl.report.figures.style import plot_style
from dragfl.report.figures.theory import draw_bounds, draw_region
from dragfl.theory.theorem import PRINTED, largest_x

DOCS = Path(__file__).resolve().parents[1]
PAGE = DOCS / "theory.md"
RUNS = {"fig3a": "Fig. 3(a)", "covered": "Fig. 3(a) with smaller c and η"}
CONSTANTS = {"smoothness": "L", "noise": "σ_L", "heterogeneity": "σ_G"}
VANISHES = {"start": "with T", "drag": "only with c", "step": "with η", "drift": "with η²", "total": ""}


def load(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((DOCS / "theory" / f"{name}.json").read_text())
    return found


def limits() -> list[str]:
    """The largest x for some c, as printed and as repaired."""
    lines = ["| c | largest x, as printed | largest x, repaired |", "|---|---|---|"]
    for c in (0.0, 0.01, 0.02, 0.03):
        lines.append(f"| {c:g} | {largest_x(c, PRINTED):.4g} | {largest_x(c):.4g} |")
    return [*lines, "| 1/33 = 0.0303 and more | none | none |"]


def constants() -> list[str]:
    """The measured constants of both runs."""
    lines = ["| | " + " | ".join(RUNS.values()) + " |", "|---|---|---|"]
    runs = [load(name) for name in RUNS]
    for name, symbol in CONSTANTS.items():
        cells = ["{least:.3g} / {median:.3g} / **{most:.3g}**".format(**run["spreads"][name]) for run in runs]
        lines.append(f"| {symbol}: least / median / largest | {cells[0]} | {cells[1]} |")
    rows = {
        "f0 − f*": [f"{run['constants']['gap']:.3g}" for run in runs],
        "x = η L U": [f"{run['x']:.3g}" for run in runs],
        "Γ, repaired": [f"{run['gamma']['repaired']:.3g}" for run in runs],
        "c, η": [f"{run['setting']['c']:g}, {run['setting']['lr']:g}" for run in runs],
        "rounds repeated": [str(run["measurement"]["rounds"]) for run in runs],
        "measured mean of \\|∇f\\|²": [f"{run['measurement']['mean_squared_gradient']:.3g}" for run in runs],
        "bound in these rounds": [f"{run['bound_measured']['total']:.3g}" if run["bound"] else "none" for run in runs],
    }
    return [*lines, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows.items())]


def terms() -> list[str]:
    """The terms of the bound of the covered run."""
    run = load("covered")
    lines = [
        f"| term | {run['measurement']['rounds']} rounds | {run['rounds']} rounds | vanishes |",
        "|---|---|---|---|",
    ]
    for name, how in VANISHES.items():
        lines.append(f"| {name} | {run['bound_measured'][name]:.3g} | {run['bound'][name]:.3g} | {how} |")
    return lines


TABLES = {"limits": limits, "constants": constants, "terms": terms}


def with_tables(page: str) -> str:
    """The page with its tables between `<!-- NAME -->` and `<!-- end -->` written."""
    for name, make in TABLES.items():
        before, _, rest = page.partition(f"<!-- {name} -->\n")
        after = rest.partition("<!-- end -->")[2]
        page = before + f"<!-- {name} -->\n" + "\n".join(make()) + "\n<!-- end -->" + after
    return page


def main() -> None:
    found = [(label, load(name)) for name, label in RUNS.items()]
    with plot_style():
        for name, drawing in (("theory-region", draw_region(found)), ("theory-bound", draw_bounds(found))):
            assert drawing is not None
            path = DOCS / "figures" / f"{name}.png"
            drawing.figure.savefig(path, dpi=200, metadata={"Software": None})
    PAGE.write_text(with_tables(PAGE.read_text()))


if __name__ == "__main__":
    main()
