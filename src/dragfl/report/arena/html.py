"""The HTML page of an arena."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dragfl.report.arena import tables
from dragfl.report.arena.results import WITHOUT_ATTACK, ArenaResults
from dragfl.report.figures.files import FIGURES, require_packages
from dragfl.report.groups import Group
from dragfl.report.html import compare_settings, environment, write_template
from dragfl.report.labels import flatten, format_value, short_name
from dragfl.runs.directory import SPEC


def write_arena_page(results: ArenaResults, out: Path, *, title: str | None = None) -> Path:
    """Draw the figures into out/figures, then write out/arena.html with them inside."""
    require_packages("matplotlib", "jinja2")
    from dragfl.report.arena import figures
    from dragfl.report.figures.style import plot_style

    sections: list[dict[str, Any]] = []
    with plot_style():
        for i, matrix in enumerate(results.matrices):
            suffix = f"-{i + 1}" if len(results.matrices) > 1 else ""
            drawings = figures.draw_matrix(matrix, suffix)
            sections.append(
                {
                    "heading": matrix.heading,
                    "figures": drawings,
                    "accuracy": tables.format_matrix(matrix),
                    "detection": tables.format_detection(matrix),
                    "strengths": tables.format_strengths(matrix),
                }
            )
        cost = figures.draw_cost(results)
        drawn = [*(drawing for section in sections for drawing in section["figures"]), *([cost] if cost else [])]
        for drawing in drawn:
            drawing.save(out / FIGURES)
    for path in (out / FIGURES).glob("arena-*"):  # of an earlier page
        if path.stem not in {drawing.name for drawing in drawn}:
            path.unlink()
    groups = [Group(defence, attack, "", entry.runs) for defence, attack, entry in results.entries if entry.runs]
    return write_template(
        out / "arena.html",
        "arena/arena.html.j2",
        title=title or tables.arena_title(results),
        facts=tables.arena_facts(results),
        data={"runs": [], "figures": {}},
        headlines=tables.arena_headlines(results),
        note=results.note,
        sections=sections,
        missing=tables.missing_cells(results),
        cost=cost,
        no_times=results.no_times,
        common=compare_settings(groups)[0],
        parts=_part_settings(results),
        environment=environment(groups),
        specs=[str(group.runs[0].path / SPEC) for group in groups[:3]],
    )


def _part_settings(results: ArenaResults) -> list[tuple[str, str]]:
    """(name, settings) of the aggregate of each defence and of each attack, as in the specs of the runs."""
    found: dict[str, str] = {}
    for defence, attack, entry in results.entries:
        for run in entry.runs[:1]:
            found.setdefault(short_name(defence), _format_settings(run.spec["algorithm"]["aggregate"]))
            if attack != WITHOUT_ATTACK:
                tuned = {entry.strength["setting"]: "tuned"} if entry.strength else {}
                found.setdefault(short_name(attack), _format_settings(run.spec["attack"] | tuned))
    return list(found.items())


def _format_settings(table: Mapping[str, Any]) -> str:
    settings = [f"{key}={format_value(value)}" for key, value in flatten(table).items() if key != "name"]
    return ", ".join(settings) or "no settings"
