"""Tables of text for a terminal: columns that do not fit are left out and named, cells wrap between words."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from rich.console import Console

NO_BREAK = "\u00a0"  # a space that does not end a line


def print_table(
    console: Console,
    title: str,
    head: Sequence[str],
    body: Sequence[Sequence[str]],
    *,
    drop: Sequence[str] = (),
    numbers: Sequence[str] = (),
    gap: int = 2,
) -> list[str]:
    """Print a table and return the columns that were left out. `drop`: the columns to leave out, the first one first.

    The columns in `numbers` are aligned to the right.

    No word is broken and nothing is cut; where even the other columns do not fit, lines are longer than the terminal.
    """
    from rich import box
    from rich.markup import escape
    from rich.table import Table

    for left_out in (list(drop[:count]) for count in range(len(drop) + 1)):
        shown = [i for i, name in enumerate(head) if name not in left_out]
        columns = [[head[i], *(row[i] for row in body)] for i in shown]
        least = [max(len(word) for cell in column for word in cell.split(" ")) for column in columns]
        if sum(least) + gap * (len(least) - 1) <= console.width:
            break
    widths = _fit(columns, least, console.width - gap * (len(columns) - 1))
    if title:
        console.print(title, style="bold", markup=False, highlight=False)
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.show_edge, table.pad_edge = (0, gap - 1, 0, 0), False, False
    for (heading, *_), width in zip(columns, widths, strict=True):
        justify: Literal["left", "right"] = "right" if heading in numbers else "left"
        table.add_column(_wrapped(heading, width), justify=justify, width=width, no_wrap=True)
    for cells in zip(*(column[1:] for column in columns), strict=True):
        table.add_row(*(escape(_wrapped(cell, width)) for cell, width in zip(cells, widths, strict=True)))
    terminal = console.width
    console.width = max(terminal, sum(widths) + gap * len(widths))
    console.print(table)
    console.width = terminal
    console.print()
    return left_out


def _fit(columns: Sequence[Sequence[str]], least: Sequence[int], width: int) -> list[int]:
    """The width of each column: that of its longest cell, or less where the table is too wide.

    The widest column is made narrower first, down to its longest word.
    """
    widths = [max(map(len, column)) for column in columns]
    while sum(widths) > width and (wide := [i for i, w in enumerate(widths) if w > least[i]]):
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths


def _wrapped(text: str, width: int) -> str:
    lines = wrap(text, max(width, 1), break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace(NO_BREAK, " ")
