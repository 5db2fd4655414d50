"""The summary as a LaTeX table for a paper: booktabs, mean ± standard deviation, the best of each column in bold."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragfl.report.export import write_export
from dragfl.report.latex_escape import escape
from dragfl.report.numbers import MeanStd, RoundsToTarget, format_count, format_range, format_seeds
from dragfl.report.tables import Row, split_by_problem

HEAD = r"""%% needs \usepackage{booktabs}
\begin{table}
  \centering
  \small
  \setlength{\tabcolsep}{3pt}
  \caption{%s}
  \label{tab:results}
  \medskip
  \begin{tabular}{@{}l%s@{}}
    \toprule
%s"""
WIDE = 22  # letters of a label before it is broken into lines
VARIANCE = "client_accuracy_variance"
UNFINISHED = "(unfinished)"  # in a text before it is escaped
FOOT = "    \\bottomrule\n  \\end{tabular}\n\\end{table}\n"


@dataclass(frozen=True)
class Cell:
    """A LaTeX text; `value` is what cells of a column are compared by, None where there is nothing to compare."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Column:
    """A column after the labels; columns of one group have a common heading."""

    group: str
    heading: str
    cells: list[Cell]
    low_is_best: bool = False


def _columns(rows: Sequence[Row]) -> list[Column]:
    found = []
    for target, on in dict.fromkeys((row.target, row.target_on) for row in rows if row.target is not None):
        data = "" if on == "test" else f" ({on} data)"
        cells = [_rounds(row) if (row.target, row.target_on) == (target, on) else Cell("---") for row in rows]
        found.append(Column("Rounds", f"to {100 * (target or 0):g} %{data}", cells, low_is_best=True))
    for heading, name in (("Final", "final_accuracy"), ("Best", "best_accuracy")):
        found.append(Column("Test accuracy (%)", heading, [_percent(row, getattr(row, name)) for row in rows]))
    clients = "Accuracy of clients (%)"
    for heading, key in (("Mean", "client_accuracy_mean"), ("Worst 10 %", "client_accuracy_worst_decile")):
        if any(key in row.clients for row in rows):
            found.append(Column(clients, heading, [_percent(row, row.clients.get(key)) for row in rows]))
    if any(VARIANCE in row.clients for row in rows):
        found.append(Column(clients, "Variance", list(map(_variance, rows)), low_is_best=True))
    return found


def _head(columns: Sequence[Column]) -> str:
    """Two lines: the groups, then the columns."""
    first, rules, place = "    ", "", 2
    for group, members in itertools.groupby(columns, key=lambda column: column.group):
        size = len(list(members))
        first += f" & \\multicolumn{{{size}}}{{c}}{{{escape(group)}}}"
        rules += f" \\cmidrule(lr){{{place}-{place + size - 1}}}"
        place += size
    second = " & ".join(["Algorithm", *(escape(column.heading) for column in columns)])
    return f"{first} \\\\\n   {rules}\n    {second} \\\\\n"


def _rounds(row: Row) -> Cell:
    """Median and range; a lower bound where the median is not reached."""
    rounds = row.rounds_to_target
    if row.all_diverged:
        return Cell("diverged")
    if math.isnan(rounds.median):
        return Cell("---")
    if math.isinf(rounds.median):
        return Cell(f"$>$ {min(rounds.censored):g}" if rounds.censored else "never")
    return Cell(_range_text(rounds), None if row.all_unfinished else rounds.median)


def _range_text(rounds: RoundsToTarget) -> str:
    if rounds.counted > len(rounds.reached):
        return f"{rounds.median:g} ({len(rounds.reached)} of {rounds.counted})"
    span = f" ({format_range(rounds.reached, format_count)})" if len(set(rounds.reached)) > 1 else ""
    return f"{rounds.median:g}{escape(span)}"


def _percent(row: Row, value: MeanStd | None) -> Cell:
    if row.all_diverged:
        return Cell("diverged")
    if value is None:
        return Cell("---")
    shown = round(100 * value.mean, 1)  # equal numbers on paper are equal
    spread = "" if value.std is None else rf"{{\scriptsize\,$\pm$\,{100 * value.std:.1f}}}"
    return Cell(f"{shown:.1f}{spread}", None if row.all_unfinished else shown)


def _variance(row: Row) -> Cell:
    """Of accuracies in percent; that of a diverged run is not known, so a row with one is not compared."""
    value = row.clients.get(VARIANCE)
    shown = None if value is None or row.all_diverged else round(1e4 * value.mean, 1)
    return Cell("---" if shown is None else f"{shown:.1f}", None if row.all_unfinished or row.diverged else shown)


def _bold_best(column: Column) -> list[str]:
    """The texts, with the best value and all that are equal to it in bold; nothing among fewer than two rows."""
    known = [cell.value for cell in column.cells if cell.value is not None]
    best = (min if column.low_is_best else max)(known, default=None) if len(column.cells) > 1 else None
    return [f"\\textbf{{{c.text}}}" if best is not None and c.value == best else c.text for c in column.cells]


def latex_text(rows: Sequence[Row]) -> str:
    """The table environment; rows of different datasets, partitions or attacks are compared in separate blocks."""
    columns = _columns(rows)
    text = HEAD % (_caption(rows), "r" * len(columns), _head(columns))
    for title, part in split_by_problem(rows):
        text += "    \\midrule\n"
        if title:
            text += f"    \\multicolumn{{{1 + len(columns)}}}{{@{{}}l}}{{\\emph{{{escape(title)}}}}} \\\\\n"
        nothing = ["---"] * len(part)
        cells = {(column.group, column.heading): _bold_best(column) for column in _columns(part)}
        for i, row in enumerate(part):
            label = _label(row.label) + (r"$^\dagger$" if row.unfinished else "")
            shown = [cells.get((column.group, column.heading), nothing)[i] for column in columns]
            text += "    " + " & ".join([label, *shown]) + " \\\\\n"
    return text + FOOT


def _label(label: str) -> str:
    """A long label in several lines."""
    text = escape(label)
    if len(label) <= WIDE:
        return text
    broken = re.sub(r"\\_|(?<!\\)=", r"\g<0>\\allowbreak{}", text)
    return rf"\parbox[t]{{10em}}{{\raggedright\hangindent=1em {broken}\strut}}"


def _caption(rows: Sequence[Row]) -> str:
    """What was measured: data, seeds, rounds, spread, and the meaning of the marks in the table."""
    shared = [values[0] for values in zip(*(row.problem for row in rows), strict=True) if len(set(values)) == 1]
    where = f" on {', '.join(shared)}" if shared else ""
    several = any(len(row.seeds) > 1 for row in rows)
    spread = "mean ± sample standard deviation" if several else "one run"
    rounds = [row.rounds_to_target for row in rows]
    planned = format_range([row.planned for row in rows])
    texts = {
        f"Test accuracy in percent{where}: {spread} ({_seeds(rows)}, {planned} rounds).": True,
        f"Rounds to the target accuracy: {'median (range)' if several else 'first evaluated round'}.": any(
            row.target is not None for row in rows
        ),
        "(k of n): k of n runs reached it.": any(0 < len(r.reached) < r.counted for r in rounds),
        "> N: not reached in N rounds.": any(r.censored and math.isinf(r.median) for r in rounds),
        "A diverged run counts as chance level.": any(row.diverged for row in rows),
        f"{UNFINISHED}: some runs have not finished.": any(row.unfinished for row in rows),
        "Clients: each on its own label distribution; mean over seeds of mean, lowest decile and variance.": any(
            row.clients for row in rows
        ),
        "The best of each column is bold.": True,
    }
    return escape(" ".join(text for text, shown in texts.items() if shown)).replace(UNFINISHED, r"$^\dagger$")


def _seeds(rows: Sequence[Row]) -> str:
    """`seed 0`, `seeds 0, 1, 2`, or `2–3 seeds` where rows differ."""
    if len({row.seeds for row in rows}) > 1:
        return f"{format_range([len(row.seeds) for row in rows])} seeds"
    return f"seed{'s' if len(rows[0].seeds) > 1 else ''} {format_seeds(rows[0].seeds)}"


def write_latex(rows: Sequence[Row], path: str | Path) -> Path:
    """Write the table for a paper; return the path."""
    return write_export(Path(path), latex_text(rows))
