"""One self-contained HTML page: no network, no scripts, figures inside."""

from __future__ import annotations

import shlex
from base64 import b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragfl.report import words
from dragfl.report.extra import require
from dragfl.report.files import whole
from dragfl.report.groups import Group, seed
from dragfl.report.settings import machine, settings
from dragfl.report.table import grid, note, ranked, rounds_run, rows

TEMPLATE = "page.html.j2"
FIGURES = "figures"


def write_page(groups: Sequence[Group], out: Path, *, title: str | None = None) -> Path:
    """Draw the figures into out/figures, then write out/report.html with them inside."""
    require("matplotlib", "jinja2")
    from dragfl.report import figures

    page = out / "report.html"
    drawn = figures.draw(groups, out / FIGURES)
    explained = figures.explain(out / FIGURES)
    text = render(groups, drawn, explained, title=title)
    with whole(page) as draft:
        draft.write_text(text, encoding="utf-8")
    return page


def render(
    groups: Sequence[Group],
    drawn: Sequence[object],
    explained: Sequence[object],
    *,
    title: str | None = None,
) -> str:
    """The page as text."""
    by_group = rows(groups)
    shown = ranked(by_group)
    headings, lines = grid(shown)
    return fill(
        TEMPLATE,
        title=title or words.title(groups),
        summary=words.summary(groups, by_group),
        headings=headings,
        lines=lines,
        rows=shown,
        note=note(shown),
        figures=drawn,
        explained=explained,
        labels=[group.label for group in groups],
        settings=settings(groups),
        machine=machine(groups),
        runs=[_run_line(group, i) for group in groups for i in range(len(group.runs))],
    )


def fill(template: str, **values: Any) -> str:
    """A template of this package with its values; everything from the runs is escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    engine = Environment(
        loader=PackageLoader("dragfl.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    engine.filters |= {"data_uri": data_uri, "shell": shlex.quote}
    return engine.get_template(template).render(**values)


def data_uri(png: Path) -> str:
    return "data:image/png;base64," + b64encode(png.read_bytes()).decode("ascii")


def _run_line(group: Group, i: int) -> dict[str, str]:
    """A run in the list at the end: what, which seed, how it ended, and the file that repeats it."""
    run = group.runs[i]
    ended = (run.result or {}).get("stopped_by", "finished")
    state = {"rounds": "finished", "target": "stopped at the target"}.get(str(ended), str(ended))
    return {
        "label": group.label,
        "name": run.name,
        "seed": str(seed(run)),
        "state": state if run.finished else f"unfinished, {rounds_run(run)} rounds so far",
        "spec": str(run.path / "spec.toml"),
    }
