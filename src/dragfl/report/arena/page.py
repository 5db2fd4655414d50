"""One self-contained page of an arena: where each defence breaks, who is detected, and what it costs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dragfl.report.arena import words
from dragfl.report.arena.matrix import CLEAN, Results
from dragfl.report.arena.names import attack_name, defence_name
from dragfl.report.extra import require
from dragfl.report.figures import save
from dragfl.report.files import whole
from dragfl.report.groups import Group
from dragfl.report.labels import flatten, text
from dragfl.report.page import FIGURES, fill
from dragfl.report.settings import machine, settings

PAGE, TEMPLATE = "arena.html", "arena/arena.html.j2"


def write_page(results: Results, out: Path, *, title: str | None = None) -> Path:
    """Draw the figures into out/figures, then write out/arena.html with them inside."""
    require("matplotlib", "jinja2")
    from dragfl.report.arena import curves, maps
    from dragfl.report.figures.style import look

    parts: list[dict[str, Any]] = []
    with look():
        for i, matrix in enumerate(results.matrices):
            suffix = f"-{i + 1}" if len(results.matrices) > 1 else ""
            drawings = [*maps.maps(matrix, suffix), curves.roc_curves(matrix, suffix)]
            headings, lines = words.grid(matrix)
            parts.append({
                "heading": words.heading(matrix),
                "verdict": words.verdict(matrix),
                "figures": [save(drawing, out / FIGURES) for drawing in drawings if drawing is not None],
                "headings": headings,
                "lines": lines,
            })  # fmt: skip
        drawn = curves.cost(results)
        cost = save(drawn, out / FIGURES) if drawn is not None else None
    groups = [Group(d, a, "", entry.runs) for d, a, entry in results.entries if entry.runs]
    page = fill(
        TEMPLATE,
        title=title or words.title(results),
        summary=words.summary(results),
        note=results.note,
        parts=parts,
        deviations=len(results.seeds) > 1,
        reasons=words.reasons(results),
        cost=cost,
        settings=settings(groups).common if groups else [],
        parts_set=parts_set(results),
        machine=machine(groups),
        specs=[str(group.runs[0].path / "spec.toml") for group in groups[:3]],
    )
    with whole(out / PAGE) as draft:
        draft.write_text(page, encoding="utf-8")
    return out / PAGE


def parts_set(results: Results) -> list[tuple[str, str]]:
    """Each defence's rule and each attack with its settings, as the runs had them."""
    found: dict[str, str] = {}
    for defence, attack, entry in results.entries:
        for run in entry.runs[:1]:
            found.setdefault(defence_name(defence), _told(run.spec["algorithm"]["aggregate"]))
            if attack != CLEAN:
                found.setdefault(attack_name(attack), _told(run.spec["attack"]))
    return list(found.items())


def _told(table: dict[str, Any]) -> str:
    return ", ".join(f"{key}={text(value)}" for key, value in flatten(table).items() if key != "name") or "no settings"
