"""The figures of a report; a figure without data is left out.

dragfl.report.figures.draw_figures(groups, out)          # figures of the runs
dragfl.report.figures.draw_illustrations(groups, out)    # how attacks and DRAG work, where the runs have them
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragfl.report.figures.files import Drawing, SavedFigure, require_packages, save_figure
from dragfl.report.groups import Group

RUN_FIGURES = ("accuracy", "loss", "bytes", "clients", "cosine", "drift")
ILLUSTRATIONS = ("attack", "dragging")


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
