"""The summary table for a terminal: columns that do not fit are left out, numbers are never cut."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from textwrap import wrap
from typing import TYPE_CHECKING

from dragfl.report.labels import NOT_SET
from dragfl.report.tables import Row, format_rows, split_by_problem, table_note

if TYPE_CHECKING:
    from rich.table import Table

WIDE = 30  # letters of a label for which other columns are left out; a longer one is broken into lines
CELL = 16  # letters of a cell before it is broken into lines
TEXT = ("run", "seed")
FIRST = ("run", "seed", "rounds to", "final accuracy", "best accuracy")  # never left out
THEN = ("rounds", "final 95 %", "client", "bytes up", "bytes down", "seconds to", "bytes to")  # in this order


def rich_tables(rows: Sequence[Row], width: int | None = None) -> list[Table]:
    """A table for each dataset, partition and attack, with a heading where there are several; the last has the notes.

    A table has at most `width` letters. What all rows share is in the notes.
    """
    parts = split_by_problem(rows)
    columns, lines = format_rows([row for _, part in parts for row in part])
    same_seeds = len({row.seeds for row in rows}) == 1
    shown, left_out = _choose(columns, lines, width, {"seed"} if same_seeds else set())
    note = f"Seed {', '.join(map(str, rows[0].seeds))}. " if same_seeds else ""
    note += table_note(rows, [columns[i] for i in shown])
    note += f" Not shown for lack of width: {', '.join(left_out)}." if left_out else ""
    names = [columns[i] for i in shown]
    heads = [
        name if width is None or name in TEXT else _broken(name, _cell_width(lines, i))
        for i, name in zip(shown, names, strict=True)
    ]
    tables = [_draw(part, names, heads, title, fits=width is not None) for title, part in parts]
    tables[-1].caption = note
    return tables


def rich_table(rows: Sequence[Row], width: int | None = None) -> Table:
    """The rows as one table; rows with different problems are not separated."""
    (table,) = rich_tables([replace(row, spec={}, data_version="") for row in rows], width)
    return table


def _draw(rows: Sequence[Row], names: Sequence[str], heads: Sequence[str], title: str, *, fits: bool) -> Table:
    """A table; one of unknown width may be folded by the terminal, but is not cut."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    table.title, table.title_justify, table.title_style = escape(title) or None, "left", "bold"
    table.caption, table.caption_justify = " " if title else None, "left"
    for name, head in zip(names, heads, strict=True):
        text = name in TEXT
        table.add_column(head, justify="left" if text else "right", no_wrap=fits and not text, overflow="fold")
    for row in rows:
        cells = row.cells()
        texts = (cells.get(name, NOT_SET) for name in names)
        broken = (text if name in TEXT else _broken(text) for name, text in zip(names, texts, strict=True))
        table.add_row(*map(escape, broken), style="dim" if row.unfinished else "")
    return table


def _choose(
    columns: Sequence[str], lines: Sequence[Sequence[str]], width: int | None, never: set[str]
) -> tuple[list[int], list[str]]:
    """(the columns that fit, the names of those left out)."""
    places = [i for i, name in enumerate(columns) if name not in never]
    if width is None:
        return places, []
    sizes = {i: max(_cell_width(lines, i), _width(_broken(columns[i], _cell_width(lines, i)))) for i in places}
    sizes[0] = max(_width(line[0]) for line in lines)
    chosen = [i for i in places if columns[i].startswith(FIRST)]
    then = [i for begin in THEN for i in places if columns[i].startswith(begin)]
    for i in dict.fromkeys(i for i in then if i not in chosen):
        if _total(sizes, [*chosen, i]) > width:
            break
        chosen.append(i)
    chosen.sort()
    return chosen, [columns[i] for i in places if i not in chosen]


def _total(sizes: dict[int, int], chosen: Sequence[int]) -> int:
    """The width of a table with these columns."""
    return sum(min(sizes[i], WIDE) if i == 0 else sizes[i] for i in chosen) + len(chosen) - 1


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
    together = re.sub(r"(?<=[\d±>–≥]) (?=[\d±%BkMGTPs])", "\u00a0", text)
    parts = re.sub(r" (?=\()", "\n", together).split("\n")
    lines = [line for part in parts for line in wrap(part, max(width, 8), break_long_words=False)]
    return "\n".join(lines).replace("\u00a0", " ")
