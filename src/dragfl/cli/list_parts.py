"""`dragfl list [algorithms|aggregates|...]`"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

KINDS = ("algorithms", "corrections", "aggregates", "servers", "attacks", "partitions", "datasets", "models")
LEGEND = (
    "down/up: vectors of the model's length for each client and round, the model and the update included. "
    "stream: updates are added up as they arrive, in the memory of a few."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "list algorithms, attacks, datasets and other names for a spec"
    command = commands.add_parser("list", help=about, description=about.capitalize() + ".")
    command.add_argument("kind", nargs="?", choices=KINDS, help="default: all")
    command.add_argument("--json", action="store_true", help="print one JSON object: descriptions, settings, defaults")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from dragfl.cli.parts_table import list_rows, list_values

    kinds = [args.kind] if args.kind else KINDS
    if args.json:
        print(json.dumps({kind: list_values(kind) for kind in kinds}, allow_nan=False))
        return 0
    console = Console(highlight=False)
    for kind in kinds:
        if kind == "algorithms":
            print_algorithms(console)
        else:
            print_table(console, kind, ("name", "description", "settings (default)"), list_rows(kind))
    return 0


def print_algorithms(console: Console) -> None:
    """Two tables: the algorithms with their costs, and their settings."""
    from dragfl.cli.parts_table import describe_algorithms

    rows = describe_algorithms()
    keeps = ("client\nkeeps", "server\nkeeps")
    head = ("name", "paper", "correction", "aggregate", "server", "down/\nup", *keeps, "stream")
    body = [
        (r.name, r.short_paper, *r.short_parts, r.vectors, r.client, r.short_server, r.streams.split(",")[0])
        for r in rows
    ]
    print_table(console, "algorithms", head, body, gap=0)  # one line each, in 100 columns
    twice = ", ".join(r.name for r in rows if r.cost.passes > 1)
    console.print(f"{LEGEND} Round 0 takes two passes in {twice}.\n", style="italic")
    lines = [
        (row.name if i == 0 else "", s.name, str(s.default), s.symbol)
        for row in rows
        for i, s in enumerate(row.settings)
    ]
    print_table(console, "settings of algorithms", ("name", "setting", "default", "symbol or meaning"), lines)


def print_table(console: Console, title: str, head: Sequence[str], body: list[Any], gap: int = 1) -> None:
    from rich import box
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", header_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.show_edge, table.pad_edge = (0, gap, 0, 0), False, False
    for heading in head:
        table.add_column(heading, overflow="fold", no_wrap=heading == "name")
    for row in body:
        table.add_row(*row)
    console.print(table)
    console.print()
