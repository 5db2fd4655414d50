"""The region of Theorem 1 with runs in it, and its bound next to the measured gradient norms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import (
    BLACK,
    BLUE,
    COLOURS,
    GREEN,
    GREY,
    INK,
    ORANGE,
    VERMILLION,
    new_figure,
    set_log_axis,
)
from dragfl.theory.theorem import PRINTED, REPAIRED, Constants, Form, Setting, bound, largest_c, largest_x

Named = tuple[str, dict[str, Any]]  # label, content of theory.json
PAPER_C = {0.1: "paper, CIFAR-10", 0.25: "paper, EMNIST"}
LEAST_C, LEAST_X = 1e-3, 1e-3  # of the logarithmic axes
FEW = 2  # more runs than this are named in a legend


def draw_region(found: Sequence[Named]) -> Drawing:
    """Where Gamma > 0 in the plane of c and x, on plain and on logarithmic axes, with a point for each run."""
    figure = new_figure(2.9)
    plain, logarithmic = figure.subplots(1, 2, width_ratios=(1.0, 1.15))
    for ax in (plain, logarithmic):
        _draw_boundaries(ax)
    plain.set(xlim=(0, 0.034), ylim=(0, 0.135), title="The covered settings")
    plain.legend(loc="upper right", fontsize=7.5)
    largest = max([30.0, *(2 * values["x"] for _, values in found)])
    logarithmic.set(xscale="log", yscale="log", xlim=(LEAST_C, 1.0), ylim=(LEAST_X, largest), title="All settings")
    for axis in (logarithmic.xaxis, logarithmic.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    for c, name in PAPER_C.items():
        logarithmic.axvline(c, color=VERMILLION, linewidth=0.9, linestyle=(0, (4, 2)))
        style = {"color": VERMILLION, "rotation": 90, "ha": "right", "va": "bottom", "fontsize": 7}
        logarithmic.text(c * 0.97, LEAST_X * 1.3, name, **style)
    for i, (label, values) in enumerate(found):
        colour = COLOURS[i % len(COLOURS)] if len(found) > 1 else BLACK
        _draw_run(plain, logarithmic, label, values, colour)
        if len(found) <= FEW:
            _write_label(logarithmic, label, values, colour)
    if len(found) > FEW:
        handles, labels = logarithmic.get_legend_handles_labels()
        figure.legend(handles[2:], labels[2:], loc="outside lower left", ncols=2, fontsize=7)  # without the boundaries
    caption = (
        "Theorem 1 needs Γ(c, x) > 0 with x = η L U. Green: Γ > 0 with the repaired proof; dashed: as printed. No c of "
        "1/33 = 0.0303 or more is covered for any learning rate."
    )
    if found:
        caption += " Points: runs, with the largest measured L. The true x is at least as large."
    return Drawing("theory", figure, "Settings that Theorem 1 covers", caption)


def _draw_boundaries(ax: Axes) -> None:
    ax.set(xlabel="c", ylabel="x = η L U")
    for form, name, colour, dash in (
        (REPAIRED, "Γ = 0, repaired proof", GREEN, "-"),
        (PRINTED, "Γ = 0, as printed", GREY, (0, (4, 2))),
    ):
        c, x = _boundary(form)
        ax.plot(c, x, color=colour, linestyle=dash, linewidth=1.4, label=name)
        if form is REPAIRED:
            ax.fill_between(c, x, LEAST_X * 1e-3, color=colour, alpha=0.16, linewidth=0)


def _boundary(form: Form) -> tuple[np.ndarray, np.ndarray]:
    """(c, x) along Gamma = 0, from c near 0 to x near 0."""
    most = largest_x(0.0, form) or 0.0
    x = np.concatenate([np.linspace(most, 1e-3, 200), np.geomspace(1e-3, LEAST_X * 1e-3, 20)[1:]])
    return np.array([largest_c(value, form) or LEAST_C * 1e-3 for value in x]), x


def _draw_run(plain: Axes, logarithmic: Axes, label: str, values: dict[str, Any], colour: str) -> None:
    c, x = values["setting"]["c"], values["x"]
    style: dict[str, Any] = {"color": colour, "markersize": 6, "linestyle": "", "zorder": 5, "clip_on": False}
    if c <= plain.get_xlim()[1] and x <= plain.get_ylim()[1]:
        plain.plot(c, x, marker="o", **style)
    logarithmic.plot(*_place(values), marker="<" if c < LEAST_C else "o", label=label, **style)


def _place(values: dict[str, Any]) -> tuple[float, float]:
    """Where a run is on the logarithmic axes; c = 0 is at their edge."""
    return max(values["setting"]["c"], LEAST_C), max(values["x"], LEAST_X)


def _write_label(ax: Axes, label: str, values: dict[str, Any], colour: str) -> None:
    """The name of a run: to its left, or for a small c in the empty corner, with a line to its point."""
    left, row = values["setting"]["c"] > 1 / 33, len(ax.texts) - len(PAPER_C)
    ax.annotate(
        f"{label}\nc = {values['setting']['c']:g}, x = {values['x']:.3g}",
        _place(values),
        xytext=(-7, 0) if left else (1.15 * LEAST_C, 0.2 * 8**row),
        textcoords="offset points" if left else "data",
        ha="right" if left else "left",
        va="center" if left else "bottom",
        fontsize=7.5,
        color=colour,
        arrowprops=None if left else {"arrowstyle": "-", "color": colour, "linewidth": 0.7, "relpos": (0.1, 0)},
        bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 1},
    )


def draw_bounds(found: Sequence[Named]) -> Drawing | None:
    """The bound after T rounds, its parts, and the measured squared gradient norms, of each covered run."""
    covered = [(label, values) for label, values in found if values["bound"] is not None]
    if not covered:
        return None
    figure = new_figure(2.7 * len(covered) + 0.3)
    caption = (
        "The bound on the mean of |∇f|² over the first T models (repaired proof, measured constants), its parts, and "
        "|∇f|² at the measured models."
    )
    for ax, (label, values) in zip(figure.subplots(len(covered), 1, squeeze=False).flatten(), covered, strict=True):
        _draw_bound(ax, values)
        ax.set_title(label, color=INK)
        m = values["measurement"]
        ratio = values["bound_measured"]["total"] / max(m["mean_squared_gradient"], 1e-300)
        caption += f" {label}: after {m['rounds']} rounds the bound is {ratio:.3g} times the measured mean."
    figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right upper")
    return Drawing("theory-bound", figure, "Bound of Theorem 1 and measurement", caption)


def _draw_bound(ax: Axes, values: dict[str, Any]) -> None:
    setting, constants = Setting(**values["setting"]), Constants(**values["constants"])
    T = np.unique(np.geomspace(1, max(2, values["rounds"]), 80).round())
    bounds = [b for t in T if (b := bound(setting, constants, t)) is not None]
    lines = (
        ("bound", [b.total for b in bounds], BLACK, "-"),
        ("(f0 − f*) / (Γ η U T)", [b.start for b in bounds], BLUE, (0, (4, 2))),
        ("from c: a floor", [b.drag for b in bounds], VERMILLION, (0, (4, 2))),
        ("from η", [b.step + b.drift for b in bounds], ORANGE, (0, (4, 2))),
    )
    for name, y, colour, dash in lines:
        ax.plot(T, y, color=colour, linestyle=dash, label=name)
    measured = values["measurement"]
    points = [(m["round"], m["squared_gradient"]) for m in measured["models"] if m["round"] and m["squared_gradient"]]
    if points:
        ax.plot(*zip(*points, strict=True), marker="o", linestyle="", color=GREEN, markersize=5, label="measured |∇f|²")
    mean = [measured["mean_squared_gradient"]] * 2
    ax.plot([1, max(1, measured["rounds"])], mean, color=GREEN, linewidth=1.1, label="its mean")
    shown = [y for _, curve, *_ in lines for y in curve if y > 0] + [y for _, y in points]
    set_log_axis(ax, min(shown), max(shown))
    ax.set(xscale="log", xlabel="rounds T", ylabel="squared gradient norm")
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
