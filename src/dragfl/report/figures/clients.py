"""Who drifts and who attacks: the rule's own measure of every client in every round."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.image import AxesImage
from matplotlib.patches import Rectangle

from dragfl.report.figures import Drawing
from dragfl.report.figures.style import ATTACKER, GREY, HONEST, INK, WIDTH, canvas, count_axis
from dragfl.report.groups import Group, seed
from dragfl.report.series import Cells, cells, split

KEYS = ("divergence", "suspicion")
UNIT = {"divergence": "divergence λ", "suspicion": "suspicion"}
MOST_ROWS, MOST_COLUMNS = 120, 240


def heat_map(groups: Sequence[Group]) -> Drawing | None:
    """Clients by rounds, a panel for each group that measures its clients: its first finished seed."""
    picked = [(group, next((run for run in group.runs if run.finished), group.runs[0])) for group in groups]
    panels = [(group, run, found) for group, run in picked if (found := cells(run, KEYS)) is not None]
    if not panels:
        return None
    order = list(dict.fromkeys(group.algorithm for group in groups))
    panels.sort(key=lambda panel: (KEYS.index(panel[2].key), order.index(panel[0].algorithm)))
    heights = [0.55 + min(2.4, max(1.1, 0.045 * min(len(c.clients), MOST_ROWS))) for _, _, c in panels]
    wide = 2 if len(panels) > 3 else 1
    shape = [max(heights[i : i + wide]) for i in range(0, len(heights), wide)]
    figure = canvas(0.3 + sum(shape), WIDTH)
    grid = figure.subplots(len(shape), wide, squeeze=False, height_ratios=shape)
    top = {key: max([_highest(c) for _, _, c in panels if c.key == key], default=1.0) for key in KEYS}
    scales: dict[tuple[int, str], tuple[AxesImage, list[Axes]]] = {}
    for i, (ax, (group, run, found)) in enumerate(zip(grid.flat, panels, strict=False)):
        image = _panel(ax, found, top[found.key])
        which = f" (seed {seed(run)})" if len(group.runs) > 1 else ""
        ax.set_title(group.label + which)
        scales.setdefault((i // wide, found.key), (image, []))[1].append(ax)
    for (_, key), (image, axes) in scales.items():  # one scale for neighbours that share it
        bar = figure.colorbar(image, ax=axes, pad=0.015, aspect=14, shrink=0.92)
        bar.set_label(UNIT[key], fontsize=7.5)
        bar.outline.set_visible(False)
        bar.ax.tick_params(length=2)
    for ax in list(grid.flat)[len(panels) :]:
        ax.set_visible(False)
    for ax in grid[-1]:
        count_axis(ax)
    caption = _words([c for _, _, c in panels], any(len(g.runs) > 1 for g, _, _ in panels))
    return Drawing("clients", figure, "Who drifts and who attacks", caption, "Heat maps. " + caption)


def _panel(ax: Axes, found: Cells, top: float) -> AxesImage:
    value = np.array(found.value)
    attackers = found.attackers
    value, attackers = _fewer_rows(value, attackers)
    dropped = _binned(np.isinf(value).astype(float))
    value = _binned(np.where(np.isfinite(value), value, np.nan))
    first, last = found.rounds[0], found.rounds[-1]
    box = (first - 0.5, last + 0.5, len(value) - 0.5, -0.5)
    look = {"extent": box, "aspect": "auto", "interpolation": "nearest"}
    grey = np.where((dropped > 0) & np.isnan(value), 1.0, np.nan)
    ax.imshow(grey, cmap=ListedColormap([GREY]), vmin=0, vmax=1, **look)  # type: ignore[arg-type]
    image = ax.imshow(value, cmap=_colours(), vmin=0, vmax=top, **look)  # type: ignore[arg-type]
    ax.grid(False)
    ax.set_yticks([])
    count_axis(ax, "")
    ax.spines[["left", "bottom"]].set_visible(False)
    _mark(ax, attackers, len(value))
    if found.redrawn and len(found.clients) <= MOST_ROWS:
        rows, columns = zip(*found.redrawn, strict=True)
        ax.scatter([found.rounds[t] for t in columns], rows, s=4, marker="s", color=ATTACKER, linewidths=0)
    return image


def _mark(ax: Axes, attackers: int, rows: int) -> None:
    """A vermillion bar beside the attackers' rows, a thin grey one beside the others, each with its name."""
    for start, count, colour, name in (
        (0, attackers, ATTACKER, "attackers"),
        (attackers, rows - attackers, "#B5B5B5", "honest clients" if attackers else "clients"),
    ):
        if count:
            corner = (-0.018, start - 0.42)
            bar = Rectangle(
                corner, 0.008, count - 0.16, transform=ax.get_yaxis_transform(), color=colour, clip_on=False
            )
            ax.add_patch(bar)
            ax.text(
                -0.028,
                start + count / 2 - 0.5,
                name if count * 8 > rows else f"{count}",
                transform=ax.get_yaxis_transform(),
                rotation=90 if count * 3 > rows else 0,
                ha="right",
                va="center",
                fontsize=7.5,
                color=colour if colour == ATTACKER else INK,
            )
    if attackers and attackers < rows:
        ax.axhline(attackers - 0.5, color="white", linewidth=1.6)


def _colours() -> Colormap:
    """Viridis turned over: trusted light, diverging dark; none of it is the white of a client that was not asked."""
    return colormaps["viridis_r"].with_extremes(bad=(1, 1, 1, 0))


def _highest(found: Cells) -> float:
    value = np.array(found.value)
    value = value[np.isfinite(value)]
    return max(float(value.max()), 1e-6) if value.size else 1.0


def _fewer_rows(value: np.ndarray, attackers: int) -> tuple[np.ndarray, int]:
    """At most MOST_ROWS clients, evenly picked from attackers and from the others."""
    if len(value) <= MOST_ROWS:
        return value, attackers
    bad = min(attackers, max(MOST_ROWS // 4, round(MOST_ROWS * attackers / len(value))))
    good = min(MOST_ROWS - bad, len(value) - attackers)
    rows = np.concatenate(
        [
            np.linspace(0, attackers - 1, bad).round().astype(int),
            np.linspace(attackers, len(value) - 1, good).round().astype(int),
        ]
    )
    return value[rows], bad


def _binned(value: np.ndarray) -> np.ndarray:
    """Means over neighbouring rounds where there are more rounds than the figure has columns."""
    width = _bin(value.shape[1])
    if width == 1:
        return value
    padded = np.pad(value, ((0, 0), (0, -value.shape[1] % width)), constant_values=np.nan)
    parts = padded.reshape(len(value), -1, width)
    known = np.isfinite(parts)
    total = np.where(known, parts, 0.0).sum(2)
    return np.where(known.any(2), total / np.maximum(known.sum(2), 1), np.nan)


def _bin(rounds: int) -> int:
    return -(-rounds // MOST_COLUMNS)


def _words(found: Sequence[Cells], seeds: bool) -> str:
    words = "A row is a client, a column a round."
    if any(np.isnan(np.array(c.value)).any() for c in found):
        words += " Blank: the client was not sampled."
    if any(c.key == "divergence" for c in found):
        words += " Divergence λ = c (1 − cos) is how far an update is dragged to the reference: 0 not at all."
    if any(c.key == "suspicion" for c in found):
        words += " Rules without a divergence are shown by their own suspicion score."
    if any(c.attackers for c in found):
        words += " Attackers are the rows on top, marked in vermillion."
    if any(c.redrawn and len(c.clients) <= MOST_ROWS for c in found):
        words += " Attackers are drawn anew every round: a vermillion dot marks an attack."
    if any(np.isinf(np.array(c.value)).any() for c in found):
        words += " Grey: dropped, since the update was not finite."
    if any(len(c.clients) > MOST_ROWS for c in found):
        words += f" Of more than {MOST_ROWS} clients an even selection of each kind is shown."
    wide = max(_bin(len(c.rounds)) for c in found)
    if wide > 1:
        words += f" A column is the mean over up to {wide} rounds."
    return words + (" One seed of each group is shown." if seeds else "")


def cosines(groups: Sequence[Group]) -> Drawing | None:
    """How the cosines with the reference are distributed: honest clients upwards, attackers downwards."""
    panels = [(group, *parts) for group in groups if any(parts := split(group.runs, "cosine"))]
    if not panels:
        return None
    figure = canvas(0.75 + 0.95 * len(panels))
    axes = figure.subplots(len(panels), 1, sharex=True, squeeze=False)[:, 0]
    for ax, (group, honest, bad) in zip(axes, panels, strict=True):
        _mirrored(ax, np.array(honest), np.array(bad))
        ax.set_title(group.label)
        ax.tick_params(bottom=ax is axes[-1])
    axes[-1].set_xlabel("cosine between a client's update and the reference")
    both = any(bad for _, _, bad in panels)
    caption = "Share of all updates of a run by their cosine with the reference direction; each side sums to one."
    caption += " Honest clients upwards, attackers downwards." if both else ""
    caption += " Seeds are pooled." if any(len(group.runs) > 1 for group, _, _ in panels) else ""
    means = "; ".join(
        f"{group.label}: honest mean {np.mean(honest):.2f}" + (f", attackers {np.mean(bad):.2f}" if bad else "")
        for group, honest, bad in panels
        if honest
    )
    return Drawing("cosine", figure, "Cosine with the reference", caption, f"Histograms of cosines. {means}.")


def _mirrored(ax: Axes, honest: np.ndarray, bad: np.ndarray) -> None:
    edges = np.linspace(-1, 1, 61)
    for values, sign, colour, name in ((honest, 1, HONEST, "honest"), (bad, -1, ATTACKER, "attackers")):
        if values.size:
            share = np.histogram(np.clip(values, -1, 1), edges)[0] / values.size
            ax.stairs(sign * share, edges, fill=True, color=colour, alpha=0.85)
            ax.text(
                1.01,
                0.72 if sign > 0 else 0.22,
                f"{name}, {values.size:,} updates",
                transform=ax.transAxes,
                color=colour,
                fontsize=7.5,
                va="center",
            )
    ax.axhline(0, color=INK, linewidth=0.6)
    ax.axvline(0, color="#9A9A9A", linewidth=0.6, linestyle=(0, (1, 2)))
    ax.set_xlim(-1, 1)
    ax.set_yticks([])
    ax.spines[["left", "bottom"]].set_visible(False)
