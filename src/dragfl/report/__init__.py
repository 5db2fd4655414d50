"""Run directories in; tables, figures and one self-contained HTML page out.

    import dragfl

    dragfl.report.write(["runs/drag", "runs/fedavg"], "out")    # out/report.html, out/figures/*.png and *.pdf
    rows = dragfl.report.table(["runs"])                        # a folder of runs will do

A report reads run directories and nothing else, so it can be made on another machine, years later. The tables need
neither torch nor matplotlib; figures and the page need `pip install 'dragfl[report]'`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.report.groups import Group, RunLike, find_runs, group_runs
from dragfl.report.table import Row, rich_table, table

if TYPE_CHECKING:
    from dragfl.report import figures as figures

__all__ = ["Group", "Row", "figures", "find_runs", "group_runs", "rich_table", "table", "write"]


def write(runs: RunLike | Sequence[RunLike], out: str | Path, *, title: str | None = None) -> Path:
    """Write out/report.html and out/figures/*.png and *.pdf; the path of the page.

    `runs` are run directories, `Run`s, or folders that hold run directories at any depth. Every file is written under
    another name and renamed, the page last: a crash leaves no half page.
    """
    from dragfl.errors import SpecError
    from dragfl.report.page import write_page

    if Path(out).exists() and not Path(out).is_dir():
        raise SpecError(f"report: {out} is a file; give a folder to write to")
    return write_page(group_runs(find_runs(runs)), Path(out), title=title)


def __getattr__(name: str) -> Any:
    if name == "figures":  # imported when first used: it brings matplotlib's helpers
        return import_module("dragfl.report.figures")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
