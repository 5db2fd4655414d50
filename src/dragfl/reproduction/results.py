"""The output folder of a reproduction: summaries, plots, and the verdicts on the claims.

OUT/FIGURE.json             the settings, and a record for every curve and seed
OUT/figures/FIGURE.png, .pdf
OUT/verdicts.json           a row for every claim
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from math import isinf
from pathlib import Path

from dragfl.atomic import write_text
from dragfl.errors import SpecError
from dragfl.report.figures.files import FIGURES
from dragfl.reproduction.claims import load_claims
from dragfl.reproduction.figure import figure_names, load_figure
from dragfl.reproduction.formatting import format_divergence
from dragfl.reproduction.intervals import median
from dragfl.reproduction.plots import plot_figure
from dragfl.reproduction.rows import Row, make_row
from dragfl.reproduction.run_time import format_duration
from dragfl.reproduction.runs import FigureRequest, Planner, plan_figure
from dragfl.reproduction.summary import CUT_SHORT, Record, Summaries, Summary, read_summary, summarise, write_summary
from dragfl.reproduction.verdicts import Verdict, judge_claim, rounds_to

VERDICTS = "verdicts.json"


def write_summaries(
    requests: Sequence[FigureRequest], folder: Path, out: Path, plan: Planner = plan_figure
) -> dict[str, Summary]:
    """Summarise the runs of every requested figure; return these summaries and those of other figures in `out`."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{out}: cannot be created ({error.strerror}); choose another --out") from None
    stored = load_summaries(out)
    requested = [summarise_request(request, folder, stored, plan) for request in requests]
    written = {summary.figure: summary for summary in requested if summary.seeds}
    for name, summary in written.items():
        write_summary(summary, out / f"{name}.json")
    names = [summary.figure for summary in requested]
    return {**{name: summary for name, summary in stored.items() if name not in names}, **written}


def summarise_request(request: FigureRequest, folder: Path, stored: Summaries, plan: Planner) -> Summary:
    """The summary of a figure's runs, and of the stored records with the same settings, also of other seeds."""
    own = stored.get(request.figure.name)
    if own is not None:
        request = replace(request, seeds=tuple(sorted({*request.seeds, *own.seeds})))
    return summarise(plan(request, folder), own, stored.values())


def load_summaries(out: Path) -> dict[str, Summary]:
    """The summaries in a folder, by figure."""
    files = {name: out / f"{name}.json" for name in figure_names()}
    return {name: read_summary(path) for name, path in files.items() if path.is_file()}


def verdict_rows(summaries: Summaries, figures: Sequence[str] | None = None) -> list[Row]:
    """A row for every claim, or for the claims that need one of these figures."""
    claims = [claim for claim in load_claims() if figures is None or set(claim.figures) & set(figures)]
    return [make_row(judge_claim(claim, summaries), summaries) for claim in claims]


def write_verdicts(rows: Sequence[Row], out: Path) -> None:
    write_text(out / VERDICTS, json.dumps([asdict(row) for row in rows], indent=1, ensure_ascii=False) + "\n")


def plot_figures(summaries: Summaries, figures: Sequence[str], out: Path) -> list[str]:
    """Write the plots of these figures into out/figures; return the names of the figures that have runs."""
    return [name for name in figures if name in summaries and plot_figure(summaries[name], out / FIGURES)]


def count_verdicts(rows: Sequence[Row]) -> str:
    """`12 PASS, 2 MIXED, 3 FAIL, 1 UNDECIDED, 0 NOT RUN`"""
    return ", ".join(f"{sum(row.verdict == v for row in rows)} {v.value}" for v in Verdict)


def total_seconds(summaries: Iterable[Summary]) -> float:
    """Computing time on one core, tuning included, without pauses; a run that figures share counts once."""
    summaries = list(summaries)
    runs = {record.run: record.seconds for summary in summaries for record in summary.records}
    return sum(runs.values()) + sum(float(trial["seconds"]) for summary in summaries for trial in summary.tuning)


def scope_notes(summaries: Sequence[Summary]) -> list[str]:
    """Scale, data and changed settings of the results, for the reader of the tables."""
    notes = []
    if any(summary.quick for summary in summaries):
        notes.append("Reduced settings (--quick) for a smoke test; not evidence about the paper.")
    substitutes = {s.dataset for s in summaries if s.dataset not in load_figure(s.figure).datasets}
    notes += [f"{name} is a substitute for the paper's dataset." for name in sorted(substitutes)]
    changes = sorted({change for summary in summaries for change in summary.reported_changes})
    if changes:
        notes.append(f"Changed on the command line: {', '.join(changes)}.")
    notes += [note for summary in summaries if (note := shortened_note(summary))]
    if any(summary.dataset == "emnist47" for summary in summaries):
        notes.append("emnist47 is real EMNIST of the 47 classes, but not the official balanced split.")
    return [*notes, f"{len(summaries)} figures, {format_duration(total_seconds(summaries))} of computing on one core."]


def shortened_note(summary: Summary) -> str:
    """`fig4a: FedProx 300 of 1000 rounds: no verdict depends on more (--until-decided).`, or "" for whole runs."""
    figure, parts = load_figure(summary.figure), []
    for curve in figure.curves:
        ends = sorted({r.end for r in summary.curves.get(curve.id, {}).values() if r.ended == CUT_SHORT})
        if ends:
            parts.append(f"{curve.full_label} {' to '.join(str(end) for end in dict.fromkeys((ends[0], ends[-1])))}")
    rounds = f"of {summary.rounds} rounds: no verdict depends on more (--until-decided)"
    return f"{figure.name}: {', '.join(parts)} {rounds}." if parts else ""


def curve_table(summary: Summary) -> list[list[str]]:
    """A header, then a row for every curve with runs: medians and ranges over seeds.

    Final accuracy is left out where runs end before the maximum of rounds, other than by divergence.
    """
    figure, target = load_figure(summary.figure), summary.target
    stopped = any(record.end < summary.rounds for record in summary.records if not record.diverged)
    rows: list[dict[str, str]] = []
    for curve in figure.curves:
        records = list(summary.curves.get(curve.id, {}).values())
        if not records:
            continue
        cells = {"algorithm": curve.full_label}
        if target is not None:
            cells[f"rounds to {100 * target:g} %"] = _format_rounds(records, target)
        ending = format_divergence(records)
        if not stopped:
            lost = all(record.diverged for record in records)
            cells["final accuracy"] = ending if lost else _format_accuracies([record.final for record in records])
        note = f", {ending}" if ending else ""
        cells["best accuracy"] = _format_accuracies([record.best for record in records]) + note
        ratios = [record.numbers["step_ratio"] for record in records if "step_ratio" in record.numbers]
        cells["step / mean update"] = f"{statistics.median(ratios):.2f}" if ratios else "—"
        rows.append(cells)
    return [*map(list, rows[:1]), *(list(cells.values()) for cells in rows)]


def _format_rounds(records: Sequence[Record], target: float) -> str:
    values = [rounds_to(target, record) for record in records]
    central = median(values)
    text = "never" if isinf(central.low) else f"> {central.low:.0f}" if central.censored else f"{central.low:g}"
    low, high = min(v.low for v in values), max(v.high for v in values)
    if low == high or all(v.censored for v in values):
        return text
    return f"{text} ({low:g} to {'not reached' if isinf(high) else f'{high:g}'})"


def _format_accuracies(values: Sequence[float]) -> str:
    spread = f" ({100 * min(values):.1f} to {100 * max(values):.1f})" if len(values) > 1 else ""
    return f"{100 * statistics.median(values):.1f} %{spread}"
