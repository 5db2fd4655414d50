"""The three maps: final accuracy, accuracy lost against no attack, and how well attackers are detected."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.colors import Normalize

from dragfl.report.arena.heat import Column, Square, heat_map
from dragfl.report.arena.matrix import CLEAN, Entry, Matrix
from dragfl.report.arena.names import TRUSTED, attack_name, defence_name
from dragfl.report.figures import Drawing

WORST = "worst over attacks"


def maps(matrix: Matrix, suffix: str) -> list[Drawing]:
    """The maps that there is something to show on; `suffix` tells the files of several matrices apart."""
    found = [accuracy(matrix, suffix), loss(matrix, suffix), detection(matrix, suffix)]
    return [drawing for drawing in found if drawing is not None]


def accuracy(matrix: Matrix, suffix: str = "") -> Drawing:
    """Final accuracy: no attack, every attack, and the worst of them."""
    columns = [Column("no attack"), *_attacks(matrix, apart=True), Column(WORST, apart=True, bold=True)]
    names = (CLEAN, *matrix.attacks)

    def square(i: int, j: int) -> Square:
        defence = matrix.defences[i]
        worst = matrix.worst(defence)
        name = worst if j == len(names) else names[j]
        entry = Entry() if name is None else matrix.entries[defence, name]
        framed = j < len(names) and name == worst
        return Square(entry.value, _percent(entry), framed=framed, crossed=entry.diverged > 0)

    figure = heat_map(
        _rows(matrix), columns, square, colours=colormaps["viridis"], norm=Normalize(0, 1),
        scale="test accuracy, %", foot=_foot(matrix, framed=True), percent=True,
    )  # fmt: skip
    told = [f"{defence_name(d)} {100 * v:.0f} %" for d in matrix.defences if (v := matrix.worst_value(d)) is not None]
    return Drawing(
        f"arena-accuracy{suffix}",
        figure,
        "Final accuracy, %",
        "Test accuracy of the last evaluated round, mean over seeds. Rows are sorted by the worst case, in the last "
        "column; dark cells are where a defence breaks.",
        f"Heat map of accuracy. Worst case over attacks: {'; '.join(told)}.",
    )


def loss(matrix: Matrix, suffix: str = "") -> Drawing | None:
    """Points of accuracy lost against the same defence when nobody attacks."""
    values = {(d, a): matrix.lost(d, a) for d in matrix.defences for a in matrix.attacks}
    known = [value for value in values.values() if value is not None]
    if not known:
        return None
    columns = [*_attacks(matrix), Column("largest", apart=True, bold=True)]

    def square(i: int, j: int) -> Square:
        defence = matrix.defences[i]
        row = [values[defence, attack] for attack in matrix.attacks]
        if j == len(row):
            most = max((value for value in row if value is not None), default=None)
            return Square(most, "" if most is None else _points(most))
        value, entry = row[j], matrix.entries[defence, matrix.attacks[j]]
        text = _points(value) if value is not None else _nothing(entry)
        return Square(value, text, crossed=entry.diverged > 0)

    top = max(0.2, *known)
    figure = heat_map(
        _rows(matrix), columns, square, colours=colormaps["magma_r"], norm=Normalize(0, top, clip=True),
        scale="points lost", foot=_foot(matrix), percent=True,
    )  # fmt: skip
    caption = "Points of accuracy that a defence loses to an attack, against the same defence when nobody attacks."
    most = max(values, key=lambda place: values[place] or 0.0)
    alt = f"Heat map. The largest loss is {_points(values[most] or 0.0)} points: {defence_name(most[0])} "
    alt += f"under {attack_name(most[1])}."
    return Drawing(f"arena-loss{suffix}", figure, "Lost against no attack, points", caption, alt)


def detection(matrix: Matrix, suffix: str = "") -> Drawing | None:
    """Area under the ROC curve of the suspicion score."""
    scored = [d for d in matrix.defences if any(matrix.entries[d, a].auc is not None for a in matrix.attacks)]
    if not scored:
        return None

    def square(i: int, j: int) -> Square:
        entry = matrix.entries[scored[i], matrix.attacks[j]]
        return Square(entry.auc, _nothing(entry) if entry.auc is None else f"{entry.auc:.2f}")

    foot = _foot(matrix, diverged=False)
    figure = heat_map(
        _rows(matrix, scored), _attacks(matrix), square, colours=colormaps["RdBu"], norm=Normalize(0, 1),
        scale="AUC", foot=foot,
    )  # fmt: skip
    silent = [defence_name(d) for d in matrix.defences if d not in scored]
    caption = (
        "How often an attacker is suspected more than an honest client of the same round, ties counting half: "
        "1 always, 0.5 as by chance, below that honest clients are suspected instead. "
    )
    if silent:
        caption += f"No suspicion score: {', '.join(silent)}. "
    best = max((matrix.entries[d, a].auc or 0.0, d, a) for d in scored for a in matrix.attacks)
    alt = f"Heat map. The highest AUC is {best[0]:.2f}: {defence_name(best[1])} under {attack_name(best[2])}."
    return Drawing(f"arena-auc{suffix}", figure, "Who is detected: AUC of the suspicion score", caption.strip(), alt)


def _attacks(matrix: Matrix, *, apart: bool = False) -> list[Column]:
    return [Column(attack_name(a), apart=apart and i == 0) for i, a in enumerate(matrix.attacks)]


def _rows(matrix: Matrix, defences: Sequence[str] | None = None) -> list[str]:
    shown = matrix.defences if defences is None else defences
    return [defence_name(d) + (f" {TRUSTED}" if d in matrix.trusted else "") for d in shown]


def _percent(entry: Entry) -> str:
    return _nothing(entry) if entry.accuracy is None else f"{100 * entry.accuracy.mean:.1f}"


def _points(value: float) -> str:
    text = f"{100 * value:.1f}"
    return "0.0" if text == "-0.0" else text.replace("-", "−")


def _nothing(entry: Entry) -> str:
    """What stands in a cell without a number."""
    if entry.reason:
        return "n/a"
    return "" if entry.diverged else ("…" if entry.waiting else "—")


def _foot(matrix: Matrix, *, framed: bool = False, diverged: bool = True) -> str:
    """The marks that are used on this map."""
    entries = list(matrix.entries.values())
    parts = ["Framed: the worst attack of the row."] if framed else []
    if matrix.trusted & set(matrix.defences):
        parts.append(f"{TRUSTED} is given trusted data.")
    if diverged and any(entry.diverged for entry in entries):
        parts.append("× diverged: the accuracy is that of its last evaluation.")
    if any(entry.reason for entry in entries):
        parts.append("n/a: the defence cannot be set up so.")
    if any(entry.waiting for entry in entries):
        parts.append("…: not finished.")
    return " ".join(parts)
