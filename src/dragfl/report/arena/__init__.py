"""An arena in; a table, maps of where each defence breaks, and one self-contained HTML page out.

    dragfl.report.arena.write("arena/attack")      # arena/attack/arena.html, arena/attack/figures/*.png and *.pdf

It reads `arena.json` and the run directories beside it and nothing else; an unfinished arena can be looked at too.
"""

from __future__ import annotations

from pathlib import Path

from dragfl.report.arena.matrix import Entry, Matrix, Results, load
from dragfl.report.arena.words import rich_tables, summary

__all__ = ["Entry", "Matrix", "Results", "load", "rich_tables", "summary", "write"]


def write(folder: str | Path, *, title: str | None = None) -> Path:
    """Write arena.html and figures/ into the arena's own folder; the path of the page."""
    from dragfl.report.arena.page import write_page

    return write_page(load(folder), Path(folder), title=title)
