"""The curves of a panel as rows of a table, for the terminal and for the page: median and range over seeds."""

from __future__ import annotations

from collections.abc import Sequence

from dragfl.reproduction.figure import Panel
from dragfl.reproduction.intervals import Span, middle
from dragfl.reproduction.summary import Record, Summary
from dragfl.reproduction.verdicts import rounds_to


def curve_rows(one: Panel, s: Summary) -> list[list[str]]:
    """Heads, then a row for every curve that was run: rounds to the target, final and best accuracy, and
    how long the aggregate is beside the mean update.

    Runs that stop at the target have no final accuracy to speak of.
    """
    shown = [curve for curve in one.curve if s.curves.get(curve.id)]
    target = [] if s.target is None else [f"rounds to {100 * s.target:g} %"]
    stopped = any(r.ended == "target" for curve in shown for r in s.curves[curve.id].values())
    final = [] if stopped else ["final accuracy"]
    rows = [["algorithm", *target, *final, "best accuracy", "aggregate / mean update"]]
    for curve in shown:
        records = list(s.curves[curve.id].values())
        cells = [curve.name]
        if s.target is not None:
            cells.append(_rounds(records, s.target))
        if not stopped:
            cells.append(_percent([r.final for r in records]))
        cells.append(_percent([r.best for r in records]) + _lost(records))
        ratios = [r.numbers["step_ratio"] for r in records if "step_ratio" in r.numbers]
        cells.append(f"{middle([Span.of(x) for x in ratios]).low:.2f}" if ratios else "—")
        rows.append(cells)
    return rows


def _rounds(records: Sequence[Record], target: float) -> str:
    spans = [rounds_to(target, record) for record in records]
    central = middle(spans)
    told = f"> {central.low:.0f}" if central.censored else f"{central.low:g}"
    low, high = min(s.low for s in spans), max(s.high for s in spans)
    if low == high or all(s.censored for s in spans):
        return told
    return f"{told} ({low:g} to {'not reached' if high == float('inf') else f'{high:g}'})"


def _percent(values: Sequence[float]) -> str:
    central = middle([Span.of(value) for value in values]).low
    low, high = min(values), max(values)
    spread = f" ({100 * low:.1f} to {100 * high:.1f})" if len(values) > 1 else ""
    return f"{100 * central:.1f} %{spread}"


def _lost(records: Sequence[Record]) -> str:
    lost = sum(r.ended == "diverged" for r in records)
    return f", {lost} of {len(records)} diverged" if lost else ""
