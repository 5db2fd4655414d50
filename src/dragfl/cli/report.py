"""`dragfl report RUN...`"""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "report",
        help="compare runs: a table, figures and a self-contained HTML page",
        description="Print a table of the runs and write report.html and figures/.",
    )
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or folders of them")
    command.add_argument("--out", type=Path, default=Path("report"), help="output folder (default: report)")
    command.add_argument("--title", help="title of the page")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from dragfl import report

    Console().print(report.rich_table(report.summarize_runs(args.runs)))
    print(f"report: {report.write_report(args.runs, args.out, title=args.title)}")
    return 0
