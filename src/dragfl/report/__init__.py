"""Tables, figures and one self-contained HTML page from run directories.

    import dragfl

    dragfl.report.write_report(["runs/drag", "runs/fedavg"], "out")   # out/report.html, out/figures/*.png
    rows = dragfl.report.summarize_runs("runs")                       # a folder of run directories
    dragfl.report.write_latex(rows, "table.tex")                      # write_csv: the same as numbers
    dragfl.report.compare("runs", "drag", "fedavg")                   # paired by seed
    dragfl.report.write_arena_report("arena/attack")                  # arena/attack/arena.html and figures/

A report reads run directories and nothing else, so it can be written on another machine. The tables need neither torch
nor matplotlib; figures and pages need `pip install 'dragfl[report]'`.

Parameters
----------
runs
    Run directories, `Run`s, or folders that contain run directories at any depth.
rows
    What `summarize_runs` returns: one row for each setting, over its seeds.
groups
    The runs of each setting.
found
    The runs that were read, and those that could not be read.
comparisons
    The paired comparisons that were asked for.
first, second
    The labels of the report, or names of algorithms, that are compared.
metric
    What is compared: final_accuracy, best_accuracy, rounds_to_target, or a metric of metrics.jsonl.
pairs
    The two values of every common seed.
folder
    The folder of an arena.
out
    The folder of the page and its figures.
path
    The file that is written, or the run directory that could not be read.
reason
    Why it could not be read.
title
    The heading of the page.
pdf
    Write each figure as PDF too, which takes about as long as the rest of a small report.
width
    Columns of the terminal; columns of the table are left out or wrapped to fit.
label
    The name and the settings that differ from the other rows.
algorithm
    The name of the algorithm.
attack
    The name of the attack, or None.
seeds
    The seeds of the runs.
rounds_to_target
    The first evaluated round at the target, over the seeds.
bytes_down
    Bytes sent to all clients in a run, the mean over seeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dragfl.report.export import write_csv
from dragfl.report.find import Damaged, RunLike, find_runs
from dragfl.report.groups import Group, group_runs
from dragfl.report.latex import write_latex
from dragfl.report.paired import Comparison, compare
from dragfl.report.summary import Summary, read_summary
from dragfl.report.tables import Row, summarize_runs
from dragfl.report.terminal import rich_tables

__all__ = [
    "Comparison",
    "Damaged",
    "Group",
    "Row",
    "Summary",
    "arena_numbers",
    "compare",
    "find_runs",
    "group_runs",
    "read_summary",
    "rich_tables",
    "summarize_runs",
    "write_arena_report",
    "write_csv",
    "write_latex",
    "write_report",
]


def write_report(
    runs: RunLike | Sequence[RunLike] | Summary, out: str | Path, *, title: str | None = None, pdf: bool = False
) -> Path:
    """Write out/report.html and out/figures/*.png, with `pdf` also *.pdf; return the path of the page.

    `runs` are run directories, `Run`s, folders that contain run directories at any depth, or what `read_summary` has
    read from them. The page lists runs that cannot be read, with the reason. Every file is written under a temporary
    name and then renamed, the page last.
    """
    from dragfl.report.html import write_page

    return write_page(runs if isinstance(runs, Summary) else read_summary(runs), Path(out), title=title, pdf=pdf)


def arena_numbers(folder: str | Path) -> dict[str, Any]:
    """The numbers of an arena as plain values: accuracy, drop, worst case and detection of attackers in every cell."""
    from dragfl.report.arena import numbers

    return numbers.arena_numbers(folder)


def write_arena_report(folder: str | Path, *, title: str | None = None) -> Path:
    """Write arena.html and figures/ into the folder of an arena; return the path of the page.

    Cells that have not finished are marked.
    """
    from dragfl.report.arena.html import write_arena_page
    from dragfl.report.arena.results import load_arena

    return write_arena_page(load_arena(folder), Path(folder), title=title)
