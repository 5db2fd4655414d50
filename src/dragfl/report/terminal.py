"""The summary table for a terminal: columns that do not fit are left out, numbers are never cut."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING

from dragfl.report.labels import NOT_SET
from dragfl.report.numbers import format_seeds, unbroken
from dragfl.report.tables import Row, format_rows, split_by_problem, table_note

if TYPE_CHECKING:
    from rich.table import Table

CELL = 16  # letters of a cell before it is broken into lines
TEXT = ("run", "seed")
# Columns are shown in this order, as long as they fit and leave this many letters for a label.
FIRST, NARROW = ("final accuracy", "rounds to", "best accuracy", "seed"), 12
THEN, WIDE = ("rounds", "final 95 %", "client", "bytes up", "bytes down", "seconds to", "bytes to"), 30


def rich_tables(rows: Sequence[Row], width: int | None = None) -> list[Table]:
    """A table for each dataset, partition and attack, with a heading where there are several; the last has the notes.

    A table has at most `width` letters (default: the terminal's), and the columns of all tables are aligned. What all
    rows share is in the notes.
    """
    width = get_terminal_size().columns if width is None else width
    parts = split_by_problem(rows)
    columns, lines = format_rows([row for _, part in parts for row in part])
    same_seeds = len({row.seeds for row in rows}) == 1
    places = [i for i, name in enumerate(columns) if not (same_seeds and name == "seed")]
    heads = {i: _broken(columns[i], _cell_width(lines, i)) for i in places}
    sizes = {i: max(_cell_width(lines, i), _width(heads[i])) for i in places}
    sizes[0] = max(_width(line[0]) for line in lines)
    shown, sizes[0] = _choose(columns, sizes, width)
    note = f"Seed {format_seeds(rows[0].seeds)}. " if same_seeds else ""
    note += table_note(rows, [columns[i] for i in shown])
    left_out = [columns[i] for i in places if i not in shown]
    note += f" Not shown for lack of width: {', '.join(left_out)}." if left_out else ""
    tables = [_draw(part, [(columns[i], heads[i], sizes[i]) for i in shown], title) for title, part in parts]
    tables[-1].caption = note
    return tables


def _draw(rows: Sequence[Row], layout: Sequence[tuple[str, str, int]], title: str) -> Table:
    """A table with columns of (name, heading, width)."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    table.title, table.title_justify, table.title_style = escape(title) or None, "left", "bold"
    table.caption, table.caption_justify = " " if title else None, "left"
    for name, head, width in layout:
        text = name in TEXT
        table.add_column(head, justify="left" if text else "right", no_wrap=not text, overflow="fold", width=width)
    for row in rows:
        cells = row.cells()
        texts = [cells.get(name, NOT_SET) for name, _, _ in layout]
        broken = (text if name in TEXT else _broken(text) for (name, _, _), text in zip(layout, texts, strict=True))
        table.add_row(*map(escape, broken), style="dim" if row.unfinished else "")
    return table


def _choose(columns: Sequence[str], sizes: Mapping[int, int], width: int) -> tuple[list[int], int]:
    """(the columns that fit, the width of the labels); the first is there at any width."""
    chosen, left = [0], width
    for i in dict.fromkeys(i for begin in (*FIRST, *THEN) for i in sizes if columns[i].startswith(begin)):
        left -= sizes[i] + 1
        least = 1 if len(chosen) == 1 else NARROW if columns[i].startswith(FIRST) else WIDE
        if left < min(sizes[0], least):
            left += sizes[i] + 1
            break
        chosen.append(i)
    return sorted(chosen), min(sizes[0], left)


def _cell_width(lines: Sequence[Sequence[str]], i: int) -> int:
    return max(_width(_broken(line[i])) for line in lines)


def _width(text: str) -> int:
    return max(map(len, text.split("\n")))


def _broken(text: str, width: int = CELL) -> str:
    """A cell in lines of at most about `width` letters; `not reached (> 100)` as `> 100`, which the caption explains.

    A number, its deviation and its unit stay together.
    """
    text = re.sub(r"^not reached \((> [^)]+)\)", r"\1", text)
    if len(text) <= width:
        return text
    parts = re.sub(r" (?=\()", "\n", unbroken(text)).split("\n")
    lines = [line for part in parts for line in wrap(part, max(width, 8), break_long_words=False)]
    return "\n".join(lines).replace("\u00a0", " ")
