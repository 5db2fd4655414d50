"""Two figures that explain: what attackers do to a mean, and what dragging does to an update.

No arrow is placed by hand: the updates are given, and every other arrow is computed by `dragfl.functional`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from dragfl import functional
from dragfl.report.figures import Drawing
from dragfl.report.figures.style import ATTACKER, BLACK, BLUE, GREEN, GREY, INK, ORANGE, canvas

HONEST_UPDATES = np.array([[1.8, 0.35], [1.35, 1.25], [1.85, -0.35], [1.15, 0.55]])
CLEAN = np.array([[1.5, 0.5], [1.0, 1.1]])  # what the two attackers would have sent
FACTORS = np.array([-2.4, -2.6])  # p: negative reverses, |p| > 1 scales up
ROOT = np.array([1.45, 0.53])
C = 0.5


def attack() -> Drawing:
    """Honest updates and their mean; the same with two attackers; what BR-DRAG makes of those."""
    sent = FACTORS[:, None] * CLEAN
    together = np.concatenate([HONEST_UPDATES, sent])
    clean, poisoned = functional.mean(HONEST_UPDATES), functional.mean(together)
    saved = functional.br_drag(together, ROOT, C)
    dragged = np.concatenate([functional.br_drag(g[None], ROOT, C)[None] for g in together])
    low, high = together.min(0), together.max(0)
    widths = (high[0] + 0.8, high[0] - low[0] + 0.7, high[0] + 0.8)
    figure = canvas(7.0 / sum(widths) * (high[1] - low[1] + 0.9) + 0.35)
    axes = figure.subplots(1, 3, width_ratios=widths)
    for ax, width, start in zip(axes, widths, (-0.2, low[0] - 0.35, -0.2), strict=True):
        _frame(ax, (start, start + width), (low[1] - 0.45, high[1] + 0.45))

    axes[0].set_title("Honest clients")
    _arrows(axes[0], HONEST_UPDATES, BLACK)
    _arrow(axes[0], clean, BLUE, "mean", (5, 5))
    axes[1].set_title("Two attackers send p times their update")
    _arrows(axes[1], HONEST_UPDATES, BLACK)
    for own, g, p in zip(CLEAN, sent, FACTORS, strict=True):
        axes[1].plot([0, own[0]], [0, own[1]], color=ATTACKER, linewidth=0.9, linestyle=(0, (3, 2)))
        _arrow(axes[1], g, ATTACKER, f"p = −{abs(p):g}", (-4, -11), width=1.3)
    _arrow(axes[1], poisoned, ATTACKER, "mean of all", (2, -12))
    axes[2].set_title("BR-DRAG")
    _arrow(axes[2], saved, GREEN, "step", (5, 5))
    _arrows(axes[2], dragged[: len(HONEST_UPDATES)], BLACK)
    _arrows(axes[2], dragged[len(HONEST_UPDATES) :], ATTACKER)
    caption = (
        f"Updates of honest clients in black, of attackers in vermillion (dashed: what they would have sent). The mean "
        f"of the honest updates has length {_length(clean)}; with the attackers it shrinks to {_length(poisoned)} and "
        f"turns by {_angle(poisoned, clean):.0f}°. BR-DRAG (c = {C:g}, root update of length {_length(ROOT)}) brings "
        f"every update to at most that length and drags it to the root update: its step has length {_length(saved)} "
        f"and is {_angle(saved, clean):.0f}° from the honest mean."
    )
    return Drawing("attack", figure, "What an attack does to the mean", caption, "Arrows in the plane. " + caption)


def dragging() -> Drawing:
    """v = (1 - lambda) g + lambda |g| r/|r| for a mild and for a strong divergence."""
    box = ((-0.85, 2.2), (-0.66, 1.15))
    figure = canvas(2.45)
    axes = figure.subplots(1, 2)
    told = []
    for ax, degrees, title in zip(axes, (65.0, 122.0), ("0 < λ ≤ 1", "1 < λ ≤ 2"), strict=True):
        _frame(ax, *box)
        g = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        lam, before, after = _dragged(ax, g, r=np.array([1.15, 0.0]), c=1.0)
        ax.set_title(f"{title}, here λ = {lam:.2f}")
        told.append(f"With λ = {lam:.2f} the component along r grows from {before:.2f} to {after:.2f}.")
    caption = (
        "An update g (blue) is dragged to the reference r (orange): v (black) = (1 − λ) g + λ |g| r/|r| with "
        "λ = c (1 − cos(g, r)) and c = 1. Dots mark the components along r. " + " ".join(told).replace("-", "−")
    )
    return Drawing("dragging", figure, "What dragging does to an update", caption, "Arrows in the plane. " + caption)


def _dragged(ax: Axes, g: np.ndarray, r: np.ndarray, c: float) -> tuple[float, float, float]:
    """Draw g, r, v and the two parts of v; (lambda, component of g on r, component of v on r)."""
    lam = float(functional.divergence(g[None], r, c)[0])
    v = functional.drag(g[None], r, c)  # of one update: its dragged form
    rhat = r / np.linalg.norm(r)
    kept, pull = (1 - lam) * g, lam * np.linalg.norm(g) * rhat
    before, after = float(g @ rhat), float(v @ rhat)
    ax.axhline(0, color="#DDDDDD", linewidth=0.7, zorder=0)
    for start, end in ((np.zeros(2), kept), (np.zeros(2), pull), (kept, v), (pull, v)):
        ax.plot(*zip(start, end, strict=True), color=GREY, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    for vector, along, colour in ((g, before, BLUE), (v, after, BLACK)):
        ax.plot([vector[0], along], [vector[1], 0], color=colour, linewidth=0.7, linestyle=(0, (1, 1.8)), zorder=1)
        ax.plot([along], [0], marker="o", markersize=3.5, color=colour, zorder=4)
    _arrow(ax, r, ORANGE, "r", (-3, 6))
    _arrow(ax, g, BLUE, "g", (6, 0))
    _arrow(ax, v, BLACK, "v", (6, 2 if v[1] > 0 else -8))
    _name(ax, kept, "(1 − λ) g", GREY, (-48, 2) if lam < 1 else (-40, -10))
    _name(ax, pull, "λ |g| r/|r|", GREY, (-14, 8) if lam > 1 else (-30, -13))
    return lam, before, after


def _arrows(ax: Axes, tips: np.ndarray, colour: str) -> None:
    for tip in tips:
        _arrow(ax, tip, colour, width=0.9)


def _arrow(
    ax: Axes,
    tip: np.ndarray,
    colour: str,
    name: str = "",
    offset: tuple[float, float] = (0, 0),
    *,
    width: float = 2.2,
) -> None:
    head = "-|>,head_width=0.22,head_length=0.5"
    look = {"arrowstyle": head, "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=(float(tip[0]), float(tip[1])), xytext=(0, 0), arrowprops=look)
    if name:
        _name(ax, tip, name, colour, offset)


def _name(ax: Axes, at: np.ndarray, name: str, colour: str, offset: tuple[float, float]) -> None:
    place = (float(at[0]), float(at[1]))
    ax.annotate(name, xy=place, xytext=offset, textcoords="offset points", color=colour, annotation_clip=False)


def _frame(ax: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    """Equal scales and no axes: only directions and lengths matter."""
    ax.set_xlim(*x)
    ax.set_ylim(*y)
    ax.set_aspect("equal", anchor="N")
    ax.set_axis_off()
    ax.plot([0], [0], marker="o", color=INK, markersize=3)


def _length(vector: np.ndarray) -> str:
    return f"{np.linalg.norm(vector):.2f}"


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))))
