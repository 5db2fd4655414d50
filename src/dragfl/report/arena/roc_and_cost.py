"""ROC curves of the suspicion score by attack, and the time of a round by defence."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from dragfl.report.arena.detection import roc
from dragfl.report.arena.results import ArenaResults, Matrix
from dragfl.report.arena.tables import attack_label, defence_label
from dragfl.report.figures import Drawing
from dragfl.report.figures.style import BLUE, DOTTED, GREY, INK, VERMILLION, new_figure

COLUMNS, MAX_SUBPLOTS = 4, 8
FLAGGED = np.linspace(0.0, 1.0, 401)


def draw_roc_curves(matrix: Matrix, suffix: str = "") -> Drawing | None:
    """One subplot for each of the attacks where the AUC of the defences differs most."""
    scores = {
        attack: sorted((auc, d) for d in matrix.defences if (auc := matrix.entries[d, attack].auc) is not None)
        for attack in matrix.attacks
    }
    scored = [attack for attack in matrix.attacks if scores[attack]]
    chosen = sorted(scored, key=lambda a: scores[a][0][0] - scores[a][-1][0])[:MAX_SUBPLOTS]
    if not chosen:
        return None
    shown = [attack for attack in matrix.attacks if attack in chosen]
    rows = -(-len(shown) // COLUMNS)
    figure = new_figure(0.35 + 1.95 * rows)
    grid = figure.subplots(rows, min(COLUMNS, len(shown)), squeeze=False, sharex=True, sharey=True)
    for ax, attack in zip(grid.flat, shown, strict=False):
        _draw_roc(ax, matrix, attack, scores[attack])
    for ax in list(grid.flat)[len(shown) :]:
        ax.set_visible(False)
    figure.supxlabel("honest clients flagged", fontsize=8, color=INK)
    figure.supylabel("attackers detected", fontsize=8, color=INK)
    caption = (
        "Fraction of attackers detected by the fraction of honest clients of the same round that are flagged. "
        "Blue: highest AUC. Vermillion: lowest AUC. Grey: other defences. Dotted: chance."
    )
    caption += f" The {len(shown)} attacks with the largest differences." if len(shown) < len(scored) else ""
    best = [f"{attack_label(a)}: best {scores[a][-1][1]}, AUC {scores[a][-1][0]:.2f}." for a in shown]
    title = "ROC curves of the suspicion score"
    return Drawing(f"arena-roc{suffix}", figure, title, caption, "ROC curves. " + " ".join(best))


def _draw_roc(ax: Axes, matrix: Matrix, attack: str, scores: list[tuple[float, str]]) -> None:
    """The curves of one attack; `scores` are (AUC, defence) in ascending order."""
    last = len(scores) - 1
    for i, (auc, defence) in enumerate(scores):
        colour = BLUE if i == last else (VERMILLION if i == 0 else "#BDBDBD")
        extreme = i in (0, last)
        curve = roc(matrix.entries[defence, attack].attacker_ranks, FLAGGED)
        ax.plot(FLAGGED, curve, color=colour, linewidth=1.5 if extreme else 0.8, zorder=3 if extreme else 2)
        if extreme:
            y = 0.16 if i == last and last > 0 else 0.05
            background = {"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.6}
            text = f"{defence_label(matrix, defence)} {auc:.2f}"
            label = ax.text(0.97, y, text, transform=ax.transAxes, ha="right", fontsize=6.5, color=colour, zorder=4)
            label.set_bbox(background)
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, linestyle=DOTTED, zorder=1)
    ax.set_title(attack_label(attack), fontsize=8)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    ax.tick_params(labelsize=6.5)


def draw_cost(results: ArenaResults) -> Drawing | None:
    """Median time of a round by defence, the fastest first."""
    matrix = results.matrices[0]
    times = {d: 1000 * s for d in matrix.defences if (s := results.seconds_per_round(d)) is not None}
    if not times:
        return None
    names = sorted(times, key=lambda d: times[d])
    figure = new_figure(0.55 + 0.2 * len(names))
    ax = figure.subplots()
    bars = ax.barh([defence_label(matrix, d) for d in names], [times[d] for d in names], height=0.62, color="#8FB8D6")
    ax.bar_label(bars, [f"{times[d]:.3g}" for d in names], padding=3, fontsize=7, color=INK)
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.set_xlabel("milliseconds per round")
    ax.margins(x=0.08)
    caption = (
        "Median over all rounds of all runs of a defence, without evaluation: local training, attack, aggregation and "
        "training on trusted data where the defence uses it. It depends on the machine and its load."
    )
    alt = "; ".join(f"{d} {times[d]:.3g} ms" for d in names)
    return Drawing("arena-cost", figure, "Time of a round", caption, f"Bar chart. {alt}.")
