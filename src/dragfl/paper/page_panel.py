"""The section of one panel on the page: figure, table, what was tuned, the command, the settings."""

from __future__ import annotations

from collections.abc import Sequence

import tomli_w

from dragfl.paper import figures, results
from dragfl.paper.claims import served_by
from dragfl.paper.cost import duration
from dragfl.paper.panel import Curve, Panel
from dragfl.paper.spans import Span, middle
from dragfl.paper.summary import Record, Summary


def section(one: Panel, s: Summary, folder: str) -> str:
    shown = [curve for curve in one.curve if s.curves.get(curve.id)]
    seeds = len(s.seeds)
    served = served_by(one.name)
    parts = [
        f"## {title(one)}",
        "",
        f"{one.figure}. The paper: {one.paper}" if one.name.startswith("fig") else one.paper,
    ]
    if served:
        parts += ["", f"Claims: {', '.join(served)}."]
    parts += ["", f"![{one.title}: test accuracy by round]({folder}/{results.FIGURES}/{one.name}.png)", ""]
    parts += [figures.caption(one, s), "", *_curves(shown, s), "", *_tuning(one, s)]
    parts += [
        f"<!-- test: skip, it takes {duration(s.seconds / 2)} -->",
        "```console",
        _command(one, s, seeds),
        "```",
        "",
    ]
    parts += [*_settings(one, s)]
    return "\n".join(parts)


def _curves(shown: Sequence[Curve], s: Summary) -> list[str]:
    """A row for every curve: rounds to the target, final and best accuracy, median and range over seeds.

    Runs that stop at the target have no final accuracy to speak of.
    """
    target = f"rounds to {100 * s.target:g} %" if s.target is not None else None
    stopped = any(r.ended == "target" for curve in shown for r in s.curves[curve.id].values())
    final = [] if stopped else ["final accuracy"]
    heads = ["algorithm", *([target] if target else []), *final, "best accuracy", "step length / mean update"]
    lines = [f"| {' | '.join(heads)} |", "|" + "---|" * len(heads)]
    for curve in shown:
        records = list(s.curves[curve.id].values())
        cells = [f"{curve.label}, {curve.facet}" if curve.facet else curve.label]
        if s.target is not None:
            cells.append(_rounds(records, s.target))
        if not stopped:
            cells.append(_percent([r.final for r in records]))
        cells.append(_percent([r.best for r in records]) + _lost(records))
        ratios = [r.numbers["step_ratio"] for r in records if "step_ratio" in r.numbers]
        cells.append(f"{middle([Span.of(x) for x in ratios]).low:.2f}" if ratios else "—")
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _rounds(records: Sequence[Record], target: float) -> str:
    spans = [Span.more_than(r.limit) if (first := r.rounds_to(target)) is None else Span.of(first) for r in records]
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


def _tuning(one: Panel, s: Summary) -> list[str]:
    """What was tried, and what was taken."""
    lines = []
    for curve, chosen in s.tuned.items():
        tune = one[curve].tune
        trials = [t for t in s.tuning if t["curve"] == curve]
        if tune is None or not trials:
            continue
        tried = "; ".join(
            f"{t['value']}: {f'> {s.rounds}' if t['rounds'] is None else t['rounds']} rounds, "
            f"best {100 * t['best']:.1f} %"
            for t in trials
        )
        seeds = ", ".join(map(str, sorted({t["seed"] for t in trials})))
        lines += [f"{one[curve].label}: `{tune.key}` = {chosen}, chosen on seed {seeds} ({tried}).", ""]
    return lines


def _command(one: Panel, s: Summary, seeds: int) -> str:
    words = ["dragfl", "paper", one.name, "--seeds", str(seeds), *(["--quick"] if s.quick else [])]
    for change in s.changes:
        key, _, value = change.partition("=")
        if key == "rounds":
            words += ["--rounds", value]
        elif key != "data.dataset":
            words.append(change)
    return " ".join([*words, *([f"data.dataset={s.dataset}"] if len(one.datasets) > 1 else [])])


def _settings(one: Panel, s: Summary) -> list[str]:
    lines = []
    if one.like is None:
        tables = {**one.experiment, "data": {"dataset": s.dataset, **one.experiment["data"]}}
        lines += ["What all curves share:", "", "```toml", tomli_w.dumps(tables).strip(), "```", ""]
    else:
        changed = f", with {', '.join(f'`{word}`' for word in one.set)}" if one.set else ""
        lines += [f"The experiment of {one.like}{changed}.", ""]
    own = {curve.label + (f", {curve.facet}" if curve.facet else ""): curve.set for curve in one.curve}
    lines += ["| curve | settings |", "|---|---|"]
    lines += [f"| {label} | {' '.join(f'`{word}`' for word in words)} |" for label, words in own.items()]
    lines += ["", "On these the paper is silent, or its code differs from its text:", ""]
    lines += [f"- `{key}`: {text}" for key, text in one.assumed.items()]
    return lines


def title(one: Panel) -> str:
    return f"{one.name}: {one.title}"


def anchor(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    kept = "".join(c for c in heading.lower() if c.isalnum() or c in "-_ ")
    return kept.strip().replace(" ", "-")
