"""Two illustrations in the plane: the effect of attackers on the mean, and of DRAG on an update.

The client updates are fixed. The other arrows follow the formulas of the rules, in numpy: a report does not import
torch. The tests compare them with `dragfl.functional`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes

from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import ATTACKER, BLACK, BLUE, GREEN, GREY, INK, ORANGE, new_figure

HONEST_UPDATES = np.array([[1.8, 0.35], [1.35, 1.25], [1.85, -0.35], [1.15, 0.55]])
ATTACKERS_OWN_UPDATES = np.array([[1.5, 0.5], [1.0, 1.1]])  # without the attack
FACTORS = np.array([-2.4, -2.6])  # p: a negative factor reverses an update, |p| > 1 makes it longer
ROOT = np.array([1.45, 0.53])
C = 0.5


def draw_attack() -> Drawing:
    """Honest updates and their mean; the same with two attackers; the step of BR-DRAG."""
    sent = FACTORS[:, None] * ATTACKERS_OWN_UPDATES
    updates = np.concatenate([HONEST_UPDATES, sent])
    honest_mean, attacked_mean = HONEST_UPDATES.mean(0), updates.mean(0)
    dragged = np.stack([_drag(g / np.linalg.norm(g) * np.linalg.norm(ROOT), ROOT, C)[0] for g in updates])
    step = dragged.mean(0)
    low, high = updates.min(0), updates.max(0)
    widths = (high[0] + 0.8, high[0] - low[0] + 0.7, high[0] + 0.8)
    figure = new_figure(7.0 / sum(widths) * (high[1] - low[1] + 0.9) + 0.35)
    axes = figure.subplots(1, 3, width_ratios=widths)
    for ax, width, start in zip(axes, widths, (-0.2, low[0] - 0.35, -0.2), strict=True):
        _set_frame(ax, (start, start + width), (low[1] - 0.45, high[1] + 0.45))

    for ax, tips in zip(axes, (HONEST_UPDATES, HONEST_UPDATES, dragged), strict=True):
        for i, tip in enumerate(tips):
            _draw_arrow(ax, tip, BLACK if i < len(HONEST_UPDATES) else ATTACKER, width=0.9)
    axes[0].set_title("Honest clients")
    _draw_arrow(axes[0], honest_mean, BLUE, "mean", (5, 5))
    axes[1].set_title("Two attackers send p times their update")
    for own, g, p in zip(ATTACKERS_OWN_UPDATES, sent, FACTORS, strict=True):
        axes[1].plot([0, own[0]], [0, own[1]], color=ATTACKER, linewidth=0.9, linestyle=(0, (3, 2)))
        _draw_arrow(axes[1], g, ATTACKER, f"p = −{abs(p):g}", (-4, -11), width=1.3)
    _draw_arrow(axes[1], attacked_mean, ATTACKER, "mean of all", (2, -12))
    axes[2].set_title("BR-DRAG")
    _draw_arrow(axes[2], step, GREEN, "step", (5, 5))
    caption = (
        "Black: updates of honest clients. Vermillion: updates of attackers (dashed: without the attack). "
        "Thick: the mean, or the step of the rule. "
        f"Mean of the honest updates: length {_length(honest_mean)}. Mean with attackers: length "
        f"{_length(attacked_mean)}, at {_angle(attacked_mean, honest_mean):.0f}° to the honest mean. Step of BR-DRAG "
        f"(c = {C:g}, root update of length {_length(ROOT)}): length {_length(step)}, at "
        f"{_angle(step, honest_mean):.0f}°."
    )
    return Drawing("attack", figure, "Effect of an attack on the mean", caption)


def draw_dragging() -> Drawing:
    """v = (1 - lambda) g + lambda |g| r/|r| for a small and for a large divergence."""
    frame = ((-0.85, 2.2), (-0.66, 1.15))
    figure = new_figure(2.45)
    caption = (
        "DRAG moves an update g (blue) towards the reference r (orange): v (black) = (1 − λ) g + λ |g| r/|r| with "
        "λ = c (1 − cos(g, r)) and c = 1. Grey: the two parts of v. Dots: components along r."
    )
    axes = figure.subplots(1, 2)
    for ax, degrees, title in zip(axes, (65.0, 122.0), ("0 < λ ≤ 1", "1 < λ ≤ 2"), strict=True):
        _set_frame(ax, *frame)
        g = np.array([np.cos(np.radians(degrees)), np.sin(np.radians(degrees))])
        lam, before, after = _draw_dragged(ax, g, r=np.array([1.15, 0.0]), c=1.0)
        ax.set_title(f"{title}, here λ = {lam:.2f}")
        caption += f" λ = {lam:.2f}: from {before:.2f} to {after:.2f}.".replace("-", "−")
    return Drawing("dragging", figure, "Effect of DRAG on an update", caption)


def _draw_dragged(ax: Axes, g: np.ndarray, r: np.ndarray, c: float) -> tuple[float, float, float]:
    """Draw g, r, v and the two parts of v; (lambda, component of g on r, component of v on r)."""
    rhat = r / np.linalg.norm(r)
    v, lam = _drag(g, r, c)
    kept, pull = (1 - lam) * g, lam * np.linalg.norm(g) * rhat
    before, after = float(g @ rhat), float(v @ rhat)
    ax.axhline(0, color="#DDDDDD", linewidth=0.7, zorder=0)
    for start, end in ((kept, v), (pull, v)):
        ax.plot(*zip(start, end, strict=True), color=GREY, linewidth=1.0, linestyle=(0, (4, 2)), zorder=1)
    for vector, along, colour in ((g, before, BLUE), (v, after, BLACK)):
        ax.plot([vector[0], along], [vector[1], 0], color=colour, linewidth=0.7, linestyle=(0, (1, 1.8)), zorder=1)
        ax.plot([along], [0], marker="o", markersize=3.5, color=colour, zorder=4)
    _draw_arrow(ax, r, ORANGE, "r", (-3, 6))
    _draw_arrow(ax, g, BLUE, "g", (6, 0))
    _draw_arrow(ax, v, BLACK, "v", (6, 2 if v[1] > 0 else -8))
    _draw_arrow(ax, kept, GREY, "(1 − λ) g", (-48, 2) if lam < 1 else (-40, -10), width=0.9)
    _draw_arrow(ax, pull, GREY, "λ |g| r/|r|", (-14, 8) if lam > 1 else (-30, -13), width=0.9)
    return lam, before, after


def _drag(g: np.ndarray, r: np.ndarray, c: float) -> tuple[np.ndarray, float]:
    """(v, lambda)."""
    rhat, length = r / np.linalg.norm(r), np.linalg.norm(g)
    lam = float(c * (1 - g @ rhat / length))
    return (1 - lam) * g + lam * length * rhat, lam


def _draw_arrow(
    ax: Axes,
    tip: np.ndarray,
    colour: str,
    name: str = "",
    offset: tuple[float, float] = (0, 0),
    *,
    width: float = 2.2,
) -> None:
    """An arrow from the origin, with its name at `offset` points from the tip."""
    head = "-|>,head_width=0.22,head_length=0.5"
    props = {"arrowstyle": head, "color": colour, "linewidth": width, "shrinkA": 0, "shrinkB": 0}
    ax.annotate("", xy=tuple(tip), xytext=(0, 0), arrowprops=props)
    ax.annotate(name, xy=tuple(tip), xytext=offset, textcoords="offset points", color=colour, annotation_clip=False)


def _set_frame(ax: Axes, x: Sequence[float], y: Sequence[float]) -> None:
    """Set equal scales and hide the axes."""
    ax.set(xlim=x, ylim=y)
    ax.set_aspect("equal", anchor="N")
    ax.set_axis_off()
    ax.plot([0], [0], marker="o", color=INK, markersize=3)


def _length(vector: np.ndarray) -> str:
    return f"{np.linalg.norm(vector):.2f}"


def _angle(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.degrees(np.arccos(np.clip(a @ b / np.linalg.norm(a) / np.linalg.norm(b), -1, 1))))
