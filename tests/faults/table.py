"""The table of faults: one row for each fault and kind of run, printed, and written as JSON and Markdown."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rich.table import Table

ROOT = Path(__file__).resolve().parents[2]
OUTCOMES = ("same_bytes", "named", "harmless", "lost")


@dataclass
class Row:
    """The outcomes of one fault; each injection has exactly one.

    same_bytes: the run went on or was resumed, and its files are those of the uninterrupted run, byte for byte
    named: refused with an error that names the file or the reason; nothing wrong was returned
    harmless: read or used with exactly the right numbers
    lost: anything else, with a description of each
    """

    fault: str
    kind: str = ""  # of run
    trials: int = 0
    injected: int = 0
    same_bytes: int = 0
    named: int = 0
    harmless: int = 0
    lost: list[str] = field(default_factory=list)
    skipped: str = ""  # why nothing was injected
    note: str = ""
    seconds: float = 0.0

    def add(self, outcome: str, count: int = 1, detail: str = "") -> None:
        """Count injections with the same outcome."""
        self.injected += count
        if outcome == "lost":
            self.lost += [detail] * count
        else:
            setattr(self, outcome, getattr(self, outcome) + count)

    @property
    def cells(self) -> list[str]:
        numbers = [self.trials, self.injected, self.same_bytes, self.named, self.harmless, len(self.lost)]
        what = self.skipped and f" (skipped: {self.skipped})"
        return [self.fault + what, self.kind, *(f"{number:,}" for number in numbers), f"{self.seconds:.0f}"]


HEADINGS = ("fault", "kind of run", "trials", "injected", "same bytes", "named", "harmless", "LOST", "seconds")


def rich_table(rows: Sequence[Row]) -> Table:
    """The table of all rows for a terminal."""
    table = Table(*HEADINGS[:2], title="faults", title_justify="left", title_style="bold")
    for heading in HEADINGS[2:]:
        table.add_column(heading, justify="right")
    for row in rows:
        table.add_row(*row.cells, style="bold red" if row.lost else "dim" if row.skipped else "")
    return table


def describe_machine(seed: int, quick: bool) -> dict[str, Any]:
    """Machine, versions, commit and settings of this call."""
    names = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    git = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, capture_output=True, text=True)
    return {
        "cpu": names[0].partition(":")[2].strip() if names else platform.machine(),
        "cores": os.cpu_count(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "torch": version("torch"),
        "commit": git.stdout.strip() or "unknown",
        "seed": seed,
        "quick": quick,
    }


def write_json(path: Path, machine: dict[str, Any], rows: Mapping[str, Row]) -> None:
    table = {**machine, "rows": {name: asdict(row) for name, row in rows.items()}}
    path.write_text(json.dumps(table, indent=1) + "\n")


def read_rows(path: Path) -> dict[str, Row]:
    """The rows of a file that `write_json` has written; none if there is no file."""
    return {name: Row(**row) for name, row in json.loads(path.read_text())["rows"].items()} if path.exists() else {}


def render_markdown(path: Path) -> str:
    """The table of a file that `write_json` has written."""
    table, rows = json.loads(path.read_text()), list(read_rows(path).values())
    lines = ["| " + " | ".join(HEADINGS) + " |", "|---|---|" + "---:|" * 7]
    lines += ["| " + " | ".join(row.cells) + " |" for row in rows]
    injected, lost = sum(row.injected for row in rows), sum(len(row.lost) for row in rows)
    where = f"{table['cpu']}, {table['cores']} cores, Linux {table['kernel']}, Python {table['python']}"
    lines += ["", f"{injected:,} faults, {lost} lost. {where}, torch {table['torch']}; commit {table['commit']}, seed"]
    lines[-1] += f" {table['seed']}."
    return "\n".join(lines) + "\n"
