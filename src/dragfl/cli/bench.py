"""`dragfl bench`: speed as ratios within one run, against a plain PyTorch loop, one read of memory and ByzFL."""

from __future__ import annotations

import argparse
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Console


CHOICES = ("training", "aggregation", "aggregators")


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "bench",
        help="measure speed against a plain PyTorch loop, one read of memory and ByzFL",
        description="Contenders take turns in one process; medians and ratios are printed and written as JSON.",
    )
    command.add_argument("what", nargs="?", choices=CHOICES, help="default: all, aggregators in the small size")
    command.add_argument("--out", type=Path, default=Path("bench"), help="where bench.json goes (default: bench)")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console
    from rich.table import Table

    results: dict[str, dict[str, Any]] = {}
    if args.what in (None, "training"):
        results["local training, MLP 784-500-47, 40 clients, U=5, B=20, 1 thread"] = _load("training").measure()
    if args.what in (None, "aggregation"):
        for threads in (1, 2):
            title = f"aggregation, (40, 416047) float32, {threads} thread{'s' if threads > 1 else ''}"
            results[title] = _load("aggregation").measure(threads)
    console = Console()
    for title, seconds in results.items():
        table = Table(title=title, title_justify="left", title_style="bold")
        base, floor = next(iter(seconds.items()))
        for heading in ("", "median ms", f"ratio to {base}"):
            table.add_column(heading, justify="right" if heading else "left")
        for name, value in seconds.items():
            table.add_row(name, f"{value * 1e3:.2f}", f"{value / floor:.2f}")
        console.print(table)
    if args.what in (None, "aggregators"):
        results |= _robust_rules(console, large=args.what is not None)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "bench.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    print(f"written: {path}")
    return 0


def _robust_rules(console: Console, *, large: bool) -> dict[str, dict[str, Any]]:
    """Every robust rule that ByzFL has too, and how many times as fast ours is."""
    from rich.table import Table

    rules = _load("aggregators")
    results: dict[str, dict[str, Any]] = {}
    for shape, repeats in [(rules.SMALL, 5), *([(rules.LARGE, 1)] if large else [])]:
        title = f"robust rules, {shape} float32, 1 thread"
        found = rules.measure(shape, repeats)
        table = Table("", title=title, title_justify="left", title_style="bold")
        for heading in ("median ms", "ByzFL ms", "times as fast"):
            table.add_column(heading, justify="right")
        for name, (ours, theirs) in found.items():
            cells = ("–", "–") if theirs is None else (f"{theirs * 1e3:.1f}", f"{theirs / ours:.1f}")
            table.add_row(name, f"{ours * 1e3:.1f}", *cells)
        console.print(table)
        results[title] = {name: {"dragfl": ours, "byzfl": theirs} for name, (ours, theirs) in found.items()}
    return results


def _load(name: str) -> Any:
    """A module of the benchmarks folder, which lies beside the source and not in the package."""
    folder = Path(__file__).resolve().parents[3] / "benchmarks"
    if not (folder / f"{name}.py").is_file():
        raise SpecError("bench: the benchmarks folder is part of the source tree; run it from a git clone")
    sys.path.insert(0, str(folder))
    try:
        return import_module(name)
    finally:
        sys.path.remove(str(folder))
