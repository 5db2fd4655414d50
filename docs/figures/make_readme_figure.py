"""Draw docs/figures/readme.png from the run directories of a demo. First `make demo`, then:

    python docs/figures/make_readme_figure.py [DEMO_FOLDER]

Two runs are controls that are not part of the demo: FedAvg with a larger server learning rate, and training on the
root data only (`root_only`) with the server momentum of `cone_drag`. They are run in DEMO_FOLDER/controls with the TOML
files of the demo.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

import dragfl

HERE = Path(__file__).resolve().parent
BLACK, BLUE, GREEN, ORANGE = "#000000", "#0072B2", "#009E73", "#E69F00"
VERMILLION, PURPLE, GREY = "#D55E00", "#B0418A", "#777777"
TARGET = 0.85

Line = tuple[Path, str, str, str, tuple[float, float]]  # run, label, colour, dash, position of the label


def main(demo: Path) -> None:
    runs, controls = demo / "runs", demo / "controls"
    run_controls(demo, controls)
    figure = Figure(figsize=(10.0, 3.1), layout="constrained", facecolor="white")
    drift, attacked, clients = figure.subplots(1, 3, width_ratios=(1.0, 1.0, 1.1))
    draw_curves(
        drift,
        "Label-sorted clients, no attack",
        (runs / "drift-fedavg", "FedAvg", BLACK, "-", (62, 0.76)),
        (controls / "fedavg-lr3", "FedAvg, server lr 3", GREY, "--", (8, 0.33)),
        (runs / "drift-drag", "DRAG", BLUE, "-", (62, 0.96)),
    )
    drift.annotate("", (15.5, 0.57), (22, 0.38), arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.7})
    draw_curves(
        attacked,
        "Six of 20 clients flip the sign",
        (runs / "sign_flip-fedavg", "FedAvg", BLACK, "-", (26, 0.03)),
        (runs / "sign_flip-fltrust", "FLTrust", ORANGE, "-", (36, 0.31)),
        (controls / "root-only-momentum", "root data only", GREY, "--", (2, 0.96)),
        (runs / "sign_flip-br_drag", "BR-DRAG", GREEN, "-", (41, 0.66)),
        (runs / "sign_flip-cone_drag", "Cone DRAG", PURPLE, "-", (62, 0.965)),
    )
    attacked.annotate("", (15, 0.84), (10, 0.95), arrowprops={"arrowstyle": "-", "color": GREY, "linewidth": 0.7})
    draw_divergence(figure, clients, runs / "sign_flip-br_drag")
    figure.savefig(HERE / "readme.png", dpi=150, metadata={"Software": None})


def run_controls(demo: Path, controls: Path) -> None:
    """Run the two controls; finished runs are not repeated."""
    longer = dragfl.load(demo / "drift.toml", "algorithm.name=fedavg", "algorithm.server_lr=3.0", "name=fedavg-lr3")
    dragfl.run(longer, controls / "fedavg-lr3")
    momentum = ("algorithm.name=root_only", "algorithm.server=momentum", "algorithm.server.beta=0.9")
    root_only = dragfl.load(demo / "attack.toml", *momentum, "name=root-only-momentum")
    dragfl.run(root_only, controls / "root-only-momentum")


def draw_curves(ax: Axes, title: str, *lines: Line) -> None:
    """Draw test accuracy by round."""
    for path, name, colour, dash, (x, y) in lines:
        rounds, accuracy = zip(*dragfl.load_run(path).accuracy, strict=True)
        ax.plot(rounds, accuracy, dash, color=colour, linewidth=1.8)
        ax.text(x, y, name, color=colour, fontsize=8.5)
    ax.axhline(TARGET, color=GREY, linewidth=0.7, linestyle=":")
    ax.set(ylim=(0.0, 1.0), xlim=(0, None))
    ax.set_xlabel("round", fontsize=8.5)
    ax.set_ylabel("test accuracy", fontsize=8.5)
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    set_title(ax, title)


def draw_divergence(figure: Figure, ax: Axes, path: Path) -> None:
    """Draw the divergence of every client in every round, attackers first."""
    log = dragfl.load_run(path).clients
    attacker = dict(zip(log[0]["client"], log[0]["attacker"], strict=True))
    order = sorted(attacker, key=lambda m: (not attacker[m], m))
    table = np.array([[line["divergence"][line["client"].index(m)] for line in log] for m in order], dtype=float)
    box = (0.5, len(log) + 0.5, len(order) - 0.5, -0.5)
    image = ax.imshow(table, aspect="auto", cmap="viridis_r", interpolation="nearest", vmin=0.0, extent=box)
    attackers = sum(attacker.values())
    ax.axhline(attackers - 0.5, color="white", linewidth=2.0)
    ax.set_yticks([(attackers - 1) / 2, (attackers + len(order) - 1) / 2], ["attackers", "honest"])
    ax.set_xlabel("round", fontsize=8.5)
    bar = figure.colorbar(image, ax=ax, pad=0.02)
    bar.set_label("divergence λ", fontsize=8.5)
    bar.ax.tick_params(labelsize=8)
    bar.outline.set_visible(False)
    set_title(ax, "BR-DRAG under sign flip: divergence")
    ax.spines[["left", "bottom"]].set_visible(False)
    ax.tick_params(length=0)
    ax.get_yticklabels()[0].set_color(VERMILLION)


def set_title(ax: Axes, title: str) -> None:
    ax.set_title(title, loc="left", fontsize=9, fontweight="bold")
    ax.spines[["top", "right"]].set_visible(False)
    ax.tick_params(labelsize=8)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
