"""The figures of a report. Each is written as PNG (200 dpi) and PDF; the ones without data are left out.

dragfl.report.figures.draw(groups, out)     # the figures of runs
dragfl.report.figures.explain(out)          # the two that explain the attack and the dragging
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.report.extra import require
from dragfl.report.groups import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
RUN_FIGURES = ("accuracy", "loss", "bytes", "clients", "cosine", "drift")


@dataclass(frozen=True)
class Drawing:
    """A figure that has not been written yet, and its words."""

    name: str
    figure: Figure
    title: str
    caption: str  # what it shows and how to read it; true of the runs drawn
    alt: str  # for those who cannot see it


@dataclass(frozen=True)
class Written:
    """A figure on disk."""

    name: str
    png: Path
    pdf: Path
    title: str
    caption: str
    alt: str


def draw(groups: Sequence[Group], out: str | Path) -> list[Written]:
    """Draw everything the runs have data for into `out`; figures of an earlier report that no longer apply go."""
    require("matplotlib")
    from dragfl.report.figures import clients, curves, drift
    from dragfl.report.figures.style import look

    with look():
        makers = (curves.accuracy, curves.loss, curves.by_bytes, clients.heat_map, clients.cosines, drift.telemetry)
        drawings = [drawing for drawing in (make(groups) for make in makers) if drawing is not None]
        written = [save(drawing, Path(out)) for drawing in drawings]
    for name in set(RUN_FIGURES) - {figure.name for figure in written}:
        for ending in (".png", ".pdf"):
            (Path(out) / f"{name}{ending}").unlink(missing_ok=True)
    return written


def explain(out: str | Path) -> list[Written]:
    """Draw what an attack does to a mean, and what dragging does to an update, from the library's own arithmetic."""
    require("matplotlib")
    from dragfl.report.figures import arrows
    from dragfl.report.figures.style import look

    with look():
        return [save(drawing, Path(out)) for drawing in (arrows.attack(), arrows.dragging())]


def save(drawing: Drawing, out: Path) -> Written:
    """PNG and PDF without dates in them, so that the same runs give the same bytes."""
    from dragfl.report.files import whole

    png, pdf = out / f"{drawing.name}.png", out / f"{drawing.name}.pdf"
    with whole(png) as draft:
        drawing.figure.savefig(draft, dpi=DPI, metadata={"Software": None})
    with whole(pdf) as draft:
        drawing.figure.savefig(draft, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return Written(drawing.name, png, pdf, drawing.title, drawing.caption, drawing.alt)
