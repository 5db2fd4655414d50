"""Draw docs/figures/attack-plane.png: the updates of every attack, and the step of every rule, in the plane.

python docs/figures/make_attacks.py
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from dragfl import attacks, functional
from dragfl.rng import rng

HERE = Path(__file__).resolve().parent
Rows = np.ndarray
HONEST, F = 12, 6  # honest clients, attackers
BOX = (-1.35, 2.0, -1.3, 2.05)  # left, right, bottom, top of every subplot
GREY, SENT = "#9A9A9A", "#D55E00"

STYLE = {  # rule -> (colour-blind safe colour, marker)
    "mean": ("#000000", "o"),
    "median": ("#E69F00", "s"),
    "trimmed_mean": ("#56B4E9", "D"),
    "krum": ("#CC79A7", "v"),
    "geometric_median": ("#F0E442", "P"),
    "fltrust": ("#0072B2", "^"),
    "br_drag": ("#009E73", "*"),
}


def main() -> None:
    draws = rng(11, "plane")
    clean = np.array([0.9, 0.5]) + draws.normal(size=(HONEST + F, 2)) * [0.5, 0.55]
    honest, own = clean[:HONEST], clean[HONEST:]
    root = np.array([0.8, 0.25])
    figure = Figure(figsize=(11.0, 7.35), facecolor="white")
    grid = figure.subplots(3, 5)
    figure.subplots_adjust(left=0.012, right=0.988, top=0.97, bottom=0.05, wspace=0.05, hspace=0.10)
    for ax, (title, sent) in zip(grid.flat, attack_updates(honest, own, root).items(), strict=True):
        draw_attack(ax, title, honest, sent, root)
    figure.legend(handles=make_legend(), loc="lower center", ncols=10, frameon=False, fontsize=8.5, handletextpad=0.2)
    figure.savefig(HERE / "attack-plane.png", dpi=130, metadata={"Software": None})


def rules(root: Rows) -> dict[str, Callable[[Rows], Rows]]:
    """The rules that are drawn, by name."""
    every: dict[str, Callable[[Rows], Rows]] = {
        "mean": functional.mean,
        "median": functional.median,
        "trimmed_mean": lambda X: functional.trimmed_mean(X, F),
        "krum": lambda X: functional.krum(X, F),
        "geometric_median": functional.geometric_median,
        "fltrust": lambda X: functional.fltrust(X, root),
        "br_drag": lambda X: functional.br_drag(X, root, 0.25),
    }
    return every


def attack_updates(honest: Rows, own: Rows, root: Rows) -> dict[str, Rows]:
    """Title of the subplot -> updates of the attackers."""

    def trimmed(sent: Rows) -> Rows:
        return functional.trimmed_mean(np.vstack([honest, sent]), F)

    def draws() -> np.random.Generator:
        return rng(2, "attack")

    return {
        "no attack": own,
        "random_scaling, variance 3": attacks.random_scaling(own, 3.0, draws()),
        "sign_flip": attacks.sign_flip(own),
        "gaussian, std 1": attacks.gaussian(own, 1.0, draws()),
        "free_rider, zero": attacks.free_rider(own),
        "alie, z 1.5": attacks.alie(honest, F, 1.5),
        "alie, white box, trimmed mean": attacks.alie(honest, F, aggregate=trimmed),
        "ipm, ε 0.5": attacks.ipm(honest, F, 0.5),
        "min_max": attacks.min_max(honest, F),
        "min_sum": attacks.min_sum(honest, F),
        "mimic": attacks.mimic(honest, F, z=np.array([0.8, -0.6])),
        "fang_krum": attacks.fang_krum(honest, F, own=own),
        "fang_trim": attacks.fang_trim(honest, F, draws(), own=own),
        "adaptive_fltrust": attacks.adaptive_fltrust(honest, F, root, draws(), own=own, rounds=60),
        "adaptive_br_drag, c 0.25": attacks.adaptive_br_drag(honest, F, root, 0.25, "across"),
    }


def draw_attack(ax: Axes, title: str, honest: Rows, sent: Rows, root: Rows) -> None:
    """Draw the updates of honest clients and attackers, and the step of each rule."""
    left, right, bottom, top = BOX
    ax.axhline(0.0, color="#DDDDDD", linewidth=0.8, zorder=0)
    ax.axvline(0.0, color="#DDDDDD", linewidth=0.8, zorder=0)
    ax.annotate("", root, (0.0, 0.0), arrowprops={"arrowstyle": "->", "color": "#777777", "linewidth": 1.1}, zorder=1)
    ax.scatter(*honest.T, s=15, color=GREY, linewidths=0, zorder=2)
    shown = np.clip(sent, (left + 0.12, bottom + 0.12), (right - 0.12, top - 0.12))
    ax.scatter(*shown.T, s=38, marker="x", color=SENT, linewidths=1.7, zorder=6)
    copies = len(sent) if np.ptp(sent, axis=0).max() < 1e-9 else 1
    if copies > 1:
        ax.annotate(
            f"×{copies}", shown[0], (-6, -9), textcoords="offset points", ha="right", fontsize=8, color=SENT, zorder=7
        )
    for name, rule in rules(root).items():
        colour, marker = STYLE[name]
        place = np.clip(rule(np.vstack([honest, sent])), (left, bottom), (right, top))
        size = {"*": 130, "v": 120}.get(marker, 60)  # Krum selects an update: larger, to be seen behind it
        ax.scatter(*place, s=size, marker=marker, color=colour, edgecolors="white", linewidths=0.7, zorder=5)
    ax.set(xlim=(left, right), ylim=(bottom, top), xticks=[], yticks=[], aspect="equal")
    ax.set_title(title, fontsize=8.8, loc="left", pad=3, fontweight="bold" if title == "no attack" else None)
    ax.spines[:].set_color("#BBBBBB")


def make_legend() -> list[Line2D]:
    def mark(marker: str, colour: str, label: str, size: float) -> Line2D:
        return Line2D([], [], linestyle="", marker=marker, color=colour, label=label, markersize=size)

    points = [mark("o", GREY, "honest", 4), mark("x", SENT, "sent by attackers", 6)]
    points.append(mark(r"$\rightarrow$", "#777777", "root update", 11))
    words = {"br_drag": "BR-DRAG", "fltrust": "FLTrust", "krum": "Krum"}
    for name, (colour, marker) in STYLE.items():
        size = 10 if marker == "*" else 6.5
        points.append(mark(marker, colour, words.get(name, name.replace("_", " ")), size))
    return points


if __name__ == "__main__":
    main()
