"""Panels that were run, as a folder: a summary for each, their figures and the verdicts on the claims they serve.

OUT/PANEL.json              how it was run and a record for every curve and seed
OUT/figures/PANEL.png, .pdf
OUT/verdicts.json           a row for every claim
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl import atomic
from dragfl.errors import SpecError
from dragfl.reproduction import claims, summary
from dragfl.reproduction import figure as panel
from dragfl.reproduction import plots as figures
from dragfl.reproduction.cost import duration
from dragfl.reproduction.formatting import Row, row
from dragfl.reproduction.plan import lay_out
from dragfl.reproduction.runs import Asked
from dragfl.reproduction.verdicts import Summaries, Verdict, judge

if TYPE_CHECKING:
    from dragfl.report.figures import SavedFigure

FIGURES, VERDICTS = "figures", "verdicts.json"


def keep(asked: Asked, folder: Path, out: Path) -> dict[str, summary.Summary]:
    """Write the summary of every panel that has a run; all there are in the folder, of those asked for only these."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{out}: cannot be made ({error.strerror}); choose another --out") from None
    made = {one.name: summary.summarise(lay_out(one, scale, folder)) for one, scale in asked}
    made = {name: found for name, found in made.items() if found.seeds}
    for name, found in made.items():
        summary.write(found, out / f"{name}.json")
    others = load(out, but=[one.name for one, _ in asked])
    book = {**others, **made}
    return {name: book[name] for name in panel.names() if name in book}


def load(out: Path, but: Sequence[str] = ()) -> dict[str, summary.Summary]:
    """Every summary of a folder, by panel."""
    files = {name: out / f"{name}.json" for name in panel.names() if name not in but}
    return {name: summary.read(path) for name, path in files.items() if path.is_file()}


def verdicts(book: Summaries, only: Sequence[str] | None = None) -> list[Row]:
    """A row for every claim, or for those that these panels serve."""
    chosen = [claim for claim in claims.load() if only is None or set(claim.panels) & set(only)]
    return [row(judge(claim, book), book) for claim in chosen if not (claim.lower and _is_no_lower(claim, book))]


def _is_no_lower(claim: claims.Claim, book: Summaries) -> bool:
    """Whether the panels were run with a target as low as that of the claim: then it says nothing new."""
    targets = [book[name].target for name in claim.panels if name in book]
    return any(target is not None and target <= (part.target or 0.0) for target in targets for part in claim.part)


def write_verdicts(rows: Sequence[Row], out: Path) -> None:
    atomic.write_text(out / VERDICTS, json.dumps([asdict(r) for r in rows], indent=1, ensure_ascii=False) + "\n")


def draw(book: Summaries, names: Sequence[str], out: Path) -> list[SavedFigure]:
    made = [figures.draw(panel.load(name), book[name], out / FIGURES) for name in names if name in book]
    return [figure for figure in made if figure is not None]


def remarks(book: Summaries, names: Sequence[str]) -> list[str]:
    """What a reader of the table must know first: scale, data, stand-ins."""
    used = [book[name] for name in names if name in book]
    lines = []
    if any(s.quick for s in used):
        lines.append(
            "This is a scaled-down look (--quick): smaller networks, fewer rounds, lower targets, one seed unless "
            "asked for more; controls that are tuned otherwise have a middle value. "
            "Its verdicts are about that, not about the paper."
        )
    stand_ins = sorted({s.dataset for s in used if s.dataset not in panel.load(s.panel).datasets})
    lines += [f"{name} stands in for the data of the paper." for name in stand_ins]
    changed = sorted({change for s in used for change in s.changed})
    if changed:
        lines.append(f"Changed on the command line: {', '.join(changed)}.")
    if any(s.dataset == "emnist47" for s in used):
        lines.append("emnist47 is real EMNIST of the 47 classes, but not the official balanced split.")
    lines.append(f"{len(used)} panels, {duration(seconds(used))} of computing on one core.")
    return lines


def seconds(used: Sequence[summary.Summary]) -> float:
    """Computing on one core for all of them, each run once; tuning included."""
    runs = {r.run: r.seconds for s in used for records in s.curves.values() for r in records.values()}
    return sum(runs.values()) + sum(float(trial["seconds"]) for s in used for trial in s.tuning)


def tally(rows: Sequence[Row]) -> str:
    """`12 PASS, 3 FAIL, 1 UNDECIDED, 0 NOT RUN`"""
    return ", ".join(f"{sum(r.verdict == v for r in rows)} {v.value}" for v in Verdict)
