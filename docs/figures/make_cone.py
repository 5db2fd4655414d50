"""Draw docs/figures/cone-plane.png and, from docs/reproduction/cone.json and cone_iid.json, cone-results.png.

python docs/figures/make_cone.py
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Wedge

HERE = Path(__file__).resolve().parent
SUMMARIES = HERE.parent / "reproduction"
BLACK, BLUE, GREEN, ORANGE, VERMILLION, PINK, GREY = (
    "#000000", "#0072B2", "#009E73", "#E69F00", "#D55E00", "#CC79A7", "#777777",
)  # fmt: skip
FIRST, SECOND, ROOT = 8.0, 140.0, 34.0  # angles of u_1, u_2 and r
HONEST, REVERSED = ((20.0, "$g_1$"), (124.0, "$g_2$")), 104.0 + 180.0  # of honest updates and of -g_3
RULES = {
    "cone": ("Cone DRAG", BLUE, "o"),
    "br50": ("BR-DRAG, c = 0.5", GREEN, "s"),
    "fltrust": ("FLTrust", ORANGE, "^"),
    "boba": ("BOBA", PINK, "D"),
    "fedavg": ("FedAvg", BLACK, "x"),
}
ATTACKS = {
    "none": "no attack",
    "random_scaling": "random scaling",
    "sign_flip": "sign flip",
    "label_flip": "label flip",
    "alie": "ALIE",
    "ipm": "IPM",
    "min_max": "Min-Max",
    "mimic": "mimic",
    "adaptive_cone": "white-box\nagainst the cone",
}


def main() -> None:
    figure = Figure(figsize=(9.6, 3.5), layout="constrained", facecolor="white")
    direction, cone = figure.subplots(1, 2)
    draw_direction(direction)
    draw_cone(cone)
    figure.savefig(HERE / "cone-plane.png", dpi=150, metadata={"Software": None})

    figure = Figure(figsize=(9.6, 6.4), layout="constrained", facecolor="white")
    for ax, name, title in zip(
        figure.subplots(2, 1),
        ("cone", "cone_iid"),
        ("non-IID data: labels sorted over the clients", "IID data"),
        strict=True,
    ):
        draw_results(ax, json.loads((SUMMARIES / f"{name}.json").read_text()), title)
    figure.savefig(HERE / "cone-results.png", dpi=150, metadata={"Software": None})


def at(angle: float, length: float = 1.0) -> tuple[float, float]:
    return length * float(np.cos(np.radians(angle))), length * float(np.sin(np.radians(angle)))


def arrow(ax: Axes, angle: float, label: str, colour: str, length: float = 1.0, dash: str = "-") -> None:
    style = {"arrowstyle": "-|>", "color": colour, "linewidth": 1.6, "linestyle": dash, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", at(angle, length), (0.0, 0.0), arrowprops=style)
    x, y = at(angle, length + 0.14)
    ax.text(x, y, label, color=colour, ha="center", va="center", fontsize=10)


def plain(ax: Axes, title: str) -> None:
    ax.set(xlim=(-1.75, 1.75), ylim=(-1.05, 1.25))
    ax.set_aspect("equal")
    ax.set_axis_off()
    ax.set_title(title, fontsize=10)


def draw_direction(ax: Axes) -> None:
    """BR-DRAG: g_2 and -g_3 have about the same angle to r, though one is honest and the other reversed."""
    plain(ax, "BR-DRAG compares with one direction")
    arrow(ax, ROOT, "r", BLACK, 0.85)
    for angle, label in HONEST:
        arrow(ax, angle, label, GREEN, 0.72)
    arrow(ax, REVERSED, "$-g_3$", VERMILLION, 0.6)
    for low, high, size in ((ROOT, HONEST[1][0], 0.4), (REVERSED - 360.0, ROOT, 0.4)):
        ax.add_patch(Arc((0, 0), 2 * size, 2 * size, theta1=low, theta2=high, color=GREY, linewidth=0.9))
        x, y = at((low + high) / 2, size + 0.14)
        ax.text(x, y, f"{high - low:.0f}°", color=GREY, fontsize=8.5, ha="center", va="center")
    caption(ax, "The honest $g_2$ and the reversed $-g_3$\nhave about the same angle to r.")


def draw_cone(ax: Axes) -> None:
    """Cone DRAG: honest updates are in the cone, and the reversed one is turned back."""
    plain(ax, "Cone DRAG compares with the cone of the class gradients")
    ax.add_patch(Wedge((0, 0), 1.0, FIRST, SECOND, facecolor=BLUE, alpha=0.12, linewidth=0))
    arrow(ax, FIRST, "$u_1$", BLUE)
    arrow(ax, SECOND, "$u_2$", BLUE)
    arrow(ax, ROOT, "r", BLACK, 0.85)
    for angle, label in HONEST:
        arrow(ax, angle, label, GREEN, 0.72)
    arrow(ax, REVERSED, "$-g_3$", VERMILLION, 0.6)
    arrow(ax, REVERSED - 180.0, "turned back", VERMILLION, 0.8, "--")
    caption(ax, "x is the cosine of an update with the cone, $x^-$ that of its reverse.\nThe weight is |x − $x^-$|.")


def caption(ax: Axes, text: str) -> None:
    ax.text(0.0, -0.98, text, ha="center", fontsize=8.5, color=GREY)


def final(run: dict[str, object]) -> float:
    """Mean accuracy over the last 100 rounds, in percent; a diverged run has the accuracy of chance."""
    every, accuracy = run["every"], run["accuracy"]
    assert isinstance(every, int) and isinstance(accuracy, list)
    last = accuracy[-(100 // every) :]
    return 100.0 * (float(np.mean(last)) if run["ended"] != "diverged" else float(str(run["chance"])))


def draw_results(ax: Axes, summary: dict[str, dict[str, list[dict[str, object]]]], title: str) -> None:
    """Mean over the seeds, and a thin line from the lowest to the highest."""
    curves = summary["curves"]
    attacks = [a for a in ATTACKS if any(f"{rule}-{a}" in curves for rule in RULES)]
    for i, (rule, (label, colour, marker)) in enumerate(RULES.items()):
        shift = 0.13 * (i - (len(RULES) - 1) / 2)
        for j, attack in enumerate(attacks):
            runs = [final(run) for run in curves.get(f"{rule}-{attack}", [])]
            if not runs:
                continue
            ax.plot([j + shift] * 2, [min(runs), max(runs)], color=colour, linewidth=1.0)
            name = label if j == next(k for k, a in enumerate(attacks) if curves.get(f"{rule}-{a}")) else None
            ax.plot(j + shift, np.mean(runs), marker, color=colour, markersize=6, label=name)
    root = [final(run) for run in curves["plain_root-none"]]  # better than with momentum
    ax.axhline(float(np.mean(root)), color=GREY, linewidth=0.9, linestyle="--", label="root data alone")
    ax.set_xticks(range(len(attacks)), [ATTACKS[a] for a in attacks], fontsize=8.5)
    ax.set_ylabel("test accuracy, %", fontsize=9)
    ax.set_title(title, fontsize=10, loc="left")
    ax.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(fontsize=8, ncols=6, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))


if __name__ == "__main__":
    main()
