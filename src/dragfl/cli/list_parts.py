"""`dragfl list [algorithms|aggregates|...|NAME]`"""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

KINDS = ("algorithms", "corrections", "aggregates", "servers", "attacks", "partitions", "datasets", "models")
VECTORS = "down/up: vectors of the model's length for each client and round, the model and the update included. "
STREAM = "stream: updates are added up as they arrive, in the memory of a few. Round 0 takes two passes in {}. "


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    about = "list algorithms, attacks, datasets and other names for a spec"
    command = commands.add_parser("list", help=about, description=about.capitalize() + ".")
    command.add_argument(
        "what", nargs="?", metavar="KIND|NAME", help=f"{', '.join(KINDS)}, or one name for its details (default: all)"
    )
    command.add_argument("--json", action="store_true", help="print one JSON object: descriptions, settings, defaults")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from dragfl.cli.parts_table import list_rows, list_values
    from dragfl.cli.text_table import NO_BREAK, print_table

    if args.what and args.what not in KINDS:
        return list_one(args.what, as_json=args.json)
    kinds = [args.what] if args.what else KINDS
    if args.json:
        print(json.dumps({kind: list_values(kind) for kind in kinds}, allow_nan=False))
        return 0
    console = Console(highlight=False)
    for kind in kinds:
        if kind == "algorithms":
            print_algorithms(console)
            continue
        head = ("name", "description", "settings (default)")
        rows = [(name, about, settings.replace(" (", f"{NO_BREAK}(")) for name, about, settings in list_rows(kind)]
        size = 3 if any(settings for _, _, settings in rows) else 2
        left_out = print_table(console, kind, head[:size], [row[:size] for row in rows], drop=head[:0:-1])
        _print_left_out(console, left_out)
    return 0


def list_one(name: str, *, as_json: bool) -> int:
    """Print everything of this name: an algorithm may have the name of a part."""
    from rich.console import Console

    from dragfl.cli.parts_table import list_values
    from dragfl.cli.text_table import print_table
    from dragfl.errors import SpecError, nearest

    known = {kind: {entry["name"]: entry for entry in list_values(kind)} for kind in KINDS}
    found = {kind: entries[name] for kind, entries in known.items() if name in entries}
    if not found:
        close = nearest(name, [*KINDS, *(other for entries in known.values() for other in entries)])
        hint = close if "did you mean" in close else f"; give one of {', '.join(KINDS)}, or a name of theirs"
        raise SpecError(f"list: unknown name '{name}'{hint}")
    if as_json:
        print(json.dumps({kind: [entry] for kind, entry in found.items()}, allow_nan=False))
        return 0
    console = Console(highlight=False)
    for kind, entry in found.items():
        facts = [
            (key.replace("_", " "), ", ".join(map(str, value)) if isinstance(value, list) else str(value))
            for key, value in entry.items()
            if key not in ("name", "settings") and value != []
        ]
        print_table(console, "", (kind.removesuffix("s"), name), facts)
        rows = [
            (s["name"], "required" if s["required"] else str(s["default"]), s.get("meaning", ""))
            for s in entry["settings"]
        ]
        if rows:
            print_table(console, "", ("setting", "default", "symbol or meaning"), rows)
    return 0


def print_algorithms(console: Console) -> None:
    """Two tables: the algorithms with their costs, and their settings."""
    from dragfl.cli.parts_table import describe_algorithms
    from dragfl.cli.text_table import NO_BREAK, print_table

    rows = describe_algorithms()
    costs = ("down/up", "server keeps", "client keeps", "stream")
    head = ("name", "paper", "correction", "aggregate", "server", *costs)
    body = [
        (r.name, r.short_paper, *r.parts.split(" x "), r.vectors, r.short_server, r.client, r.streams.split(",")[0])
        for r in rows
    ]
    body = [tuple(cell.replace(" ", NO_BREAK) for cell in line) for line in body]  # one line each
    drop = (*reversed(costs), "paper", "server", "correction", "aggregate")
    left_out = print_table(console, "algorithms", head, body, drop=drop, gap=1)
    notes = "" if "down/up" in left_out else VECTORS
    notes += "" if "stream" in left_out else STREAM.format(", ".join(r.name for r in rows if r.cost.passes > 1))
    if notes:
        console.print(f"{notes.strip()}\n", style="italic")
    _print_left_out(console, left_out)
    lines = [
        (row.name if i == 0 else "", s.name, str(s.default), s.symbol)
        for row in rows
        for i, s in enumerate(row.settings)
    ]
    columns = ("name", "setting", "default", "symbol or meaning")
    _print_left_out(console, print_table(console, "settings of algorithms", columns, lines, drop=columns[:1:-1]))


def _print_left_out(console: Console, columns: list[str]) -> None:
    if columns:
        console.print(f"Not shown for lack of width: {', '.join(columns)}. `dragfl list NAME` shows all of one.\n")
