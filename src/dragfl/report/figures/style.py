"""The common style of all figures: colour-blind safe colours, and labels next to the curves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
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

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, GREY, VERMILLION)
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
            "svg.hashsalt": "dragfl",
        }
    )


@dataclass(frozen=True)
class LineStyle:
    colour: str
    dash: Dash
    width: float = 1.7
    band: bool = True  # whether the range over seeds is drawn


def line_styles(groups: Sequence[Group], *, by_attack: bool = False) -> list[LineStyle]:
    """One colour for each algorithm and one dash pattern for each variant of it, in order of appearance.

    Where there are too many of either, and where all groups have the same algorithm, each group has a colour instead,
    and colours repeat with another dash pattern. With `by_attack`, each attack has a plot of its own, and groups that
    differ only in the attack have the same style.
    """
    variants = [group.settings if by_attack else f"{group.attack_label} {group.settings}" for group in groups]
    algorithms = list(dict.fromkeys(group.algorithm for group in groups))
    kinds = list(dict.fromkeys(variants))
    pairs = [(group.algorithm, variant) for group, variant in zip(groups, variants, strict=True)]
    if len(algorithms) == 1 or len(algorithms) > len(COLOURS) or len(kinds) > len(DASHES):
        different = list(dict.fromkeys(pairs))
        places = [divmod(different.index(pair), len(COLOURS))[::-1] for pair in pairs]
    else:
        places = [(algorithms.index(algorithm), kinds.index(variant)) for algorithm, variant in pairs]
    plots = len({group.attack_label for group in groups}) if by_attack else 1
    many = len(groups) > MANY_LINES * plots
    width = 1.1 if many else 1.7
    return [LineStyle(COLOURS[colour], DASHES[dash % len(DASHES)], width, not many) for colour, dash in places]


def new_figure(height: float, width: float = WIDTH) -> Figure:
    """An empty figure, made without pyplot, which would keep a reference to it and is not safe in threads."""
    return Figure(figsize=(width, height), layout="constrained")


def set_round_axis(ax: Axes, label: str = "round") -> None:
    """Label the x axis with whole numbers of rounds."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))


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


def plot_series(ax: Axes, series: Series, style: LineStyle) -> None:
    """Draw the mean, the range over seeds as a band, and thin lines for the parts that only some seeds have."""
    marker = "o" if len(series.x) == 1 else ""
    (line,) = ax.plot(series.x, series.mean, color=style.colour, linestyle=style.dash, marker=marker, markersize=4)
    line.set(linewidth=style.width, zorder=3 + style.width / 10)
    if style.band and series.low != series.high:
        ax.fill_between(series.x, series.low, series.high, color=style.colour, alpha=0.16, linewidth=0, zorder=2)
    for points in series.single:
        x, y = zip(*points, strict=True)
        marker = "o" if len(x) == 1 else ""
        ax.plot(x, y, color=style.colour, linewidth=0.8, linestyle=style.dash, marker=marker, markersize=3, zorder=2.5)


def label_lines(
    ax: Axes,
    ends: Sequence[tuple[float, float] | None],
    styles: Sequence[LineStyle],
    names: Sequence[str],
    *,
    target: float | None = None,
) -> None:
    """Write each name at the right edge, as near to the end (x, y) of its line as the other names allow.

    Where there are many lines, or some end early, a sample of the line is drawn before its name. The axes must have
    their final limits and position when this is called.
    """
    (left, right), (low, high) = ax.get_xlim(), ax.get_ylim()
    shown = [
        (name, style, (end[0], min(max(end[1], low), high)))
        for name, style, end in zip(names, styles, ends, strict=True)
        if end is not None
    ]
    if target is not None:
        shown.append((f"target {100 * target:g} %", LineStyle(INK, DOTTED, 0.7), (right, target)))
    gap = 1.35 * 8.5 / 72 / (ax.get_position().height * ax.figure.get_figheight())  # type: ignore[union-attr]
    to_axes = ax.transData + ax.transAxes.inverted()
    heights = spread_positions([float(to_axes.transform(end)[1]) for _, _, end in shown], gap)
    early = right - 0.1 * (right - left)
    with_samples = any(not style.band for style in styles) or any(end[0] < early for _, _, end in shown)
    for (name, style, end), y in zip(shown, heights, strict=True):
        if with_samples:
            sample = Line2D((1.04, 1.10), (y, y), color=style.colour, linestyle=style.dash, linewidth=style.width)
            sample.set_transform(ax.transAxes)
            ax.add_artist(sample).set_clip_on(False)
            ax.text(1.115, y, name, color=style.colour, va="center", transform=ax.transAxes)
        if end[0] < early:  # a connecting line across the plot could be mistaken for data
            continue
        ax.annotate(
            "" if with_samples else name,
            xy=end,
            xytext=(1.035, y),
            textcoords="axes fraction",
            color=style.colour,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": style.colour,
                "linewidth": 0.7,
                "alpha": 0.55,
                "linestyle": "-" if with_samples else style.dash,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )


def spread_positions(wanted: Sequence[float], gap: float) -> list[float]:
    """Positions in [0, 1] at least `gap` apart, in the order of the wanted ones and as near to them as possible.

    Neighbours that are too close form a cluster that is centred at the mean of their wanted positions. Positions leave
    [0, 1] only where there are too many of them.
    """
    inside = [min(max(y, 0.0), 1.0) for y in wanted]
    clusters: list[tuple[list[int], float]] = []  # (members from low to high, centre)
    for i in sorted(range(len(wanted)), key=lambda k: (wanted[k], -k)):
        clusters.append(([i], inside[i]))
        while len(clusters) > 1:
            (lower, a), (upper, b) = clusters[-2:]
            if b - a >= gap * (len(lower) + len(upper)) / 2:
                break
            both = lower + upper
            half = gap * (len(both) - 1) / 2
            centre = sum(inside[k] for k in both) / len(both)
            clusters[-2:] = [(both, 0.5 if half > 0.5 else min(max(centre, half), 1.0 - half))]
    positions = [0.0] * len(wanted)
    for members, centre in clusters:
        for place, k in enumerate(members):
            positions[k] = centre + gap * (place - (len(members) - 1) / 2)
    return positions
