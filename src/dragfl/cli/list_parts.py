"""`dragfl list [algorithms|aggregates|...]`

`python -m dragfl.cli.list_parts --markdown` prints the table of algorithms for the documentation, and `--costs` what
`costs.json` should hold.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragfl.cli.costs import Cost, found, known, of, written

if TYPE_CHECKING:
    from rich.console import Console

    from dragfl.algorithms import Preset

KINDS = ("algorithms", "corrections", "aggregates", "servers", "attacks", "partitions", "datasets", "models")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("list", help="what a spec can name", description="What a spec can name.")
    command.add_argument("kind", nargs="?", choices=KINDS, help="default: all")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    console = Console(highlight=False)
    for kind in [args.kind] if args.kind else KINDS:
        if kind == "algorithms":
            show_algorithms(console)
        else:
            show(console, kind, ("name", "what", "settings (default)"), rows(kind))
    return 0


def rows(kind: str) -> list[tuple[str, str, str]]:
    """(name, what it is, its settings) of everything of this kind, read off the parts themselves."""
    from dragfl import algorithms, attacks, data, models
    from dragfl.data.partitions import PARTITIONS

    if kind == "algorithms":
        return [
            (sheet.name, f"{sheet.parts}; {sheet.paper}", ", ".join(f"{s.name} ({s.default})" for s in sheet.settings))
            for sheet in sheets()
        ]
    if kind == "datasets":
        return [(name, about, "") for name, about in data.DATASETS.items()]
    registries: dict[str, Mapping[str, Any]] = {
        "corrections": algorithms.PARTS["correction"],
        "aggregates": algorithms.PARTS["aggregate"],
        "servers": algorithms.PARTS["server"],
        "attacks": attacks.ATTACKS,
        "partitions": PARTITIONS,
        "models": models.MODELS,
    }
    return [(name, _first_line(part), ", ".join(settings(part))) for name, part in registries[kind].items()]


def settings(part: Any) -> list[str]:
    """`name (default)` of every setting."""
    if dataclasses.is_dataclass(part):
        return [
            f.name if f.default is dataclasses.MISSING else f"{f.name} ({f.default})" for f in dataclasses.fields(part)
        ]
    return [
        f"{name} ({p.default})" for name, p in inspect.signature(part).parameters.items() if p.default is not p.empty
    ]


@dataclass(frozen=True)
class FederationInfo:
    """One setting of an algorithm, with its meaning or symbol in the paper."""

    name: str
    default: Any
    symbol: str


@dataclass(frozen=True)
class Sheet:
    """All there is to know of a named algorithm."""

    name: str
    paper: str
    parts: str
    settings: list[FederationInfo]
    cost: Cost

    @property
    def short_parts(self) -> list[str]:
        """The three parts; a long one of the algorithm's own name is not written twice in a line."""
        return ["itself" if part == self.name and len(part) > 10 else part for part in self.parts.split(" x ")]

    @property
    def streams(self) -> str:
        if not self.cost.streams:
            return "no"
        return "yes" if self.cost.passes == 1 else "yes, round 0 twice"

    @property
    def server(self) -> str:
        return ", ".join([*self.cost.server, *(["root data"] if self.cost.root else [])]) or "–"

    @property
    def client(self) -> str:
        return ", ".join(self.cost.client) or "–"

    @property
    def short_paper(self) -> str:
        """Author and year, for a narrow column."""
        return self.paper.split(",")[0].replace(" et al.", "")

    @property
    def vectors(self) -> str:
        return f"{self.cost.down}/{self.cost.up}"


def sheets() -> list[Sheet]:
    """Every named algorithm."""
    from dragfl.algorithms import PRESETS

    costs = known()
    return [
        Sheet(
            name,
            preset.paper,
            f"{preset.correction} x {preset.aggregate} x {preset.server}",
            list(_settings(preset)),
            costs.get(name) or of(name),
        )
        for name, preset in PRESETS.items()
    ]


def _settings(preset: Preset) -> Iterator[FederationInfo]:
    from dragfl.algorithms import PARTS

    for flat, places in preset.flat().items():
        part, name = places[0]
        default = next(f.default for f in dataclasses.fields(PARTS[part][getattr(preset, part)]) if f.name == name)
        meanings = {symbols(PARTS[part][getattr(preset, part)])[name]: None for part, name in places}
        yield FederationInfo(flat, preset.defaults.get(part, {}).get(name, default), "; ".join(meanings))


def symbols(part: Any) -> dict[str, str]:
    """Argument -> symbol, from the table in a part's docstring."""
    table: list[tuple[str, str]] = re.findall(r"^ *\| *(\w+) *\| *(.+?) *\|$", part.__doc__ or "", re.MULTILINE)
    return dict(table[1:])


def show_algorithms(console: Console) -> None:
    """Two tables: what the algorithms are and cost, and what can be set."""
    made = sheets()
    keeps = ("client\nkeeps", "server\nkeeps")
    head = ("name", "paper", "correction", "aggregate", "server", "down/\nup", *keeps, "stream")
    body = [
        (s.name, s.short_paper, *s.short_parts, s.vectors, s.client, s.server, s.streams.split(",")[0]) for s in made
    ]
    show(console, "algorithms", head, body, gap=0)  # a line each, in 100 columns
    twice = ", ".join(s.name for s in made if s.cost.passes > 1)
    console.print(f"{MEANING} Round 0 takes two passes in {twice}.\n", style="italic")
    lines: list[tuple[str, ...]] = []
    for sheet in made:
        lines += [
            (sheet.name if i == 0 else "", s.name, str(s.default), s.symbol) for i, s in enumerate(sheet.settings)
        ]
    show(console, "settings of algorithms", ("name", "setting", "default", "symbol or meaning"), lines)


MEANING = (
    "down/up: vectors of the model's length for each client and round, the model and the update included. "
    "stream: updates are added up as they arrive, in the memory of a few."
)


def show(console: Console, title: str, head: tuple[str, ...], body: list[Any], gap: int = 1) -> None:
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


def markdown() -> str:
    """The page of algorithms for the documentation."""
    made = sheets()
    lines = [
        "# Algorithms",
        "",
        "Written by `python -m dragfl.cli.list_parts --markdown` from the parts themselves; `dragfl list algorithms`",
        "shows the same. An algorithm is correction × aggregate × server step, and any combination of parts runs.",
        "",
        "| name | paper | made of | vectors down/up | client state | server state | streams |",
        "|---|---|---|---|---|---|---|",
    ]
    for s in made:
        parts = s.parts.replace(" x ", " × ")
        lines.append(f"| `{s.name}` | {s.paper} | {parts} | {s.vectors} | {s.client} | {s.server} | {s.streams} |")
    lines += ["", *MARKDOWN_NOTES, "", "## Settings", "", "| name | setting | default | symbol or meaning |"]
    lines.append("|---|---|---|---|")
    for s in made:
        for i, setting in enumerate(s.settings):
            name = f"`{s.name}`" if i == 0 else ""
            lines.append(f"| {name} | `{setting.name}` | {setting.default} | {setting.symbol} |")
    return "\n".join(lines) + "\n"


MARKDOWN_NOTES = (
    "*Vectors* have the length of the model and are counted for each client and round, the model and the update",
    "included; `bytes_down` and `bytes_up` of a run are measured. *Client state* is what every client keeps between",
    "rounds, *server state* what the server keeps beside the model. An algorithm *streams* when updates are added up",
    "as they arrive, in the memory of a few, however many clients take part.",
)


def _first_line(part: Any) -> str:
    return (part.__doc__ or "").strip().splitlines()[0] if part.__doc__ else ""


def main(argv: list[str]) -> int:
    """What the documentation and `costs.json` are made of."""
    parser = argparse.ArgumentParser(prog="python -m dragfl.cli.list_parts", description=main.__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--markdown", action="store_true", help="docs/algorithm-table.md")
    what.add_argument("--costs", action="store_true", help="src/dragfl/cli/costs.json")
    args = parser.parse_args(argv)
    sys.stdout.write(markdown() if args.markdown else written(found()))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
