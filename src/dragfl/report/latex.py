"""The summary as a LaTeX table for a paper: booktabs, mean ± standard deviation, the best of each column in bold."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dragfl.report.export import write_export
from dragfl.report.latex_escape import escape
from dragfl.report.numbers import MeanStd, RoundsToTarget, format_count, format_range
from dragfl.report.tables import Row, split_by_problem

HEAD = r"""%% needs \usepackage{booktabs}
\begin{table}
  \centering
  \caption{%s}
  \label{tab:results}
  \medskip
  \begin{tabular}{l%s}
    \toprule
    %s \\
"""
VARIANCE = "client_accuracy_variance"
UNFINISHED = "(unfinished)"  # in a text before it is escaped
FOOT = "    \\bottomrule\n  \\end{tabular}\n\\end{table}\n"


@dataclass(frozen=True)
class Cell:
    """A LaTeX text; `value` is what cells of a column are compared by, None where there is nothing to compare."""

    text: str
    value: float | None = None


def _columns(rows: Sequence[Row]) -> list[tuple[str, list[Cell], bool]]:
    """(heading, cells, whether the lowest value is best) of every column after the label."""
    found = []
    for target, on in dict.fromkeys((row.target, row.target_on) for row in rows if row.target is not None):
        data = "" if on == "test" else f" ({on} data)"
        cells = [_rounds(row) if (row.target, row.target_on) == (target, on) else Cell("---") for row in rows]
        found.append((f"Rounds to {100 * (target or 0):g} %{data}", cells, True))
    found.append(("Final accuracy (%)", [_percent(row, row.final_accuracy) for row in rows], False))
    found.append(("Best accuracy (%)", [_percent(row, row.best_accuracy) for row in rows], False))
    for key, heading in (("client_accuracy_mean", "Clients (%)"), ("client_accuracy_worst_decile", "Worst 10 % (%)")):
        if any(key in row.clients for row in rows):
            found.append((heading, [_percent(row, row.clients.get(key)) for row in rows], False))
    if any(VARIANCE in row.clients for row in rows):
        found.append(("Variance", [_variance(row) for row in rows], True))
    return found


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
    if rounds.censored or rounds.diverged:
        return f"{rounds.median:g} ({len(rounds.reached)} of {_counted(rounds)})"
    span = f" ({format_range(rounds.reached, format_count)})" if len(set(rounds.reached)) > 1 else ""
    return f"{rounds.median:g}{escape(span)}"


def _counted(rounds: RoundsToTarget) -> int:
    return len(rounds.reached) + len(rounds.censored) + len(rounds.diverged)


def _percent(row: Row, value: MeanStd | None) -> Cell:
    if row.all_diverged:
        return Cell("diverged")
    if value is None:
        return Cell("---")
    shown = round(100 * value.mean, 1)  # equal numbers on paper are equal
    return Cell(escape(value.format_percent()), None if row.all_unfinished else shown)


def _variance(row: Row) -> Cell:
    value = row.clients.get(VARIANCE)
    return Cell("---") if value is None else Cell(f"{value.mean:.4f}", round(value.mean, 4))


def _bold_best(cells: Sequence[Cell], low_is_best: bool) -> list[str]:
    """The texts, with the best value and all that are equal to it in bold; nothing among fewer than two rows."""
    known = [cell.value for cell in cells if cell.value is not None]
    best = (min if low_is_best else max)(known, default=None) if len(cells) > 1 else None
    return [f"\\textbf{{{cell.text}}}" if best is not None and cell.value == best else cell.text for cell in cells]


def latex_text(rows: Sequence[Row]) -> str:
    """The table environment; rows of different datasets, partitions or attacks are compared in separate blocks."""
    headings = [heading for heading, _, _ in _columns(rows)]
    parts = split_by_problem(rows)
    text = HEAD % (_caption(rows), "r" * len(headings), " & ".join(["Algorithm", *map(escape, headings)]))
    for title, part in parts:
        text += "    \\midrule\n"
        if title:
            text += f"    \\multicolumn{{{1 + len(headings)}}}{{l}}{{\\emph{{{escape(title)}}}}} \\\\\n"
        by_name = {heading: _bold_best(cells, low) for heading, cells, low in _columns(part)}
        for i, row in enumerate(part):
            mark = r"$^\dagger$" if row.unfinished else ""
            cells = [by_name[heading][i] if heading in by_name else "---" for heading in headings]
            text += "    " + " & ".join([escape(row.label) + mark, *cells]) + " \\\\\n"
    return text + FOOT


def _caption(rows: Sequence[Row]) -> str:
    """What was measured: data, seeds, rounds, spread, and the meaning of the marks in the table."""
    shared = [values[0] for values in zip(*(row.problem for row in rows), strict=True) if len(set(values)) == 1]
    where = f" on {', '.join(shared)}" if shared else ""
    several = any(len(row.seeds) > 1 for row in rows)
    spread = "mean ± sample standard deviation" if several else "one run"
    planned = format_range([row.planned for row in rows])
    texts = {
        f"Test accuracy in percent{where}: {spread} ({_seeds(rows)}, {planned} rounds).": True,
        f"Rounds to the target accuracy: {'median (range)' if several else 'first evaluated round'}.": any(
            row.target is not None for row in rows
        ),
        "> N: not reached in N rounds.": any(row.rounds_to_target.censored for row in rows),
        "A diverged run counts as chance level.": any(row.diverged for row in rows),
        f"{UNFINISHED}: some runs have not finished.": any(row.unfinished for row in rows),
        "Clients: accuracy on each client's own label distribution, its mean, lowest decile and variance.": any(
            row.clients for row in rows
        ),
        "The best of each column is bold.": True,
    }
    return escape(" ".join(text for text, shown in texts.items() if shown)).replace(UNFINISHED, r"$^\dagger$")


def _seeds(rows: Sequence[Row]) -> str:
    """`seed 0`, `seeds 0, 1, 2`, or `2–3 seeds` where rows differ."""
    if len({row.seeds for row in rows}) > 1:
        return f"{format_range([len(row.seeds) for row in rows])} seeds"
    return f"seed{'s' if len(rows[0].seeds) > 1 else ''} {', '.join(map(str, rows[0].seeds))}"


def write_latex(rows: Sequence[Row], path: str | Path) -> Path:
    """Write the table for a paper; return the path."""
    return write_export(Path(path), latex_text(rows))
