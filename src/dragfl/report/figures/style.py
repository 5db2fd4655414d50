"""The common style of all figures: colour-blind safe colours, and line plots with one legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, PercentFormatter

from dragfl.report.groups import Group
from dragfl.report.series import Series

# Okabe and Ito, "Color universal design", 2008. Vermillion is the colour of attackers; yellow is too light on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7A7A7A"

HONEST, ATTACKER = BLUE, VERMILLION
INK = "#222222"
WIDTH = 7.0  # inches: the text width of a one-column page
LEGEND_ROW = 0.2  # inches
LABEL_SIZE = 7.5  # points
LABEL_ROW = 0.15  # inches

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, GREY, VERMILLION)
FAMILIES = (BLUE, ORANGE, GREEN, PURPLE, SKY)  # colours that have shades
DASHES: tuple[Dash, ...] = ("-", (0, (4.5, 1.8)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))
DOTTED: Dash = (0, (1, 2))
MANY_LINES = 8  # more lines than this in one plot are thin and have no bands


def plot_style() -> AbstractContextManager[None]:
    """The matplotlib settings of all figures as a context manager; the user's own settings stay unchanged."""
    return mpl.rc_context(
        {
            "font.family": "DejaVu Sans",  # part of matplotlib, so figures are the same on every machine
            "font.size": 8.5,
            "axes.titlesize": 9.5,
            "axes.titleweight": "bold",
            "axes.titlelocation": "left",
            "axes.labelsize": 8.5,
            "axes.labelcolor": INK,
            "axes.edgecolor": "#8A8A8A",
            "axes.linewidth": 0.7,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "axes.grid": True,
            "axes.axisbelow": True,
            "grid.color": "#ECECEC",
            "grid.linewidth": 0.7,
            "xtick.labelsize": 7.5,
            "ytick.labelsize": 7.5,
            "xtick.color": "#555555",
            "ytick.color": "#555555",
            "xtick.major.width": 0.7,
            "ytick.major.width": 0.7,
            "lines.linewidth": 1.7,
            "lines.solid_capstyle": "round",
            "legend.frameon": False,
            "figure.constrained_layout.use": True,
            "figure.facecolor": "white",
            "pdf.fonttype": 42,  # embeds text as text
        }
    )


@dataclass(frozen=True)
class LineStyle:
    colour: str
    dash: Dash
    width: float = 1.7
    band: bool = True  # whether the range over seeds is drawn


Line = tuple[str, Series, LineStyle]  # the first is the name in the legend


def shade(colour: str, level: int) -> str:
    """Level 0: the colour itself, 1: darker, 2: lighter, 3: much darker."""
    end, part = ((0.0, 0.0), (0.0, 0.45), (1.0, 0.35), (0.0, 0.65))[level]
    red, green, blue = ((1 - part) * channel + part * end for channel in to_rgb(colour))
    return to_hex((red, green, blue)).upper()


PALETTE = (*COLOURS, *(shade(colour, level) for level in (1, 2, 3) for colour in FAMILIES))


def line_styles(groups: Sequence[Group], *, by_attack: bool = False) -> list[LineStyle]:
    """A colour of its own for each group: a hue for each algorithm; a shade and a dash pattern for each variant of it.

    Where there are too many of either, where all groups have the same algorithm, and where no algorithm has variants,
    each group has one of the `PALETTE` instead, and from the ninth on another dash pattern. With `by_attack`, each
    attack has a plot of its own, and groups that differ only in the attack have the same style.
    """
    keys = [(g.algorithm, g.settings if by_attack else f"{g.attack_label} {g.settings}") for g in groups]
    different = list(dict.fromkeys(keys))
    variants: dict[str, list[str]] = {}
    for algorithm, variant in different:
        variants.setdefault(algorithm, []).append(variant)
    plots = len({group.attack_label for group in groups}) if by_attack else 1
    many = len(groups) > MANY_LINES * plots

    def style(colour: str, dash: int) -> LineStyle:
        return LineStyle(colour, DASHES[dash % len(DASHES)], 1.1 if many else 1.7, not many)

    most = max(map(len, variants.values()), default=0)
    if 1 < len(variants) <= len(FAMILIES) and 1 < most <= len(DASHES):
        hues = dict(zip(variants, FAMILIES, strict=False))
        levels = [variants[algorithm].index(variant) for algorithm, variant in keys]
        return [style(shade(hues[name], level), level) for (name, _), level in zip(keys, levels, strict=True)]
    places = [different.index(key) for key in keys]
    return [style(PALETTE[i % len(PALETTE)], i // len(COLOURS)) for i in places]


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, made without pyplot, which would keep a reference to it and is not safe in threads."""
    return Figure(figsize=(width, height), layout="constrained")


def add_colour_bar(ax: Axes, image: ScalarMappable, label: str) -> Colorbar:
    """A colour bar to the right of a heat map."""
    bar = ax.figure.colorbar(image, ax=ax, pad=0.015, aspect=20, fraction=0.03)
    bar.set_label(label, fontsize=7.5)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=7)
    return bar


def set_round_axis(ax: Axes, label: str = "round") -> None:
    """Label the x axis with whole numbers of rounds."""
    ax.set_xlabel(label)
    grid = ax.get_gridspec()
    few = grid is not None and grid.ncols > 2
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=4 if few else 8, steps=[1, 2, 5, 10]))


def set_log_axis(ax: Axes, low: float, high: float) -> None:
    """Make the y axis logarithmic with plain numbers, and with more of them where its range is small."""
    ax.set_yscale("log")
    if high < 200 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    if low > 1e-4 and high < 1e5:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def set_accuracy_axis(ax: Axes, target: float | None) -> None:
    """Make the y axis percent within 0 and 100, with a dotted line at the target accuracy if there is one."""
    ax.set_ylabel("test accuracy")
    ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    low, high = ax.get_ylim()
    if target is not None:
        low, high = min(low, target - 0.02), max(high, target + 0.02)
        ax.axhline(target, color=INK, linewidth=0.7, linestyle=DOTTED, zorder=1)
    ax.set_ylim(max(0.0, low), min(1.0, high))


def draw_lines(plots: Mapping[str, Sequence[Line]], *, height: float, columns: int = 1, share_y: bool = True) -> Figure:
    """A figure with one subplot for each title. `height` is that of a row of subplots, in inches.

    Subplots in one column have space for a name at the end of each line, which `label_ends` writes when the axes are
    complete. Several columns share one legend, with the names in the order of the ends of their lines.
    """
    columns = min(columns, len(plots))
    rows = -(-len(plots) // columns)
    ends = {name: series.end[1] for lines in plots.values() for name, series, _ in lines if series.end is not None}
    most = max(sum(series.end is not None for _, series, _ in lines) for lines in plots.values())
    needed = LEGEND_ROW * len(ends) if columns > 1 else rows * LABEL_ROW * most
    figure = new_figure(max(height * rows, needed) + 0.4)
    axes = figure.subplots(rows, columns, sharex=True, sharey=share_y, squeeze=False).flatten()
    handles = {}
    for ax, (title, lines) in zip(axes, plots.items(), strict=False):
        for name, series, style in lines:
            handles[name] = plot_series(ax, series, style)
        ax.set_title(title)
        ax.margins(x=0.01)
    for ax in axes[len(plots) :]:
        ax.remove()
    if columns > 1:
        names = sorted(ends, key=lambda name: ends[name], reverse=True)
        figure.legend([handles[name] for name in names], names, loc="outside right upper")
    return figure


def plot_series(ax: Axes, series: Series, style: LineStyle) -> Line2D:
    """Draw the mean, the range over seeds as a band, and thin lines for the parts that only some seeds have.

    A cross marks the end of a run that diverged.
    """
    marker = "o" if len(series.x) == 1 else ""
    (line,) = ax.plot(series.x, series.mean, color=style.colour, linestyle=style.dash, marker=marker, markersize=4)
    line.set(linewidth=style.width, zorder=3 + style.width / 10)
    if style.band and series.low != series.high:
        ax.fill_between(series.x, series.low, series.high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)
    for points in series.single:
        x, y = zip(*points, strict=True)
        marker = "o" if len(x) == 1 else ""
        ax.plot(x, y, color=style.colour, linewidth=0.8, linestyle=style.dash, marker=marker, markersize=3, zorder=2.5)
    for end in series.diverged:
        ax.plot(*end, color=style.colour, marker="x", markersize=6, markeredgewidth=1.5, zorder=4)
    return line
