"""Names at the ends of lines: in the right margin, or inside the plot where a line stops early."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.text import Annotation
from matplotlib.transforms import Bbox

from dragfl.report.figures.style import LABEL_SIZE, Line

GAP = 5.0  # points between the end of a line and its name
MARK = 4.0  # half the size of the mark at the end of a line, in pixels
ROW = 1.3  # distance of two names, in heights of a letter


def label_ends(figure: Figure, plots: Mapping[str, Sequence[Line]]) -> None:
    """Write the name of each line at its end. Call it last: names are placed for the limits that the axes have now."""
    labels = [
        [
            _annotate(ax, name, style.colour, (series.end[0], min(max(series.end[1], low), high)))
            for (low, high) in [ax.get_ylim()]  # a line may leave the axes
            for name, series, style in lines
            if series.end is not None
        ]
        for ax, lines in zip(figure.axes, plots.values(), strict=True)
    ]
    figure.draw_without_rendering()  # computes the layout
    for ax, names in zip(figure.axes, labels, strict=True):
        inside = [label for label in names if _fits(ax, label)]
        _place_inside(ax, inside)
        _place_in_margin(ax, [label for label in names if label not in inside])


def _annotate(ax: Axes, name: str, colour: str, end: tuple[float, float], **options: Any) -> Annotation:
    options = {"xytext": (GAP, 0), "textcoords": "offset points"} | options
    return ax.annotate(
        name, end, va="center", fontsize=LABEL_SIZE, color=colour, annotation_clip=False, zorder=5, **options
    )


def _end_pixels(ax: Axes, label: Annotation) -> tuple[float, float]:
    x, y = ax.transData.transform(label.xy)
    return float(x), float(y)


def _fits(ax: Axes, label: Annotation) -> bool:
    """Whether the line ends inside the plot, with space for the name."""
    return bool(label.get_window_extent().x1 < ax.bbox.x1)


def _place_inside(ax: Axes, labels: Sequence[Annotation]) -> None:
    """Move names of lines that stop early down or up as little as keeps them from covering other names and ends."""
    ends = [_end_pixels(ax, label) for label in labels]
    taken = [Bbox.from_extents(x - MARK, y - MARK, x + MARK, y + MARK) for x, y in ends]
    for label in labels:
        label.set(path_effects=[withStroke(linewidth=2, foreground="white")], zorder=3.9)  # below the crosses
        box = label.get_window_extent()
        moves = [0.0, *(sign * step for step in range(1, int(ax.bbox.height)) for sign in (-1.0, 1.0))]
        free = (
            move
            for move in moves
            if ax.bbox.y0 <= box.y0 + move
            and box.y1 + move <= ax.bbox.y1
            and not any(box.translated(0, move).overlaps(other) for other in taken)
        )
        move = next(free, 0.0)
        label.set_position((GAP, move * 72 / ax.figure.dpi))
        taken.append(box.translated(0, move))


def _place_in_margin(ax: Axes, labels: Sequence[Annotation]) -> None:
    """Write names in a column, as close to the ends of their lines as the height of a letter permits."""
    row = ROW * LABEL_SIZE * ax.figure.dpi / 72
    ends = [_end_pixels(ax, label) for label in labels]
    places = spread([y for _, y in ends], row, *ax.bbox.intervaly)
    far = [
        abs(place - y) > row / 4 or x < ax.bbox.x1 - 0.03 * ax.bbox.width
        for place, (x, y) in zip(places, ends, strict=True)
    ]
    for label, place, leads in zip(labels, places, far, strict=True):
        label.remove()
        leader = {"arrowstyle": "-", "color": label.get_color(), "linewidth": 0.6, "relpos": (0.0, 0.5)}
        _annotate(
            ax,
            label.get_text(),
            str(label.get_color()),
            label.xy,
            xytext=(1.03 if any(far) else 1.005, (place - ax.bbox.y0) / ax.bbox.height),
            textcoords="axes fraction",
            arrowprops=leader | {"shrinkA": 1, "shrinkB": 2} if leads else None,  # a thin line to a distant name
        )


def spread(places: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """The places moved as little as keeps them `gap` apart and, if they fit, between low and high.

    Neighbours that are too close form a block around the mean of their places.
    """
    order = sorted(range(len(places)), key=lambda i: places[i])
    blocks: list[tuple[float, list[int]]] = []  # (middle, members)

    def fit(members: Sequence[int]) -> float:
        half = gap * (len(members) - 1) / 2
        middle = sum(places[i] for i in members) / len(members)
        return max(min(middle, high - half), low + half)

    for i in order:
        block = (fit([i]), [i])
        while blocks and block[0] - blocks[-1][0] < gap * (len(block[1]) + len(blocks[-1][1])) / 2:
            members = blocks.pop()[1] + block[1]
            block = (fit(members), members)
        blocks.append(block)
    moved = list(places)
    for middle, members in blocks:
        for place, i in enumerate(members):
            moved[i] = middle + gap * (place - (len(members) - 1) / 2)
    return moved
