"""`dragfl report RUN... [--csv] [--latex] [--json] [--compare A B]`"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.cli.output import print_nodes

if TYPE_CHECKING:
    from dragfl.report import Summary


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "report",
        help="compare runs: a table, figures, a self-contained HTML page, CSV, LaTeX, JSON",
        description="Print a table of the runs and write report.html and figures/. Runs that cannot be read are "
        "listed with the reason and left out; so are the tuning runs of a sweep.",
    )
    command.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="run directories, or folders of them")
    command.add_argument("--out", type=Path, default=Path("report"), help="output folder (default: report)")
    command.add_argument("--title", help="title of the page")
    command.add_argument("--csv", action="store_true", help="write table.csv: mean, deviation, interval as numbers")
    command.add_argument("--latex", action="store_true", help="write table.tex: a booktabs table, the best in bold")
    command.add_argument("--pdf", action="store_true", help="write each figure as PDF too")
    command.add_argument("--json", action="store_true", help="print the report as one JSON object, and nothing else")
    command.add_argument("--no-figures", action="store_true", help="write no page and no figures")
    command.add_argument(
        "--compare",
        nargs=2,
        action="append",
        default=[],
        metavar=("A", "B"),
        help="compare two algorithms or labels by pairs of runs with the same seed; may be given several times",
    )
    command.add_argument(
        "--metric",
        default="final_accuracy",
        help="of --compare: final_accuracy (default), best_accuracy, rounds_to_target, or a key of metrics.jsonl",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl import report
    from dragfl.report.export import check_folder
    from dragfl.report.figures.files import missing_packages

    check_folder(args.out)
    summary = report.read_summary(args.runs, args.compare, args.metric)
    files: dict[str, str] = {}
    if args.csv:
        files["csv"] = str(report.write_csv(summary.rows, args.out / "table.csv"))
    if args.latex:
        files["latex"] = str(report.write_latex(summary.rows, args.out / "table.tex"))
    if not args.json:
        print_summary(summary)
    missing = missing_packages("matplotlib", "jinja2")
    if not args.no_figures and not missing:
        files["report"] = str(report.write_report(summary, args.out, title=args.title, pdf=args.pdf))
    elif not args.no_figures:
        out = sys.stderr if args.json else sys.stdout
        print(f"no page and no figures: {' and '.join(missing)} not installed: pip install 'dragfl[report]'", file=out)
    if args.json:
        print(json.dumps(summary.values() | {"files": files}, allow_nan=False))
    else:
        for kind, path in files.items():
            print(f"{kind}: {path}")
    return 0


def print_summary(summary: Summary) -> None:
    """The tables, the comparisons and what is left out."""
    from rich.console import Console

    from dragfl.report import rich_tables
    from dragfl.report.nodes import node_tables

    console = Console()
    for table in rich_tables(summary.rows, console.width):
        console.print(table)
    for label, _, nodes in node_tables(summary.groups):
        print_nodes(nodes, f"{label}: ")
    for comparison in summary.comparisons:
        console.print("\n".join(comparison.lines()), markup=False, highlight=False, soft_wrap=True)
    for note in summary.found.notes():
        console.print(note, markup=False, highlight=False, soft_wrap=True)
