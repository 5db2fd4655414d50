"""A line plot as plain numbers. The script of the page draws it again: in any width, with values under the pointer."""

from __future__ import annotations

import colorsys
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from matplotlib.colors import to_hex, to_rgb
from matplotlib.figure import Figure

from dragfl.report.figures.style import Line, LineStyle
from dragfl.report.series import Points, Series

MAX_POINTS = 400  # of one line
Unit = Literal["round", "bytes", "percent", "number"]


def chart_values(
    figure: Figure, plots: Mapping[str, Sequence[Line]], *, x: Unit, y: Unit, target: float | None = None
) -> dict[str, Any]:
    """The lines of the plots with the labels and limits of the axes of the figure; `x` and `y` are units."""
    return {
        "x": {"label": figure.axes[-1].get_xlabel(), "unit": x},
        "target": target,
        "plots": [
            {
                "key": key,
                "title": ax.get_title(loc="left"),
                "y": {"label": ax.get_ylabel(), "unit": y, "log": ax.get_yscale() == "log"},
                "limits": [*map(_round, ax.get_xlim()), *map(_round, ax.get_ylim())],
                "lines": [
                    {"label": name} | _style(style) | _line(series)
                    for name, series, style in lines
                    if series.end is not None
                ],
            }
            for ax, (key, lines) in zip(figure.axes, plots.items(), strict=True)
        ],
    }


def _style(style: LineStyle) -> dict[str, Any]:
    dash = "" if style.dash == "-" else " ".join(f"{2 * length:g}" for length in style.dash[1])
    return {
        "colours": [to_hex(style.colour), lighten(style.colour)],
        "dash": dash,
        "width": style.width,
        "band": style.band,
    }


def lighten(colour: str) -> str:
    """The colour on a dark page: the same hue, and different colours stay different."""
    hue, light, saturation = colorsys.rgb_to_hls(*to_rgb(colour))
    return to_hex(colorsys.hls_to_rgb(hue, 0.42 + 0.45 * light, 0.85 * saturation))


def _line(series: Series) -> dict[str, Any]:
    """The mean, the range over seeds if they differ, and the rest of the series."""
    found: dict[str, Any] = {
        "mean": _points(list(zip(series.x, series.mean, strict=True))),
        "single": [_points(points) for points in series.single],
        "diverged": _points(series.diverged),
    }
    if series.low != series.high:
        found["low"], found["high"] = (
            _points(list(zip(series.x, values, strict=True))) for values in (series.low, series.high)
        )
    return found


def _points(points: Points) -> list[list[float]]:
    """At most MAX_POINTS of them, evenly spaced, with the first and the last."""
    step = max(1.0, (len(points) - 1) / (MAX_POINTS - 1))
    kept = [round(i * step) for i in range(min(len(points), MAX_POINTS))]
    return [[_round(x), _round(y)] for x, y in (points[i] for i in kept)]


def _round(value: float) -> float:
    return float(f"{value:.6g}")
