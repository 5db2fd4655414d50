"""The figures that a tracker gets at the end of a run; none without matplotlib."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

from dragfl.data.plots import BLUE, GREY, STYLE, plot_label_distribution
from dragfl.runs.directory import Run
from dragfl.runs.simulation import Simulation

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def draw_figures(simulation: Simulation, run: Run) -> Mapping[str, Figure]:
    """Accuracy and loss by round, and the label distribution of the clients."""
    if find_spec("matplotlib") is None:
        return {}
    worker = simulation.federation.worker
    title = f"{worker.dataset.name}, {worker.split.clients:,} clients"
    return {
        "accuracy": _plot_accuracy(run),
        "label_distribution": plot_label_distribution(worker.dataset, worker.split, title),
    }


def _plot_accuracy(run: Run) -> Figure:
    """Test accuracy above test loss, of the evaluated rounds; a target is dotted."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(5.0, 3.6), layout="constrained")
        above, below = figure.subplots(2, 1, sharex=True)
        for ax, name in ((above, "accuracy"), (below, "loss")):
            ax.plot(*zip(*run.values(name), strict=True), color=BLUE, marker=".", markersize=3, linewidth=1.2)
            ax.set_ylabel(f"test {name}")
            ax.spines[["top", "right"]].set_visible(False)
            ax.grid(color="#eeeeee", linewidth=0.6)
        if (target := run.spec.get("target_accuracy")) is not None and run.target_on == "test":
            above.axhline(target, color=GREY, linestyle=":", linewidth=1)
        above.set_ylim(0, 1)
        figure.suptitle(run.name, x=0.02, ha="left", fontsize=9.5, fontweight="bold")
        below.set_xlabel("round")
    return figure
