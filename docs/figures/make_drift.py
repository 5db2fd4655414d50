"""Draw docs/figures/drift-plane.png and drift-drag.png from runs of the engine.

    python docs/figures/make_drift.py

The clients are those of examples/quadratic.py: three quadratics in the plane, and a pair on the line.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Ellipse, Rectangle

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "examples"))

from quadratic import LOCAL, START, THREE, Array, Objective, experiment, fedavg_point, optimum, path  # noqa: E402

BLACK, BLUE, GREEN, ORANGE, VERMILLION, PINK, GREY = (
    "#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#777777",
)  # fmt: skip
ROUNDS = 60
BEST, FIXED_POINT = optimum(THREE), fedavg_point(THREE, LOCAL["lr"], LOCAL["local_steps"])
DRAG: dict[str, Any] = {"name": "drag", "c": 0.1, "alpha": 0.5}
FADING: dict[str, Any] = {**DRAG, "c": {"kind": "linear", "start": 0.1, "end": 0.0, "rounds": 30}}
LINES: dict[str, tuple[dict[str, Any], str, str]] = {
    "FedAvg": ({"name": "fedavg"}, BLACK, "-"),
    "DRAG, c = 0.1": (DRAG, VERMILLION, "-"),
    "DRAG, c to 0": (FADING, VERMILLION, "--"),
    "SCAFFOLD": ({"name": "scaffold"}, BLUE, "-"),
    "FedDyn": ({"name": "feddyn", "strength": 0.5}, ORANGE, "-"),
    "Mime": ({"name": "mime", "momentum": 0.0}, GREEN, "-"),
    "SCAFFOLD × DRAG": ({"correction": "scaffold", "aggregate": DRAG}, PINK, "-"),
}


def main() -> None:
    paths = {
        name: path(experiment(THREE, START, algorithm, clients=LOCAL, rounds=ROUNDS))
        for name, (algorithm, _, _) in LINES.items()
    }
    figure = Figure(figsize=(10.2, 3.3), layout="constrained", facecolor="white")
    clients, plane, distance = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 1.3))
    draw_clients(clients)
    draw_plane(plane, paths)
    draw_distance(distance, paths)
    figure.savefig(HERE / "drift-plane.png", dpi=130, metadata={"Software": None})

    figure = Figure(figsize=(10.2, 2.9), layout="constrained", facecolor="white")
    draw_constant(*figure.subplots(1, 2, width_ratios=(1.0, 1.25)))
    figure.savefig(HERE / "drift-drag.png", dpi=150, metadata={"Software": None})


DARK = "#B87F00"  # a darker orange for text
ZOOM = (-0.55, 1.05, -0.75, 0.85)  # left, right, bottom, top of the middle subplot


def draw_clients(ax: Axes) -> None:
    """Draw level lines of the three objectives, the start, and the frame of the next subplot."""
    for m, (A, b) in enumerate(THREE, start=1):
        steep, axes = np.linalg.eigh(np.asarray(A))
        angle = float(np.degrees(np.arctan2(axes[1, 0], axes[0, 0])))
        for level in (0.1, 0.3):
            width, height = 2 * np.sqrt(2 * level / steep)
            ax.add_patch(Ellipse(b, width, height, angle=angle, facecolor="none", edgecolor=GREY, linewidth=0.8))
        ax.text(b[0], b[1], f"{m}", ha="center", va="center", fontsize=8.5, color=GREY)
    left, right, bottom, top = ZOOM
    ax.add_patch(
        Rectangle((left, bottom), right - left, top - bottom, facecolor="none", edgecolor=BLACK, linewidth=0.8)
    )
    ax.plot(*START, "o", color=BLACK, markersize=4)
    ax.annotate("start", START, (5, -9), textcoords="offset points", fontsize=8.5)
    mark(ax, size=9)
    ax.set(xlim=(-3.0, 4.6), ylim=(-3.6, 4.0))
    ax.set_aspect("equal")
    set_title(ax, "Three clients, level lines")


def draw_plane(ax: Axes, paths: dict[str, Array]) -> None:
    """Draw the path of the model near the optimum."""
    for name in ("FedDyn", "SCAFFOLD", "Mime", "DRAG, c = 0.1", "FedAvg"):
        _, colour, dash = LINES[name]
        ax.plot(*paths[name].T, dash, color=colour, linewidth=1.3, marker=".", markersize=4)
    mark(ax, size=14)
    ax.annotate("optimum", BEST, (-0.38, 0.17), fontsize=8.5, arrowprops=ARROW)
    ax.annotate("fixed point\nof FedAvg", FIXED_POINT, (0.76, -0.16), fontsize=8.5, arrowprops=ARROW)
    ax.text(0.42, -0.45, "DRAG, c = 0.1", color=VERMILLION, fontsize=8.5)
    ax.text(0.60, 0.52, "FedDyn", color=DARK, fontsize=8.5)
    ax.text(-0.53, -0.68, "Mime", color=GREEN, fontsize=8.5)
    ax.text(0.13, -0.19, "SCAFFOLD", color=BLUE, fontsize=8.5)
    left, right, bottom, top = ZOOM
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=(-0.5, 0, 0.5, 1), yticks=(-0.5, 0, 0.5))
    ax.set_aspect("equal")
    set_title(ax, "The model, round by round")


ARROW = {"arrowstyle": "-", "color": GREY, "linewidth": 0.7, "shrinkB": 5}


def mark(ax: Axes, size: float) -> None:
    """Draw a star at the optimum and a square at the fixed point of FedAvg."""
    ax.plot(*FIXED_POINT, "s", color=BLACK, markersize=size / 2, markerfacecolor="white", zorder=5)
    ax.plot(*BEST, "*", color=BLACK, markersize=size, markerfacecolor="#F0E442", zorder=6)


def draw_distance(ax: Axes, paths: dict[str, Array]) -> None:
    """Draw the distance to the optimum by round on a log axis."""
    places = {"FedAvg": (32.5, 0.13), "DRAG, c = 0.1": (43, 0.95), "DRAG, c to 0": (18.6, 0.13)}
    for name, points in paths.items():
        _, colour, dash = LINES[name]
        label = name if name not in places else None
        ax.semilogy(np.linalg.norm(points - BEST, axis=1), dash, color=colour, linewidth=1.6, label=label)
    for name, (x, y) in places.items():
        ax.text(x, y, name.removeprefix("DRAG, ") if y < 0.5 else name, color=LINES[name][1], fontsize=8.5)
    ax.legend(loc=(0.50, 0.42), fontsize=8.5, frameon=False, labelcolor="linecolor", handlelength=1.4)
    ax.set_xlabel("round", fontsize=8.5)
    ax.set(xlim=(0, ROUNDS), ylim=(1e-6, 5.0))
    set_title(ax, "Distance to the optimum")


PAIR: list[Objective] = [([[1.0]], [1.0]), ([[1.0]], [-1.0])]


def run_pair(c: Any, rounds: int) -> Array:
    algorithm = {"name": "drag", "c": c}
    return path(experiment(PAIR, [-2.0], algorithm, clients={"local_steps": 5, "lr": 0.05}, rounds=rounds))[:, 0]


def draw_constant(constant: Axes, vanishing: Axes) -> None:
    """Draw DRAG on the line: its fixed point is 2 c / (1 - 2 c); with c going to 0 it converges to the optimum."""
    for c, colour in ((0.0, BLACK), (0.1, BLUE), (0.2, VERMILLION), (0.3, PINK)):
        constant.plot(run_pair(c, 40), color=colour, linewidth=1.6)
        if c < 0.25:
            fixed_point = 2 * c / (1 - 2 * c)
            constant.axhline(fixed_point, color=colour, linewidth=0.7, linestyle=":")
            constant.text(40.6, fixed_point, f"c = {c:g}: {fixed_point:.3g}", color=colour, fontsize=8.5, va="center")
    constant.text(40.6, 2.3, "c = 0.3\ndiverges", color=PINK, fontsize=8.5, va="center")
    constant.set(xlim=(0, 40), ylim=(-2.1, 2.6))
    constant.set_ylabel("model θ; the optimum is 0", fontsize=8.5)
    set_title(constant, "DRAG, c constant")

    rounds = 120
    linear = {"kind": "linear", "start": 0.2, "end": 0.0, "rounds": 60}
    fading = {"kind": "inverse_sqrt", "start": 0.2, "period": 1.0}
    vanishing.plot(run_pair(0.2, rounds), color=VERMILLION, linewidth=1.6)
    vanishing.plot(run_pair(fading, rounds), color=GREEN, linewidth=1.6)
    vanishing.plot(run_pair(linear, rounds), color=BLUE, linewidth=1.6)
    vanishing.axhline(0.0, color=BLACK, linewidth=0.7, linestyle=":")
    vanishing.axvline(60, color=BLUE, linewidth=0.7, linestyle=":")
    vanishing.text(64, 0.60, "c = 0.2", color=VERMILLION, fontsize=8.5)
    vanishing.text(22.5, 0.38, "c linear, 0 at round 60", color=BLUE, fontsize=8.5)
    vanishing.text(66, -0.14, "c = 0.2 / √(1 + t)", color=GREEN, fontsize=8.5)
    vanishing.set(xlim=(0, rounds), ylim=(-0.5, 0.75))
    set_title(vanishing, "DRAG, c to 0 (enlarged)")
    for ax in (constant, vanishing):
        ax.set_xlabel("round", fontsize=8.5)


def set_title(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=9, fontweight="bold")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


if __name__ == "__main__":
    main()
