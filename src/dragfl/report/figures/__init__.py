"""The figures of a report; a figure without data is left out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragfl.report.figures.files import KINDS, Drawing, require_packages
from dragfl.report.groups import Group
from dragfl.report.theory import theory_values


def draw_figures(groups: Sequence[Group], out: Path, kinds: Sequence[str] = ("png",)) -> dict[str, Drawing]:
    """Draw every figure that the runs have data for, by name; remove files of an earlier report that are not written.

    The illustrations are drawn where they apply: "attack" if a run has attackers, "dragging" if a run measures
    divergence.
    """
    require_packages("matplotlib")
    from dragfl.report.figures import clients, curves, drift, illustrations, theory
    from dragfl.report.figures.style import plot_style

    attacked = any(group.attack for group in groups)
    dragged = any("divergence" in line for group in groups for run in group.runs for line in run.clients)
    found = theory_values(groups)
    with plot_style():
        drawings = {
            "accuracy": curves.draw_accuracy(groups),
            "clients": clients.draw_clients(groups),
            "cosine": clients.draw_cosines(groups),
            "loss": curves.draw_loss(groups),
            "bytes": curves.draw_accuracy(groups, by_bytes=True),
            "drift": drift.draw_drift(groups),
            "theory": theory.draw_region(found) if found else None,
            "theory-bound": theory.draw_bounds(found),
            "attack": illustrations.draw_attack() if attacked else None,
            "dragging": illustrations.draw_dragging() if dragged else None,
        }
        for name, drawing in drawings.items():
            wanted = kinds if drawing is not None else ()
            for kind in set(KINDS).difference(wanted):
                (out / f"{name}.{kind}").unlink(missing_ok=True)
            if drawing is not None:
                drawing.save(out, wanted)
    return {name: drawing for name, drawing in drawings.items() if drawing is not None}
