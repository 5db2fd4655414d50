"""Draw the figures of docs/fixed-points.md from docs/theory/fixed-points.json and the closed forms.

python docs/figures/make_fixed_points.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, PercentFormatter

from dragfl import attacks, functional
from dragfl.report.figures.style import (
    BLACK,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    VERMILLION,
    add_colour_bar,
    new_figure,
    plot_style,
)
from dragfl.theory.br_drag_bound import largest_pull, tolerated_share
from dragfl.theory.fixed_points import circle_radius, divergence_boundary, line_fixed_point
from dragfl.theory.scaffold_fixed_point import noise_floor, stationary_distance

FOLDER = Path(__file__).resolve().parents[1] / "theory"
RED = "#FBE3D6"  # the area of divergence
MEASURED: dict[str, Any] = {"linestyle": "none", "markersize": 4, "markeredgecolor": "white", "markeredgewidth": 0.6}
PLAIN = FuncFormatter(lambda value, _: f"{value:g}")


def main() -> None:
    found = json.loads((FOLDER / "fixed-points.json").read_text())
    with plot_style():
        for name, figure in {
            "phase-diagram": phase_diagram(found),
            "scaffold-noise": scaffold_noise(found),
            "br-drag-bound": br_drag_bound(),
            "schedule-rate": schedule_rate(found),
        }.items():
            figure.savefig(FOLDER / f"{name}.png", dpi=160, metadata={"Software": None})


def phase_diagram(found: dict[str, Any]) -> Figure:
    figure = new_figure(2.75, 9.6)
    angle, ratio, radius = figure.subplots(1, 3, width_ratios=(1.25, 1.0, 1.0))
    draw_angles(angle, found)
    draw_ratios(ratio, found)
    draw_radius(radius, found)
    return figure


def draw_angles(ax: Axes, found: dict[str, Any]) -> None:
    """The distance as a heat map, the boundary of divergence and its measured points."""
    heat, s = found["distances"], found["distances"]["s"]
    edge = divergence_boundary(s)
    image = ax.pcolormesh(
        heat["c"], heat["angle"], heat["median"], cmap="Blues", vmin=0.0, vmax=1.0, shading="gouraud", rasterized=True
    )
    ax.axvspan(edge, 0.5, color=RED, zorder=0.5, linewidth=0)
    ax.axvline(edge, color=VERMILLION)
    ax.axvline(0.25, color=BLACK, linewidth=1.0, linestyle=(0, (4, 2)))
    ax.plot([row["c"] for row in found["angles"]["plane"]], [row["angle"] for row in found["angles"]["plane"]], "o",
            color=VERMILLION, clip_on=False, zorder=5, **MEASURED)  # fmt: skip
    ax.plot(found["angles"]["line"], 0.0, "s", color=BLACK, clip_on=False, zorder=6, **MEASURED)
    ax.text(0.463, 45, "diverges", rotation=90, ha="center", va="center", color=VERMILLION)
    ax.text(0.243, 88, "boundary on a line", rotation=90, ha="right", va="top", fontsize=7.5)
    ax.set(xlim=(0.01, 0.5), ylim=(0, 90), xlabel="c", yticks=(0, 30, 60, 90))
    ax.set_ylabel("angle between the offsets, degrees")
    ax.set_title(f"Plane, s = {s:g}, α = 1")
    ax.grid(visible=False)
    add_colour_bar(ax, image, "median distance, up to 1")


def draw_ratios(ax: Axes, found: dict[str, Any]) -> None:
    """The boundary of divergence over s / alpha, on a line and elsewhere."""
    k = np.geomspace(0.02, 20.0, 200)
    edge = np.array([divergence_boundary(each, 1.0) if each <= 1 else divergence_boundary(1.0, 1 / each) for each in k])
    ax.fill_betweenx(k, edge, 0.55, color=RED, linewidth=0)
    ax.fill_betweenx(k, 0.25, edge, color="#F1F1F1", linewidth=0)
    ax.plot(edge, k, color=VERMILLION)
    ax.axvline(0.25, color=BLACK, linewidth=1.0, linestyle=(0, (4, 2)))
    rows = found["ratios"]
    y = [row["s"] / row["alpha"] for row in rows]
    ax.plot([row["plane"] for row in rows], y, "o", color=VERMILLION, label="4 clients, d = 2", zorder=5, **MEASURED)
    hollow = {**MEASURED, "markersize": 7, "markerfacecolor": "none", "markeredgecolor": PURPLE}
    ax.plot([row["ten"] for row in rows], y, "D", label="10 clients, d = 10", zorder=6, **hollow)
    ax.text(0.225, 0.03, "stays near", ha="right", fontsize=7.5)
    ax.text(0.36, 0.03, "excursions", ha="center", fontsize=7.5)
    ax.text(0.535, 4.0, "diverges", color=VERMILLION, ha="right", fontsize=7.5)
    ax.set(xlim=(0.1, 0.55), ylim=(0.02, 20.0), yscale="log", xlabel="c", ylabel="k = s / α")
    ax.yaxis.set_major_formatter(PLAIN)
    ax.set_title("Boundary of divergence")
    ax.legend(fontsize=7, loc="upper right", handletextpad=0.1, borderaxespad=0.2)


def draw_radius(ax: Axes, found: dict[str, Any]) -> None:
    """The distance to the optimum over c, on a line and in the plane."""
    c, rows = np.geomspace(0.008, 0.24, 60), found["circles"]
    ax.plot(c, [line_fixed_point(each) for each in c], color=BLACK)
    ax.plot(rows["c"], rows["line"], "s", color=BLACK, label="line", **MEASURED)
    for row, colour, marker in zip(rows["plane"], (BLUE, GREEN, ORANGE), "ov^", strict=True):
        s, alpha = row["s"], row["alpha"]
        ax.plot(c, [circle_radius(each, s, alpha) for each in c], color=colour, linewidth=1.2)
        ax.plot(rows["c"], row["radius"], marker, color=colour, label=f"plane, s = {s:g}, α = {alpha:g}", **MEASURED)
    ax.set(xscale="log", yscale="log", xlim=(0.008, 0.25), ylim=(0.0012, 2.0), xlabel="c")
    ax.set_xticks((0.01, 0.03, 0.1, 0.25))
    ax.xaxis.set_major_formatter(PLAIN)
    ax.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    ax.yaxis.set_major_formatter(PLAIN)
    ax.set_ylabel("distance to the optimum")
    ax.set_title("Formulas and measured points")
    ax.legend(fontsize=7, loc="upper left", handletextpad=0.1, borderaxespad=0.2)


def scaffold_noise(found: dict[str, Any]) -> Figure:
    figure = new_figure(2.75, 7.0)
    floor, edge = figure.subplots(1, 2)
    c = np.linspace(0.0, 0.4, 41)
    s, clients = 0.1, 10
    ax = floor
    ax.plot(c, [stationary_distance(each, s, clients) * clients * (2 - s) / s for each in c], color=BLACK,
            label="formula, d → ∞")  # fmt: skip
    ax.plot(c, [noise_floor(each, clients) for each in c], color=BLACK, linewidth=0.9, linestyle=(0, (4, 2)),
            label="formula, s → 0")  # fmt: skip
    for row, colour, marker in zip(found["floors"], (VERMILLION, ORANGE, GREEN, BLUE), "sov^", strict=True):
        ax.plot(row["c"], row["ratio"], marker, color=colour, label=f"d = {row['d']}", **MEASURED)
    ax.axvline(0.25, color=VERMILLION, linewidth=0.8, linestyle=(0, (1, 2)))
    ax.text(0.255, 75, "line: diverges", color=VERMILLION, fontsize=7)
    ax.set(yscale="log", ylim=(0.8, 110), xlim=(-0.01, 0.41), xlabel="c")
    ax.yaxis.set_major_formatter(PLAIN)
    ax.set_ylabel("noise floor / noise floor of FedAvg")
    ax.set_title("SCAFFOLD × DRAG, s = 0.1, 10 clients")
    ax.legend(fontsize=7, loc="upper left", handletextpad=0.3, borderaxespad=0.2)
    ax = edge
    k = np.linspace(0.03, 1.0, 100)
    border = [divergence_boundary(each) for each in k]
    ax.fill_betweenx(k, border, 0.55, color=RED, linewidth=0)
    ax.plot(border, k, color=VERMILLION)
    ax.axvline(0.25, color=BLACK, linewidth=1.0, linestyle=(0, (4, 2)))
    rows = found["attraction"]
    for key, colour, marker, label in (("line", BLACK, "s", "d = 1"), ("two", VERMILLION, "o", "d = 2")):
        ax.plot([row[key] for row in rows], [row["s"] for row in rows], marker, color=colour, label=label, **MEASURED)
    ax.set(xlim=(0.2, 0.55), ylim=(0.0, 1.05), xlabel="c", ylabel="s")
    ax.text(0.54, 0.5, "diverges (d ≥ 2)", color=VERMILLION, ha="right", fontsize=7.5)
    ax.set_title("With noise: where the optimum attracts")
    ax.legend(fontsize=7, loc="upper right", handletextpad=0.1, borderaxespad=0.2)
    return figure


HONEST = {"x = 0.05": [0.05], "x = 0.2": [0.2], "x = 0.5": [0.5], "x = −0.2": [-0.2]}


def br_drag_bound() -> Figure:
    figure = new_figure(2.75, 7.0)
    pull, share = figure.subplots(1, 2)
    beta = np.linspace(0.0, 1.0, 101)
    for c, colour in ((0.0, BLACK), (0.05, PURPLE), (0.1, VERMILLION), (0.2, BLUE), (0.25, GREEN)):
        pull.plot(beta, [largest_pull(c, each) for each in beta], color=colour, clip_on=False)
        attackers = np.arange(0, 11, 2)
        pull.plot(
            attackers / 10, [attacked(c, int(f)) for f in attackers], "o", color=colour, clip_on=False, **MEASURED
        )
        text = "c ≥ 0.25" if c == 0.25 else f"c = {c:g}"
        pull.text(1.02, largest_pull(c, 1.0), text, color=colour, va="center", fontsize=7.5)
    pull.set(xlim=(0, 1), ylim=(0, 1), xlabel="share of attackers β", ylabel="pull against the root, over |r|")
    pull.xaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    pull.set_title("Largest pull, and the attack")
    c = np.linspace(0.0, 0.3, 301)
    for (label, cosines), colour in zip(HONEST.items(), (VERMILLION, BLUE, GREEN, GREY), strict=True):
        share.plot(c, [tolerated_share(each, cosines) for each in c], color=colour, label=f"honest {label}")
    share.axhline(0.4, color=BLACK, linewidth=0.8, linestyle=(0, (1, 2)))
    share.text(0.298, 0.41, "4 of 10", ha="right", fontsize=7.5)
    share.set(xlim=(0, 0.3), ylim=(0, 1.02), xlabel="c", ylabel="tolerated share of attackers β*")
    share.yaxis.set_major_formatter(PercentFormatter(1.0, symbol=" %"))
    share.set_title("Step still along the root")
    share.legend(fontsize=7, loc="upper left", borderaxespad=0.2)
    return figure


def attacked(c: float, f: int) -> float:
    """What f of ten updates from the white-box attack pull against the root; the others are at a right angle to it."""
    r = np.array([0.0, 2.0])
    honest = np.tile([1.0, 0.0], (10 - f, 1))
    sent = np.concatenate([honest, attacks.adaptive_br_drag(np.ones((1, 2)), f, r, c)]) if f else honest
    return float((10 - f) / 10 * c - functional.br_drag(sent, r, c) @ r / 4.0)


CURVES = {
    "covered": ("c, η ∝ 1/√T, covered", BLUE, "o"),
    "anytime": ("c, η ∝ 1/√(1 + t/4096), covered", GREEN, "D"),
    "large": ("c ∝ 1/√T from 0.2, η ∝ 1/√T", ORANGE, "v"),
    "constant": ("c = 0.2, η ∝ 1/√T", VERMILLION, "^"),
    "line": ("the same on a line, d = 1", BLACK, "s"),
}


def schedule_rate(found: dict[str, Any]) -> Figure:
    figure = new_figure(3.0, 7.4)
    rate, floor = figure.subplots(1, 2, width_ratios=(1.25, 1.0))
    rows = found["rates"]
    T = np.array(rows["horizons"])
    for name, (label, colour, marker) in CURVES.items():
        curve = rows["curves"][name]
        rate.plot(T, curve["mean"], color=colour, marker=marker, markersize=3.5, label=f"{label}: {curve['slope']:.2f}")
    rate.plot(T, rows["bound"], color=BLUE, linewidth=1.0, linestyle=(0, (4, 2)), label="bound of the first")
    reference = 0.4 * rows["curves"]["covered"]["mean"][0] * (T / T[0]) ** -0.5
    rate.plot(T, reference, color=GREY, linewidth=1.0, linestyle=(0, (1, 2)), label="1/√T: −0.50")
    rate.set(xscale="log", yscale="log", xlabel="rounds T", ylabel="mean of |∇f|² over T rounds")
    rate.set_xticks(T, [f"{each // 1024}k" for each in T])
    rate.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    rate.set_ylim(0.0008, 20)
    rate.set_title("Tilted wells: slope over T")
    rate.legend(fontsize=6.5, loc="upper right", borderaxespad=0.1, ncols=1, labelspacing=0.25)
    c = np.geomspace(0.008, 0.2, 50)
    floor.plot(c, [(0.1 * line_fixed_point(each)) ** 2 for each in c], color=BLACK, linewidth=1.0)
    for row, colour, marker in zip([r for r in found["gradient_floors"] if r["over"] == "c"], (BLACK, BLUE), "so",
                                   strict=True):  # fmt: skip
        label = f"d = {row['d']}: slope {row['slope']:.2f}"
        floor.plot(row["values"], row["mean"], marker, color=colour, label=label, **MEASURED)
    floor.set(xscale="log", yscale="log", xlabel="c", ylabel="|∇f|² at the end")
    floor.set_xticks((0.01, 0.02, 0.05, 0.1, 0.2))
    floor.xaxis.set_major_formatter(PLAIN)
    floor.xaxis.set_minor_formatter(FuncFormatter(lambda *_: ""))
    floor.set_title("Floor for a constant c")
    floor.legend(fontsize=7, loc="upper left")
    return figure


if __name__ == "__main__":
    main()
