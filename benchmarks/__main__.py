"""`python -m benchmarks [WORKLOAD ...]`: measure speed as ratios within one run and write bench.json and bench.png."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from benchmarks import aggregation, aggregators, growth, memory, root_rules, rounds, trainers
from benchmarks.results import BUSY, Comparison, Row, describe_environment
from benchmarks.timing import Tick, silent
from benchmarks.workloads import WORKLOADS

NAMES = ("W1", "W2", "W3", "W4", "W5", "aggregators", "root", "trainers", "flower")
REPEATS = 9


def main(argv: Sequence[str] | None = None) -> int:
    """Run the benchmarks named on the command line and return the exit code."""
    words = sys.argv[1:] if argv is None else list(argv)
    if words[:1] == ["growth"]:  # has options of its own
        return growth.main(words[1:])
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Measure dragfl against the bare kernels, a plain PyTorch loop, and other libraries that are "
        "installed. Contenders take turns in one run; medians and ratios are printed, written as JSON and drawn. "
        "W1, W2: rounds of the MLP; W3: rounds of the CNN; W4: aggregation; W5: 10,000 clients per round; "
        "aggregators: robust rules against ByzFL; root: rounds of rules that use root data; trainers: every trainer, "
        "by model shape; flower: memory of a Flower server, seconds of a round on Flower. "
        "`growth --help`: time and memory against clients, population, parameters and workers.",
    )
    parser.add_argument("names", nargs="*", metavar="WORKLOAD", help=f"of {', '.join(NAMES)}; default: W1 to W5")
    parser.add_argument("--repeats", type=int, default=REPEATS, help=f"turns of each contender (default: {REPEATS})")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="for bench.json and bench.png (default: bench)")
    args = parser.parse_args(argv)
    unknown = [name for name in args.names if name not in NAMES]
    if unknown:
        parser.error(f"unknown workload '{unknown[0]}'; the workloads are {', '.join(NAMES)}")
    if args.repeats < 1:
        parser.error(f"--repeats {args.repeats}; give 1 or more")
    console, comparisons, environment = Console(), list[Comparison](), describe_environment()
    if environment["load"] > BUSY:
        load = f"load average {environment['load']}: other processes use this machine, the ratios may be unreliable"
        console.print(load, style="yellow")
    for name in args.names or NAMES[:5]:
        with _show_progress(console, name) as tick:
            found = measure(name, args.repeats, tick)
        if name == "trainers":
            _print_trainers(console, found)
        else:
            for comparison in found:
                _print_comparison(console, comparison)
        comparisons += found
        write_results(args.out, environment, comparisons)  # after every workload: the next one may take long
    return 0


def measure(name: str, repeats: int, tick: Tick = silent) -> list[Comparison]:
    """Run one benchmark by name."""
    if name in WORKLOADS:
        found = [rounds.measure(WORKLOADS[name], repeats, tick)]
        return [*found, memory.measure(WORKLOADS[name], tick)] if name == "W5" else found
    if name == "flower":
        from benchmarks import flower_memory, flower_rounds  # they need flwr

        return [flower_memory.measure(tick), flower_rounds.measure(repeats, tick)]
    others = {"W4": aggregation, "aggregators": aggregators, "root": root_rules, "trainers": trainers}
    return others[name].measure(repeats, tick)


def write_results(out: Path, environment: dict[str, Any], comparisons: list[Comparison]) -> None:
    """Write bench.json, and bench.png if matplotlib is installed."""
    out.mkdir(parents=True, exist_ok=True)
    table = {**environment, "comparisons": [asdict(comparison) for comparison in comparisons]}
    (out / "bench.json").write_text(json.dumps(table, indent=1) + "\n")
    drawn = False
    if find_spec("matplotlib") is not None:
        from benchmarks.figure import draw

        drawn = draw(comparisons, out / "bench.png")
    print(f"wrote {out / 'bench.json'}{' and bench.png' if drawn else ''}", flush=True)


@contextmanager
def _show_progress(console: Console, name: str) -> Iterator[Tick]:
    """A live line with the running contender on a terminal, one plain line in a pipe."""
    if not console.is_terminal:
        print(f"{name} ...", flush=True)
        yield silent
        return
    with console.status(name) as status:
        yield lambda contender: status.update(f"{name}: {contender}")


def _print_comparison(console: Console, comparison: Comparison) -> None:
    title = f"{comparison.workload}: {comparison.title}"
    table = Table("", title=title, title_justify="left", title_style="bold")
    table.columns[0].no_wrap = True
    for heading in (f"median {comparison.unit}", *(f"/ {base}" for base in comparison.bases), "target"):
        table.add_column(heading, justify="right")
    for row in comparison.rows:
        ratios = [f"{row.ratios[base]:.2f}" if base in row.ratios else "" for base in comparison.bases]
        table.add_row(comparison.label(row), comparison.value(row), *ratios, _verdict(row))
    console.print(table)
    for note in comparison.notes:
        console.print(note, highlight=False)


def _print_trainers(console: Console, comparisons: list[Comparison]) -> None:
    """Shapes by trainers; the one that "auto" selects is bold."""
    names = list(dict.fromkeys(row.name for comparison in comparisons for row in comparison.rows))
    table = Table("median ms", title="trainers, rounds of 4 clients", title_justify="left", title_style="bold")
    for name in (*names, "auto"):
        table.add_column(name, justify="right")
    for comparison in comparisons:
        selected = comparison.notes[0].removeprefix("auto: ")
        numbers = {row.name: comparison.value(row) for row in comparison.rows}
        best = min(comparison.rows, key=lambda row: row.median).name
        cells = [f"[bold]{numbers[name]}[/]" if name == selected else numbers.get(name, "–") for name in names]
        table.add_row(comparison.title, *cells, selected if best == selected else f"{selected}, [yellow]not fastest[/]")
    console.print(table)


def _verdict(row: Row) -> str:
    limits = ", ".join(f"{limit:g}" for limit in row.limits.values())
    word = "[green]met[/]" if all(row.met.values()) else "[yellow]missed[/]"
    return f"{limits} {word}" if limits else ""


if __name__ == "__main__":
    sys.exit(main())
