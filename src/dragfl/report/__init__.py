"""Tables, figures and one self-contained HTML page from run directories.

    import dragfl

    dragfl.report.write_report(["runs/drag", "runs/fedavg"], "out")   # out/report.html, out/figures/*.png and *.pdf
    rows = dragfl.report.summarize_runs("runs")                       # a folder of run directories
    dragfl.report.write_arena_report("arena/attack")                  # arena/attack/arena.html and figures/

A report reads run directories and nothing else, so it can be written on another machine. The tables need neither torch
nor matplotlib; figures and pages need `pip install 'dragfl[report]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dragfl.report.groups import Group, RunLike, find_runs, group_runs
from dragfl.report.tables import Row, rich_table, summarize_runs

__all__ = [
    "Group",
    "Row",
    "find_runs",
    "group_runs",
    "rich_table",
    "summarize_runs",
    "write_arena_report",
    "write_report",
]


def write_report(runs: RunLike | Sequence[RunLike], out: str | Path, *, title: str | None = None) -> Path:
    """Write out/report.html and out/figures/*.png and *.pdf; return the path of the page.

    `runs` are run directories, `Run`s, or folders that contain run directories at any depth. Every file is written
    under a temporary name and then renamed, the page last.
    """
    from dragfl.report.html import write_page

    return write_page(group_runs(find_runs(runs)), Path(out), title=title)


def write_arena_report(folder: str | Path, *, title: str | None = None) -> Path:
    """Write arena.html and figures/ into the folder of an arena; return the path of the page.

    Cells that have not finished are marked.
    """
    from dragfl.report.arena.html import write_arena_page
    from dragfl.report.arena.results import load_arena

    return write_arena_page(load_arena(folder), Path(folder), title=title)
