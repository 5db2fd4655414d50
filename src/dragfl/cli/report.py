"""`dragfl report RUN...`"""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "report",
        help="compare runs: a table, figures and one self-contained page",
        description="Read run directories (or folders that hold some) and write report.html and figures/.",
    )
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or folders of them")
    command.add_argument("--out", type=Path, default=Path("report"), help="where to write (default: report)")
    command.add_argument("--title", help="the title of the page")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from dragfl import report

    Console().print(report.rich_table(report.table(args.runs)))
    page = report.write(args.runs, args.out, title=args.title)
    print(f"report: {page}")
    return 0
