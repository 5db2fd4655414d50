"""Figures of an arena: heat maps of defences by attacks, ROC curves of the suspicion score, time of a round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import wrap
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import PercentFormatter

from dragfl.report.arena.detection import roc
from dragfl.report.arena.results import WITHOUT_ATTACK, ArenaResults, Entry, Matrix
from dragfl.report.arena.tables import attack_label, defence_label, explain_marks, format_entry, wrap_entry, wrap_label
from dragfl.report.figures.files import Drawing
from dragfl.report.figures.style import BLUE, DOTTED, GREY, INK, VERMILLION, WIDTH, add_colour_bar, new_figure

ROW_HEIGHT = 0.27  # inches
MAX_UPRIGHT = 11  # with more columns their names are rotated
DARK = 0.42  # below this luminance the text is white
ROC_COLUMNS, MAX_ROC_SUBPLOTS = 4, 8


@dataclass(frozen=True)
class Cell:
    """A value determines the colour; without one the cell is hatched."""

    value: float | None
    text: str
    framed: bool = False


def draw_matrix(matrix: Matrix, suffix: str = "") -> list[Drawing]:
    """The figures that have data; `suffix` distinguishes the files of several matrices."""
    draw = (_draw_accuracy, _draw_accuracy_drop, _draw_detection, _draw_roc_curves)
    drawings = [draw_one(matrix, suffix) for draw_one in draw]
    return [drawing for drawing in drawings if drawing is not None]


def _draw_accuracy(matrix: Matrix, suffix: str) -> Drawing:
    """Final accuracy without attack, under every attack, and in the worst case."""
    attacks = (WITHOUT_ATTACK, *matrix.attacks)
    rows = {}
    for defence in matrix.defences:
        _, worst = matrix.worst_case(defence) or (None, None)
        entries = [matrix.entries[defence, attack] for attack in (*attacks, worst or WITHOUT_ATTACK)]
        cells = [Cell(entry.value, format_entry(entry, std=False)) for entry in entries]
        if worst is None:
            cells[-1] = Cell(None, "?")
        else:
            cells[attacks.index(worst)] = replace(cells[-1], framed=True)
        rows[defence] = cells
    figure = _draw_heat_map(
        matrix, rows, [*map(attack_label, attacks), "worst case"], colormaps["viridis"], Normalize(0, 1),
        "test accuracy, %", percent=True, foot="Framed: the worst attack of the row. ",
    )  # fmt: skip
    caption = "Test accuracy of the last evaluated round, mean over seeds. Rows are sorted by the worst case."
    if any(entry.diverged_at for entry in matrix.entries.values()):
        caption += " A run that diverged counts as chance level, 1 / classes."
    return Drawing(f"arena-accuracy{suffix}", figure, "Final accuracy, %", caption)


def _draw_accuracy_drop(matrix: Matrix, suffix: str) -> Drawing | None:
    """Accuracy of a defence without attack minus its accuracy under an attack, in points."""
    rows = {}
    for defence in matrix.defences:
        cells = []
        for attack in matrix.attacks:
            entry, drop = matrix.entries[defence, attack], matrix.accuracy_drop(defence, attack)
            mark = " ×" if entry.diverged_at else ""
            cells.append(Cell(drop, _text_without_value(entry) if drop is None else _format_points(drop) + mark))
        known = [cell.value for cell in cells if cell.value is not None]
        largest = max(known) if len(known) == len(cells) else None
        rows[defence] = [*cells, Cell(largest, "?" if largest is None else _format_points(largest))]
    top = max((c.value for cells in rows.values() for c in cells if c.value is not None), default=None)
    if top is None:
        return None
    columns = [*map(attack_label, matrix.attacks), "largest"]
    norm = Normalize(0, max(0.2, top), clip=True)
    figure = _draw_heat_map(matrix, rows, columns, colormaps["magma_r"], norm, "points", percent=True)
    caption = "Accuracy of the same defence without attack minus its accuracy under the attack, in points."
    return Drawing(f"arena-loss{suffix}", figure, "Accuracy drop, points", caption)


def _draw_detection(matrix: Matrix, suffix: str) -> Drawing | None:
    """Area under the ROC curve of the suspicion score."""
    rows = {}
    for defence in matrix.defences:
        entries = [matrix.entries[defence, attack] for attack in matrix.attacks]
        if any(entry.auc is not None for entry in entries):
            rows[defence] = [Cell(e.auc, _text_without_value(e) if e.auc is None else f"{e.auc:.2f}") for e in entries]
    if not rows:
        return None
    columns = list(map(attack_label, matrix.attacks))
    figure = _draw_heat_map(matrix, rows, columns, colormaps["RdBu"], Normalize(0, 1), "AUC")
    caption = (
        "Probability that an attacker has a higher suspicion score than an honest client of the same round "
        "(AUC; ties count half). 1: all attackers detected, 0.5: chance."
    )
    unscored = [defence_label(matrix, d) for d in matrix.defences if d not in rows]
    caption += f" No suspicion score: {', '.join(unscored)}." if unscored else ""
    return Drawing(f"arena-auc{suffix}", figure, "Detection of attackers: AUC", caption)


def _text_without_value(entry: Entry) -> str:
    return "—" if entry.runs else format_entry(entry)


def _format_points(value: float) -> str:
    text = f"{100 * value:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def _draw_heat_map(
    matrix: Matrix,
    rows: Mapping[str, Sequence[Cell]],
    columns: Sequence[str],
    colours: Colormap,
    norm: Normalize,
    scale: str,
    *,
    percent: bool = False,
    foot: str = "",
) -> Figure:
    """Draw a row for each defence, with a colour bar named `scale` and the meaning of the marks below."""
    upright = len(columns) <= MAX_UPRIGHT
    names = [wrap_label(name) if upright else name for name in columns]
    head = 0.13 * max(name.count("\n") + 1 for name in names) if upright else 0.85
    labels = [defence_label(matrix, defence) for defence in rows]
    texts = [cell.text for cells in rows.values() for cell in cells]
    hatched = any(cell.value is None for cells in rows.values() for cell in cells)
    notes = wrap(foot + explain_marks(labels + texts) + (" Hatched: no value." if hatched else ""), 125)
    height = 0.35 + head + (0.13 * (len(notes) + 1) if notes else 0.0) + ROW_HEIGHT * len(rows)
    figure = new_figure(height, WIDTH * max(1.0, (len(columns) + 3) / (MAX_UPRIGHT + 3)))
    ax = figure.subplots()
    values = np.array([[np.nan if c.value is None else c.value for c in cells] for cells in rows.values()])
    image = ax.pcolormesh(np.ma.masked_invalid(values), cmap=colours, norm=norm, edgecolors="white", linewidth=1.5)
    ax.patch.set(facecolor="#F7F7F7", edgecolor="#DDDDDD", hatch="////")  # visible where a cell has no value
    for i, cells in enumerate(rows.values()):
        for j, cell in enumerate(cells):
            luminance = float(np.dot(colours(norm(cell.value or 0.0))[:3], (0.2126, 0.7152, 0.0722)))
            ink = "#6A6A6A" if cell.value is None else "white" if luminance < DARK else "#111111"
            size = 7.5 if len(cell.text) < 12 else 5.2  # "diverged at round 12" has two lines
            ax.text(j + 0.5, i + 0.52, wrap_entry(cell.text), ha="center", va="center", fontsize=size, color=ink)
            if cell.framed:
                ax.add_patch(Rectangle((j + 0.06, i + 0.1), 0.88, 0.8, fill=False, edgecolor=ink, linewidth=1.1))
    ax.invert_yaxis()
    ax.xaxis.tick_top()
    rotation: dict[str, Any] = {} if upright else {"rotation": 50, "ha": "left", "rotation_mode": "anchor"}
    ax.set_xticks(np.arange(len(names)) + 0.5, names, **rotation)
    ax.set_yticks(np.arange(len(labels)) + 0.5, labels, fontsize=8)
    ax.tick_params(length=0, pad=3, labelcolor=INK)
    ax.grid(False)
    ax.spines[["left", "bottom"]].set_visible(False)
    bar = add_colour_bar(ax, image, scale)
    if percent:
        bar.ax.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0, symbol=""))
    if notes:
        figure.supxlabel("\n".join(notes), x=0.01, ha="left", fontsize=7, color="#555555")
    return figure


def _draw_roc_curves(matrix: Matrix, suffix: str) -> Drawing | None:
    """One subplot for each of the attacks where the AUC of the defences differs most."""
    scores = {
        attack: sorted((auc, d) for d in matrix.defences if (auc := matrix.entries[d, attack].auc) is not None)
        for attack in matrix.attacks
    }
    scored = [attack for attack in matrix.attacks if scores[attack]]
    chosen = sorted(scored, key=lambda a: scores[a][0][0] - scores[a][-1][0])[:MAX_ROC_SUBPLOTS]
    if not chosen:
        return None
    shown = [attack for attack in matrix.attacks if attack in chosen]
    rows = -(-len(shown) // ROC_COLUMNS)
    figure = new_figure(0.35 + 1.95 * rows)
    grid = figure.subplots(rows, min(ROC_COLUMNS, len(shown)), squeeze=False, sharex=True, sharey=True)
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
    return Drawing(f"arena-roc{suffix}", figure, "ROC curves of the suspicion score", caption)


def _draw_roc(ax: Axes, matrix: Matrix, attack: str, scores: list[tuple[float, str]]) -> None:
    """The curves of one attack; `scores` are (AUC, defence) in ascending order."""
    last, flagged = len(scores) - 1, np.linspace(0.0, 1.0, 401)
    for i, (auc, defence) in enumerate(scores):
        colour = BLUE if i == last else (VERMILLION if i == 0 else "#BDBDBD")
        extreme = i in (0, last)
        curve = roc(matrix.entries[defence, attack].attacker_ranks, flagged)
        ax.plot(flagged, curve, color=colour, linewidth=1.5 if extreme else 0.8, zorder=3 if extreme else 2)
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
    return Drawing("arena-cost", figure, "Time of a round", caption)
