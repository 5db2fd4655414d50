"""What `dragfl paper` prints at its end: the curves of each panel, and the verdicts."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from dragfl.reproduction.curves import curve_rows
from dragfl.reproduction.figure import Panel
from dragfl.reproduction.formatting import Row
from dragfl.reproduction.summary import Summary

STYLE = {"PASS": "green", "FAIL": "red", "UNDECIDED": "yellow", "NOT RUN": "dim"}


def curves_table(one: Panel, s: Summary) -> Table:
    """The curves of a panel."""
    heads, *rows = curve_rows(one, s)
    table = Table(*heads, box=box.SIMPLE_HEAD, title=f"{one.name}: {one.title}", title_justify="left")
    for cells in rows:
        table.add_row(*cells)
    return table


def verdicts_table(rows: Sequence[Row]) -> Table:
    """A row for every claim."""
    table = Table(box=box.SIMPLE_HEAD, show_lines=True)
    for name, ratio in (("claim", None), ("the paper says, or it leaves open", 3), ("measured: median (range)", 3)):
        table.add_column(name, ratio=ratio)
    table.add_column("verdict", no_wrap=True)
    table.add_column("because", ratio=3)
    for r in rows:
        verdict = Text(r.verdict, style=STYLE[r.verdict])
        table.add_row(r.claim, r.says, r.measured, verdict, r.because)
    return table
