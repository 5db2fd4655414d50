"""ROC curves by attack, and what a round costs under each defence."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import PercentFormatter

from dragfl.report.arena.detection import roc
from dragfl.report.arena.matrix import Matrix, Results
from dragfl.report.arena.names import TRUSTED, attack_name, defence_name
from dragfl.report.figures import Drawing
from dragfl.report.figures.style import BLUE, GREY, INK, VERMILLION, canvas

ACROSS, MOST = 4, 8  # panels in a row, and in all
AT = np.linspace(0.0, 1.0, 401)


def roc_curves(matrix: Matrix, suffix: str = "") -> Drawing | None:
    """A panel for each attack, the ones on which defences differ most: best and worst detector in colour."""
    scores = {
        attack: sorted(
            (auc, defence) for defence in matrix.defences if (auc := matrix.entries[defence, attack].auc) is not None
        )
        for attack in matrix.attacks
    }
    telling = sorted((a for a in matrix.attacks if scores[a]), key=lambda a: scores[a][0][0] - scores[a][-1][0])[:MOST]
    if not telling:
        return None
    shown = [attack for attack in matrix.attacks if attack in telling]
    down = -(-len(shown) // ACROSS)
    figure = canvas(0.35 + 1.95 * down)
    grid = figure.subplots(down, min(ACROSS, len(shown)), squeeze=False, sharex=True, sharey=True)
    for ax, attack in zip(grid.flat, shown, strict=False):
        _panel(ax, matrix, attack, scores[attack])
    for ax in list(grid.flat)[len(shown) :]:
        ax.set_visible(False)
    figure.supxlabel("honest clients suspected", fontsize=8, color=INK)
    figure.supylabel("attackers suspected", fontsize=8, color=INK)
    left_out = f" The {len(shown)} attacks on which defences differ most." if len(shown) < len(matrix.attacks) else ""
    caption = (
        "The share of attackers caught when the given share of the honest clients of each round is suspected, with the "
        f"best detector of each attack in blue and the worst in vermillion, the others in grey.{left_out} "
        "On the dotted line suspicion is a matter of chance."
    )
    alt = "ROC curves. " + " ".join(
        f"{attack_name(a)}: best {defence_name(scores[a][-1][1])}, AUC {scores[a][-1][0]:.2f}." for a in shown
    )
    return Drawing(f"arena-roc{suffix}", figure, "ROC curves of the suspicion score", caption, alt)


def _panel(ax: Axes, matrix: Matrix, attack: str, scores: list[tuple[float, str]]) -> None:
    """All curves of one attack; `scores` go up."""
    last = len(scores) - 1
    for i, (auc, defence) in enumerate(scores):
        colour = BLUE if i == last else (VERMILLION if i == 0 else "#BDBDBD")
        bold = i in (0, last)
        curve = roc(matrix.entries[defence, attack].placed, AT)
        ax.plot(AT, curve, color=colour, linewidth=1.5 if bold else 0.8, zorder=3 if bold else 2)
        if bold:
            text = f"{defence_name(defence)} {auc:.2f}"
            y = 0.16 if i == last and last > 0 else 0.05
            ax.text(0.97, y, text, transform=ax.transAxes, ha="right", fontsize=6.5, color=colour, zorder=4,
                    bbox={"facecolor": "white", "alpha": 0.8, "linewidth": 0, "pad": 0.6})  # fmt: skip
    ax.plot([0, 1], [0, 1], color=GREY, linewidth=0.7, linestyle=(0, (1, 2)), zorder=1)
    ax.set_title(attack_name(attack), fontsize=8)
    ax.set(xlim=(0, 1), ylim=(0, 1.02), xticks=(0, 0.5, 1), yticks=(0, 0.5, 1))
    for axis in (ax.xaxis, ax.yaxis):
        axis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=" %"))
    ax.tick_params(labelsize=6.5)


def cost(results: Results) -> Drawing | None:
    """Median time of a round by defence, the quickest first."""
    known = sorted((s, d) for d in results.defences if (s := results.seconds(d)) is not None)
    if not known:
        return None
    trusted = results.matrices[0].trusted
    figure = canvas(0.55 + 0.2 * len(known))
    ax = figure.subplots()
    ax.barh(range(len(known)), [1000 * s for s, _ in known], height=0.62, color="#8FB8D6")
    ax.set_yticks(range(len(known)), [defence_name(d) + (f" {TRUSTED}" if d in trusted else "") for _, d in known])
    for i, (seconds, _) in enumerate(known):
        ax.annotate(
            f"{1000 * seconds:.3g}", (1000 * seconds, i), (3, 0), textcoords="offset points", va="center", fontsize=7,
            color=INK,
        )  # fmt: skip
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="y", length=0, labelcolor=INK)
    ax.set_xlabel("milliseconds a round, on this machine")
    ax.margins(x=0.08)
    caption = (
        "Median over all rounds of all runs of a defence: local training of all clients, the attack, the rule and, for "
        f"those marked {TRUSTED}, the server's own training on trusted data; without evaluation. It depends on the "
        "machine and on what else it was doing."
    )
    told = "; ".join(f"{defence_name(d)} {1000 * s:.3g} ms" for s, d in known)
    return Drawing("arena-cost", figure, "Cost of a round", caption, f"Bar chart. {told}.")
