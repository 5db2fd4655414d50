"""What `dragfl theory` has found for the runs of a report."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dragfl.report.groups import Group

COLUMNS = ("run", "c", "x = η L U", "Γ", "bound", "measured", "Theorem 1", "to change")


def theory_values(groups: Sequence[Group]) -> list[tuple[str, dict[str, Any]]]:
    """(label, content of theory.json) of the first run of each group that has one."""
    found = ((group.label, [run.theory for run in group.runs if run.theory]) for group in groups)
    return [(label, values[0]) for label, values in found if values]


def theory_table(found: Sequence[tuple[str, dict[str, Any]]]) -> dict[str, Any] | None:
    """The rows of the page's table and its notes; None without a run that has been assessed."""
    if not found:
        return None
    notes = list(dict.fromkeys(note for _, values in found for note in values["notes"]))
    return {"columns": COLUMNS, "rows": [_row(label, values) for label, values in found], "notes": notes}


def _row(label: str, values: dict[str, Any]) -> list[str]:
    bound, measured = values["bound_measured"], values["measurement"]["mean_squared_gradient"]
    return [
        label,
        f"{values['setting']['c']:g}",
        f"{values['x']:.3g}",
        f"{values['gamma']['repaired']:.3g}",
        f"{bound['total']:.3g}" if bound else "none",
        f"{measured:.3g}",
        values["verdict"],
        "; ".join(values["changes"]) or "nothing",
    ]
