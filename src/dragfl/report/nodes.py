"""The nodes of a run on Flower: rounds sampled, rounds used, and why results are missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dragfl.report.groups import Group, seed_of
from dragfl.report.labels import NOT_SET
from dragfl.report.numbers import format_seeds
from dragfl.runs.directory import Run

if TYPE_CHECKING:
    from rich.table import Table

COLUMNS = ("node", "client", "used", "missing")
NUMBERS = ("client", "used")  # columns that are aligned to the right
FEW = 12  # nodes that a terminal always lists
NOTE = (
    "Used: rounds in which the result of a client was used, of those in which it was sampled. A client is shown "
    f"with its last node; {NOT_SET}: it never had one."
)


@dataclass(frozen=True)
class NodeRow:
    """One client of a federation."""

    client: int
    name: str | None  # of its last node; None if it never had one
    sampled: int
    used: int
    missing: Mapping[str, tuple[int, ...]]  # rounds without a usable result, by reason

    def cells(self) -> list[str]:
        """The row as text, by COLUMNS."""
        counts = sorted(self.missing.items(), key=lambda item: (-len(item[1]), item[1]))
        missing = "\n".join(f"{reason}: {len(rounds)} ({_rounds(rounds)})" for reason, rounds in counts)
        return [self.name or NOT_SET, str(self.client), f"{self.used} of {self.sampled}", missing or NOT_SET]

    def values(self) -> dict[str, Any]:
        """The row for JSON."""
        missing = {reason: list(rounds) for reason, rounds in self.missing.items()}
        return {
            "client": self.client, "node": self.name, "sampled": self.sampled, "used": self.used, "missing": missing
        }  # fmt: skip


def _rounds(rounds: Sequence[int]) -> str:
    """`round 7`, `rounds 3, 4, 9`; of many, the first and the last."""
    text = format_seeds(rounds)
    if text.count(",") > 4:
        return f"between rounds {rounds[0]} and {rounds[-1]}"
    return f"round{'s' if len(rounds) > 1 else ''} {text}"


def node_rows(run: Run) -> list[NodeRow]:
    """A row for each client with a node or a missing result, by client number; none for a run in the simulator."""
    if not run.nodes and not any("reason" in line for line in run.clients):
        return []
    sampled: dict[int, int] = {}
    names: dict[int, str] = {}
    missing: dict[int, dict[str, list[int]]] = {}
    for line in run.clients:
        n = len(line["client"])
        columns = (line.get(name) or [None] * n for name in ("dropped", "reason", "steps"))
        names |= {m: name for m, name in zip(line["client"], line.get("node", ()), strict=False) if name}
        for client, dropped, reason, steps in zip(line["client"], *columns, strict=True):
            sampled[client] = sampled.get(client, 0) + 1
            if dropped:
                why = str(reason or ("not finite" if steps else "no result"))
                missing.setdefault(client, {}).setdefault(why, []).append(line["round"])
    names |= {client: node["name"] for client, node in run.nodes.items()}
    rows = []
    for client in sorted(sampled.keys() | run.nodes.keys()):
        found = {why: tuple(rounds) for why, rounds in missing.get(client, {}).items()}
        asked = sampled.get(client, 0)
        used = asked - sum(map(len, found.values()))
        rows.append(NodeRow(client, names.get(client), asked, used, found))
    return rows


def node_tables(groups: Sequence[Group]) -> list[tuple[str, Run, list[NodeRow]]]:
    """(label, run, its nodes) of every run that has nodes; the label has the seed where a group has several runs."""
    return [
        (f"{group.label}, seed {seed_of(run)}" if len(group.runs) > 1 else group.label, run, rows)
        for group in groups
        for run in group.runs
        if (rows := node_rows(run))
    ]


def node_values(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """The same for JSON."""
    return [
        {"run": str(run.path), "label": label, "seed": seed_of(run), "nodes": [row.values() for row in rows]}
        for label, run, rows in node_tables(groups)
    ]


def describe_missing(rows: Sequence[NodeRow]) -> str:
    """`3 of 24`: results that are missing, of those that were expected."""
    sampled = sum(row.sampled for row in rows)
    return f"{sampled - sum(row.used for row in rows)} of {sampled}"


def rich_node_table(rows: Sequence[NodeRow]) -> Table:
    """The nodes for a terminal; of many nodes only those with a missing result."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=None, pad_edge=False, collapse_padding=True, header_style="bold")
    for name in COLUMNS:
        number = name in NUMBERS
        table.add_column(name, justify="right" if number else "left", no_wrap=number, overflow="fold")
    for row in rows:
        if row.missing or len(rows) <= FEW:
            table.add_row(*map(escape, row.cells()))
    return table
