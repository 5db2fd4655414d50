"""The figures of a report, each as PNG (200 dpi) and PDF; a figure without data is left out.

dragfl.report.figures.draw_figures(groups, out)          # figures of the runs
dragfl.report.figures.draw_illustrations(groups, out)    # how attacks and DRAG work, where the runs have them
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.errors import SpecError
from dragfl.report.groups import Group

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DPI = 200
RUN_FIGURES = ("accuracy", "loss", "bytes", "clients", "cosine", "drift")
ILLUSTRATIONS = ("attack", "dragging")


@dataclass(frozen=True)
class Drawing:
    """A matplotlib figure with its texts."""

    name: str  # of the files
    figure: Figure
    title: str
    caption: str


@dataclass(frozen=True)
class SavedFigure:
    """The files of a figure with its texts."""

    name: str
    png: Path
    pdf: Path
    title: str
    caption: str


def require_packages(*modules: str) -> None:
    """Raise an error that names the extra to install if one of these modules is missing."""
    missing = [name for name in modules if find_spec(name) is None]
    if missing:
        raise SpecError(
            f"report: figures need {' and '.join(missing)}, not installed: pip install 'dragfl[report]' "
            "(the tables of `dragfl.report.summarize_runs` do not need it)"
        )


def draw_figures(groups: Sequence[Group], out: str | Path) -> list[SavedFigure]:
    """Draw every figure that the runs have data for; remove figures of an earlier report that no longer apply."""
    require_packages("matplotlib")
    from dragfl.report.figures import clients, curves, drift
    from dragfl.report.figures.style import plot_style

    with plot_style():
        drawings = [
            curves.draw_accuracy(groups),
            curves.draw_loss(groups),
            curves.draw_accuracy_by_bytes(groups),
            clients.draw_clients(groups),
            clients.draw_cosines(groups),
            drift.draw_drift(groups),
        ]
        return _save_figures(drawings, Path(out), RUN_FIGURES)


def draw_illustrations(groups: Sequence[Group], out: str | Path) -> list[SavedFigure]:
    """Draw the effect of an attack on the mean if a run has attackers, and DRAG if a run measures divergence."""
    require_packages("matplotlib")
    from dragfl.report.figures import illustrations
    from dragfl.report.figures.style import plot_style

    attacked = any(group.attack for group in groups)
    dragged = any("divergence" in line for group in groups for run in group.runs for line in run.clients)
    with plot_style():
        drawings = [
            illustrations.draw_attack() if attacked else None,
            illustrations.draw_dragging() if dragged else None,
        ]
        return _save_figures(drawings, Path(out), ILLUSTRATIONS)


def _save_figures(drawings: Sequence[Drawing | None], out: Path, names: Sequence[str]) -> list[SavedFigure]:
    """Save these figures and remove the other files of these names."""
    saved = [save_figure(drawing, out) for drawing in drawings if drawing is not None]
    for name in set(names) - {figure.name for figure in saved}:
        for ending in (".png", ".pdf"):
            (out / f"{name}{ending}").unlink(missing_ok=True)
    return saved


def save_figure(drawing: Drawing, out: Path) -> SavedFigure:
    """Write PNG and PDF without dates in them, so that the same runs produce the same bytes."""
    png, pdf = out / f"{drawing.name}.png", out / f"{drawing.name}.pdf"
    with replace_file(png) as temporary:
        drawing.figure.savefig(temporary, dpi=DPI, metadata={"Software": None})
    with replace_file(pdf) as temporary:
        drawing.figure.savefig(temporary, metadata={"CreationDate": None, "Producer": None, "Creator": None})
    return SavedFigure(drawing.name, png, pdf, drawing.title, drawing.caption)


@contextmanager
def replace_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to; it replaces `path` at the end and is removed if writing fails."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{os.getpid()}-{path.name}")  # same ending: matplotlib reads the format from it
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)
