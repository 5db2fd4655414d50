"""Render bench.json as Markdown tables for the documentation."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.results import BUSY, Comparison, Row, comparison_from_json


def render_markdown(path: Path) -> str:
    """The machine, then one table per comparison."""
    found = json.loads(path.read_text())
    machine = found["machine"]
    setup = f"{machine['cpu']}, {machine['cores']} cores; torch {machine['torch']}, Python {machine['python']}"
    head = f"{setup}; commit `{machine['git']}`; load of the machine at the start {found['load']:g}.\n"
    busy = "\nOther processes used the machine: these numbers are provisional and decide no target.\n"
    notes = "".join(f"\n{note}\n" for note in found.get("notes", ()))
    head += notes or (busy if found["load"] > BUSY else "")
    return head + "".join(_table(comparison_from_json(comparison)) for comparison in found["comparisons"])


def render_peers(path: Path) -> str:
    """The median time of a round, a row for dragfl's FedAvg, the bare loop and each library, a column per workload."""
    found = [comparison_from_json(comparison) for comparison in json.loads(path.read_text())["comparisons"]]
    found = [comparison for comparison in found if any(row.kind == "peer" for row in comparison.rows)]
    columns: list[dict[str, str]] = [{} for _ in found]
    for column, comparison in zip(columns, found, strict=True):
        for row in sorted(comparison.rows, key=lambda row: row.median):  # with one thread or several: the faster one
            if row.kind in ("peer", "bare") or row.name == "dragfl, fedavg":
                column.setdefault(row.name, f"{comparison.value(row)} {comparison.unit}")
    lines = [_line(["", *(f"{c.workload}: {c.title}" for c in found)]), "|" + "---|" * (len(found) + 1)]
    lines += [_line([name, *(column[name] for column in columns)]) for name in columns[0]]
    return "\n".join(lines) + "\n"


def _table(comparison: Comparison) -> str:
    heads = ["", f"median {comparison.unit}", "quartiles", *(f"/ {base}" for base in comparison.bases), "target"]
    lines = [f"\n**{comparison.workload}**: {comparison.title}; {comparison.repeats} turns\n", _line(heads)]
    lines.append("|" + "---|" * len(heads))
    scale = 1e3 if comparison.unit == "ms" else 1.0
    for row in comparison.rows:
        ratios = [f"{row.ratios[base]:.2f}" if base in row.ratios else "" for base in comparison.bases]
        digits = 1 if row.median * scale < 100 else 0
        spread = f"{row.low * scale:.{digits}f} to {row.high * scale:.{digits}f}" if row.low < row.high else "—"
        lines.append(_line([comparison.label(row), comparison.value(row), spread, *ratios, _verdict(row)]))
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in comparison.notes)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _verdict(row: Row) -> str:
    words = {base: "met" if met else "**missed**" for base, met in row.met.items()}
    verdicts = [f"≤ {limit:g} of {base}: {words[base]}" for base, limit in row.limits.items()]
    return ", ".join(verdicts) or "—"
