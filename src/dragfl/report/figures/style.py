"""One look for all figures: colours that a colour-blind reader can tell apart, and labels at the lines themselves."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from dragfl.report.groups import Group
from dragfl.report.series import Series

# Okabe and Ito, "Color universal design", 2008. Vermillion is kept for attackers, yellow is too light on white.
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE, GREY = "#0072B2", "#D55E00", "#CC79A7", "#7A7A7A"

HONEST, ATTACKER = BLUE, VERMILLION
INK, FAINT = "#222222", "#D9D9D9"
WIDTH = 7.0  # inches: the text width of a one-column page

Dash = Literal["-"] | tuple[float, tuple[float, ...]]

_HOME = {"DRAG": BLUE, "BR-DRAG": GREEN, "FedAvg": BLACK, "FLTrust": ORANGE, "SCAFFOLD": PURPLE, "FedProx": SKY}
_CYCLE = (BLUE, ORANGE, GREEN, PURPLE, SKY, BLACK, GREY, VERMILLION)
End = tuple[float, float]
DASHES: tuple[Dash, ...] = ("-", (0, (4.5, 1.8)), (0, (1.2, 1.4)), (0, (6, 1.5, 1.2, 1.5)))


def look() -> AbstractContextManager[None]:
    """The house settings of matplotlib, for a `with`; the user's own settings are left as they are."""
    return mpl.rc_context(
        {
            "font.family": "DejaVu Sans",  # comes with matplotlib: the same figure on every machine
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
            "pdf.fonttype": 42,  # text stays text
            "svg.hashsalt": "dragfl",
        }
    )


MANY = 8  # with more lines than this in a panel only the house's own are thick, and there are no bands
OWN = ("DRAG", "BR-DRAG")


@dataclass(frozen=True)
class Pen:
    colour: str
    dash: Dash
    width: float = 1.7
    band: bool = True


def pens(groups: Sequence[Group], *, apart: bool = False) -> list[Pen]:
    """A colour for each algorithm and a dash for each variant; where dashes run out, a colour for each group.

    With `apart` groups under different attacks are in different panels, so dashes are left to other settings. Where
    colours run out instead, they come again with another dash.
    """
    variants = [group.settings if apart else f"{group.against} {group.settings}" for group in groups]
    kinds = list(dict.fromkeys(variants))
    names = [group.algorithm for group in groups]
    dashes = [DASHES[kinds.index(variant) % len(DASHES)] for variant in variants]
    if len(kinds) > len(DASHES) or (len(set(names)) == 1 and len(kinds) > 1):
        names = [f"{name} {variant}" for name, variant in zip(names, variants, strict=True)]
        places = list(dict.fromkeys(names))
        dashes = [DASHES[places.index(name) // len(_CYCLE) % len(DASHES)] for name in names]
    colours = _colours(list(dict.fromkeys(names)))
    if len(kinds) == 1:
        dashes = [DASHES[colours[name][1] % len(DASHES)] for name in names]
    crowded = len(groups) > MANY * (len({group.against for group in groups}) if apart else 1)
    return [
        Pen(colours[name][0], dash, (2.3 if group.algorithm in OWN else 1.1) if crowded else 1.7, not crowded)
        for name, dash, group in zip(names, dashes, groups, strict=True)
    ]


def _colours(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """(colour, how often it was taken before) of each name.

    Known algorithms have a colour of their own, others take what is left, in order, and then all of them again.
    """
    chosen = {name: (_HOME[name], 0) for name in names if name in _HOME}
    taken = {colour for colour, _ in chosen.values()}
    places = [(colour, 0) for colour in _CYCLE if colour not in taken]
    rest = [name for name in names if name not in chosen]
    places += [(_CYCLE[i % len(_CYCLE)], 1 + i // len(_CYCLE)) for i in range(len(rest))]
    return chosen | dict(zip(rest, places, strict=False))


def canvas(height: float, width: float = WIDTH) -> Figure:
    """An empty figure that belongs to nobody: no pyplot, so nothing is kept and threads do not meet."""
    return Figure(figsize=(width, height), layout="constrained")


def count_axis(ax: Axes, label: str = "round") -> None:
    """An axis of rounds: whole numbers, in steps people count in."""
    ax.set_xlabel(label)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=8, steps=[1, 2, 5, 10]))


def log_axis(ax: Axes, low: float, high: float) -> None:
    """A logarithmic y axis with plain numbers on it, and with more of them where it spans little."""
    ax.set_yscale("log")
    if high < 200 * low:
        ax.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        ax.yaxis.set_minor_formatter(NullFormatter())
    if low > 1e-4 and high < 1e5:
        ax.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))


def plot_series(ax: Axes, line: Series, pen: Pen) -> None:
    """Mean, band of the seeds, and thin lines for what only some seeds have."""
    marker = "o" if len(line.x) == 1 else ""
    (drawn,) = ax.plot(line.x, line.mean, color=pen.colour, linestyle=pen.dash, marker=marker, markersize=4)
    drawn.set(linewidth=pen.width, zorder=3 + pen.width / 10)
    if pen.band and line.low != line.high:
        ax.fill_between(line.x, line.low, line.high, color=pen.colour, alpha=0.16, linewidth=0, zorder=2)
    for points in line.loose:
        x, y = zip(*points, strict=True)
        marker = "o" if len(x) == 1 else ""
        ax.plot(x, y, color=pen.colour, linewidth=0.8, linestyle=pen.dash, marker=marker, markersize=3, zorder=2.5)


def label_ends(
    ax: Axes, ends: Sequence[End | None], pens: Sequence[Pen], names: Sequence[str], *, target: float | None = None
) -> None:
    """Write each name at the right edge, as near to the end (x, y) of its line as the neighbours allow.

    Where lines are many, or some stop early, a piece of the line stands before its name.
    The names are not part of the line's data, so the axes must have their final limits and place when this is called.
    """
    low, high = ax.get_ylim()
    shown = [
        (name, pen, (end[0], min(max(end[1], low), high)))
        for name, pen, end in zip(names, pens, ends, strict=True)
        if end is not None
    ]
    if target is not None:
        shown.append((f"target {100 * target:g} %", Pen(INK, (0, (1, 2))), (ax.get_xlim()[1], target)))
    gap = 1.35 * 8.5 / 72 / (ax.get_position().height * ax.figure.get_figheight())  # type: ignore[union-attr]
    placed = spread({i: _fraction(ax, *end) for i, (_, _, end) in enumerate(shown)}, gap)
    near = ax.get_xlim()[1] - 0.1 * (ax.get_xlim()[1] - ax.get_xlim()[0])
    crowded = any(not pen.band for pen in pens) or any(end[0] < near for _, _, end in shown)
    for i, (name, pen, end) in enumerate(shown):
        if crowded:
            _sample(ax, placed[i], pen)
            ax.text(1.115, placed[i], name, color=pen.colour, va="center", transform=ax.transAxes)
        if end[0] < near:  # a line that stopped early: a leader across the figure would pass for data
            continue
        ax.annotate(
            "" if crowded else name,
            xy=end,
            xytext=(1.035, placed[i]),
            textcoords=("axes fraction", "axes fraction"),
            color=pen.colour,
            va="center",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": pen.colour,
                "linewidth": 0.7,
                "alpha": 0.55,
                "linestyle": "-" if crowded else pen.dash,
                "shrinkA": 1,
                "shrinkB": 2,
                "relpos": (0, 0.5),
            },
        )


def _sample(ax: Axes, y: float, pen: Pen) -> None:
    """A piece of the line at the right edge."""
    piece = Line2D((1.04, 1.10), (y, y), color=pen.colour, linestyle=pen.dash, linewidth=pen.width, clip_on=False)
    piece.set_transform(ax.transAxes)
    ax.add_artist(piece)
    piece.set_clip_on(False)


def _fraction(ax: Axes, x: float, y: float) -> float:
    return float(ax.transAxes.inverted().transform(ax.transData.transform((x, y)))[1])


def spread(wanted: dict[int, float], gap: float) -> dict[int, float]:
    """Places at least `gap` apart, in the wanted order, as a group centred where its members wanted to be."""
    clusters: list[tuple[list[int], float]] = []  # (members from low to high, centre)
    for i in sorted(wanted, key=lambda k: (wanted[k], -k)):
        clusters.append(([i], min(max(wanted[i], 0.0), 1.0)))
        while len(clusters) > 1:
            (low, a), (high, b) = clusters[-2:]
            if b - a >= gap * (len(low) + len(high)) / 2:
                break
            both = low + high
            centre = sum(min(max(wanted[k], 0.0), 1.0) for k in both) / len(both)
            clusters[-2:] = [(both, _inside(centre, gap * (len(both) - 1) / 2))]
    return {
        k: centre + gap * (place - (len(members) - 1) / 2)
        for members, centre in clusters
        for place, k in enumerate(members)
    }


def _inside(centre: float, half: float) -> float:
    """Keep a cluster within the height of the axes while it fits."""
    return 0.5 if half > 0.5 else min(max(centre, half), 1.0 - half)
