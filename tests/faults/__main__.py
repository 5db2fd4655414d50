"""`python -m tests.faults`: inject faults by the hundred, print one table, end with exit code 1 if anything is lost."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from pathlib import Path

from rich.console import Console

from tests.faults.rows import ROWS, run_row
from tests.faults.table import Row, describe_machine, read_rows, rich_table, write_json


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rows named on the command line; the exit code is 1 if anything was lost."""
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--only", action="append", choices=list(ROWS), metavar="ROW", help="rows; default: all")
    parser.add_argument("--quick", action="store_true", help="a few faults of each kind")
    parser.add_argument("--seed", type=int, default=0, help="of all random choices (default: 0)")
    parser.add_argument("--out", type=Path, help="JSON file of the table; --only replaces its rows in it")
    args = parser.parse_args(argv)
    console, names, machine = Console(), args.only or list(ROWS), describe_machine(args.seed, args.quick)
    rows: dict[str, Row] = read_rows(args.out) if args.only and args.out else {}
    with ProcessPoolExecutor(2, mp_context=get_context("spawn"), max_tasks_per_child=1) as pool:
        waiting = {pool.submit(run_row, name, args.seed, args.quick): name for name in names}
        for done in as_completed(waiting):
            row = rows[waiting[done]] = done.result()
            console.print(f"{waiting[done]}: {row.injected:,} injected, {len(row.lost)} lost, {row.seconds:.0f} s")
            for text in sorted(set(row.lost)):
                console.print(text, style="red", markup=False, highlight=False)
            if args.out:  # now: the next row may take long
                write_json(args.out, machine, {name: rows[name] for name in ROWS if name in rows})
    table = [rows[name] for name in names]
    Console(width=max(console.width, 130)).print(rich_table(table))
    console.print(", ".join(f"{key} {value}" for key, value in machine.items()), highlight=False)
    return 1 if any(row.lost for row in table) else 0


if __name__ == "__main__":
    sys.exit(main())
