"""A bench.json as the tables of a page of the documentation."""

from __future__ import annotations

import json
from pathlib import Path

from benchmarks.results import BUSY, Panel, Row, panel_of


def page(path: Path) -> str:
    """The machine, then a table a panel."""
    found = json.loads(path.read_text())
    machine = found["machine"]
    told = f"{machine['cpu']}, {machine['cores']} cores; torch {machine['torch']}, Python {machine['python']}"
    head = f"{told}; commit `{machine['git']}`; load of the machine at the start {found['load']:g}.\n"
    busy = "\nOthers were at work on the machine: these numbers are provisional, no target is decided by them.\n"
    notes = "".join(f"\n{note}\n" for note in found.get("notes", ()))  # by whoever measured
    head += notes or (busy if found["load"] > BUSY else "")
    return head + "".join(_table(panel_of(panel)) for panel in found["panels"])


def _table(panel: Panel) -> str:
    heads = ["", f"median {panel.unit}", "quartiles", *(f"/ {base}" for base in panel.bases), "target"]
    lines = [f"\n**{panel.work}**: {panel.title}; {panel.repeats} turns\n", _line(heads)]
    lines.append("|" + "---|" * len(heads))
    scale = 1e3 if panel.unit == "ms" else 1.0
    for row in panel.rows:
        ratios = [f"{row.ratios[base]:.2f}" if base in row.ratios else "" for base in panel.bases]
        digits = 1 if row.median * scale < 100 else 0
        spread = f"{row.low * scale:.{digits}f} to {row.high * scale:.{digits}f}" if row.low < row.high else "—"
        lines.append(_line([panel.label(row), panel.value(row), spread, *ratios, _verdict(row)]))
    return "\n".join(lines) + "\n" + "".join(f"\n{note}\n" for note in panel.notes)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _verdict(row: Row) -> str:
    met = {base: row.ratios[base] <= limit for base, limit in row.limits.items()}
    told = [f"≤ {row.limits[base]:g} of {base}: {'met' if good else '**missed**'}" for base, good in met.items()]
    return ", ".join(told) or "—"
