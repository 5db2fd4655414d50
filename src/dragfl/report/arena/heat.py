"""A heat map of defences by attacks, with its numbers in the cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from textwrap import wrap

from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from dragfl.report.arena.names import wrapped
from dragfl.report.figures.style import INK, WIDTH, canvas

GAP = 0.22  # between the columns of attacks and those beside them, in cells
ROW = 0.27  # inches
UPRIGHT = 11  # up to so many columns have their names upright
DARK = 0.42  # below this luminance numbers are white


@dataclass(frozen=True)
class Square:
    """One cell: a value gives it a colour, None leaves it hatched."""

    value: float | None
    text: str
    framed: bool = False
    crossed: bool = False  # a diverged run


@dataclass(frozen=True)
class Column:
    name: str
    apart: bool = False  # stands off the one before
    bold: bool = False


def heat_map(
    rows: Sequence[str],
    columns: Sequence[Column],
    squares: Callable[[int, int], Square],
    *,
    colours: Colormap,
    norm: Normalize,
    scale: str,
    foot: str,
    percent: bool = False,
) -> Figure:
    """Draw it; `scale` names the colours, `foot` explains the marks below."""
    names = [_lines(column.name, len(columns) <= UPRIGHT) for column in columns]
    head = 0.13 * max(name.count("\n") + 1 for name in names) if len(columns) <= UPRIGHT else 0.85
    below = 0.13 * (len(wrap(foot, 125)) + 1) if foot else 0.0
    figure = canvas(0.35 + head + below + ROW * len(rows), WIDTH * max(1.0, (len(columns) + 3) / (UPRIGHT + 3)))
    ax = figure.subplots()
    places, x = [], 0.0
    for column in columns:
        x += GAP if column.apart else 0.0
        places.append(x)
        x += 1.0
    for i in range(len(rows)):
        for j, left in enumerate(places):
            _square(ax, left, i, squares(i, j), colours, norm, bold=columns[j].bold)
    ax.set_xlim(-0.02, x + 0.02)
    ax.set_ylim(len(rows) + 0.02, -0.02)
    ax.xaxis.tick_top()
    ax.set_xticks([left + 0.5 for left in places], names)
    ax.set_yticks([i + 0.5 for i in range(len(rows))], rows)
    for label, column in zip(ax.get_xticklabels(), columns, strict=True):
        label.set_fontweight("bold" if column.bold else "normal")
        if len(columns) > UPRIGHT:
            label.set(rotation=50, ha="left", rotation_mode="anchor")
    ax.tick_params(length=0, pad=3, labelcolor=INK)
    ax.tick_params(axis="y", labelsize=8)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=ax, pad=0.015, aspect=22, fraction=0.03)
    bar.set_label(scale, fontsize=7.5)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=2, labelsize=7)
    if percent:
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    if foot:
        figure.supxlabel("\n".join(wrap(foot, 125)), x=0.01, ha="left", fontsize=7, color="#555555")
    return figure


def _square(ax: Axes, left: float, row: int, square: Square, colours: Colormap, norm: Normalize, *, bold: bool) -> None:
    """One cell; a hatched one has nothing to show but its words."""
    box = {"xy": (left + 0.015, row + 0.02), "width": 0.97, "height": 0.96}
    if square.value is None:
        ax.add_patch(Rectangle(**box, facecolor="#F7F7F7", edgecolor="#DDDDDD", hatch="////", linewidth=0))  # type: ignore[arg-type]
        ink = "#6A6A6A"
    else:
        colour = colours(norm(square.value))
        ax.add_patch(Rectangle(**box, facecolor=colour, linewidth=0))  # type: ignore[arg-type]
        ink = "white" if luminance(colour) < DARK else "#111111"
    if square.framed:
        inner = {"xy": (left + 0.05, row + 0.1), "width": 0.9, "height": 0.8}
        ax.add_patch(Rectangle(**inner, fill=False, edgecolor=ink, linewidth=1.1))  # type: ignore[arg-type]
    text = square.text + (" ×" if square.crossed else "")
    ax.text(
        left + 0.5, row + 0.52, text.strip(), ha="center", va="center", fontsize=7.5, color=ink,
        fontweight="bold" if bold else "normal",
    )  # fmt: skip


def luminance(colour: tuple[float, ...]) -> float:
    """How light a colour looks, from 0 to 1."""
    return 0.2126 * colour[0] + 0.7152 * colour[1] + 0.0722 * colour[2]


def _lines(name: str, upright: bool) -> str:
    """A name on as many lines as it has words, where columns are narrow."""
    return wrapped(name) if upright else name
