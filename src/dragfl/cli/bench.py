"""`dragfl bench`: speed as ratios within one run, against the bare kernels, a plain PyTorch loop, peers and ByzFL."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragfl.errors import SpecError

if TYPE_CHECKING:
    from rich.console import Console

WORKS = ("W1", "W2", "W3", "W4", "W5", "aggregators", "trainers")
REPEATS = 9


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "bench",
        help="measure speed against the bare kernels, a plain PyTorch loop, and libraries that are installed",
        description="Contenders take turns in one run; medians and ratios are printed, written as JSON and drawn. "
        "W1, W2: rounds of the MLP; W3: rounds of the CNN; W4: aggregation; "
        "W5: 10,000 clients a round; aggregators: robust rules against ByzFL; trainers: every way to train, by shape.",
    )
    command.add_argument("what", nargs="*", metavar="WORK", help=f"of {', '.join(WORKS)}; default: W1 to W5")
    command.add_argument("--repeats", type=int, default=REPEATS, help=f"turns of each contender (default: {REPEATS})")
    command.add_argument(
        "--out", type=Path, default=Path("bench"), help="for bench.json and bench.png (default: bench)"
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    unknown = [name for name in args.what if name not in WORKS]
    if unknown or args.repeats < 1:
        wrong = f"unknown work '{unknown[0]}'; give" if unknown else f"--repeats {args.repeats}; give 1 or more, and"
        raise SpecError(f"bench: {wrong} some of {', '.join(WORKS)}")
    console, panels, about = Console(), [], part("results").about()
    if about["load"] > part("results").BUSY:
        console.print(
            f"load {about['load']}: others are at work on this machine, and ratios may be off", style="yellow"
        )
    for name in args.what or WORKS[:5]:
        with _progress(console, name) as tick:
            found = part("measure").measure(name, args.repeats, tick)
        if name == "trainers":
            _matrix(console, found)
        else:
            for panel in found:
                _print(console, panel)
        panels += found
        _write(args.out, about, panels)  # after every work: the next one may take long
    return 0


def _write(out: Path, about: dict[str, Any], panels: list[Any]) -> None:
    out.mkdir(parents=True, exist_ok=True)
    table = {**about, "panels": [asdict(panel) for panel in panels]}
    (out / "bench.json").write_text(json.dumps(table, indent=1) + "\n")
    drawn = find_spec("matplotlib") is not None and part("figure").draw(panels, out / "bench.png")
    print(f"written: {out / 'bench.json'}{' and bench.png' if drawn else ''}", flush=True)


@contextmanager
def _progress(console: Console, name: str) -> Iterator[Any]:
    """A live line that says who runs; a plain one in a pipe."""
    if not console.is_terminal:
        print(f"{name} ...", flush=True)
        yield lambda who: None
        return
    with console.status(name) as status:
        yield lambda who: status.update(f"{name}: {who}")


def _print(console: Console, panel: Any) -> None:
    from rich.table import Table

    table = Table("", title=f"{panel.work}: {panel.title}", title_justify="left", title_style="bold")
    table.columns[0].no_wrap = True
    for heading in (f"median {panel.unit}", *(f"/ {base}" for base in panel.bases), "target"):
        table.add_column(heading, justify="right")
    for row in panel.rows:
        ratios = [f"{row.ratios[base]:.2f}" if base in row.ratios else "" for base in panel.bases]
        table.add_row(panel.label(row), panel.value(row), *ratios, _verdict(row))
    console.print(table)
    for note in panel.notes:
        console.print(note, highlight=False)


def _matrix(console: Console, panels: list[Any]) -> None:
    """Shapes by trainers; what the rule chooses is bold."""
    from rich.table import Table

    trainers = list(dict.fromkeys(row.name for panel in panels for row in panel.rows))
    table = Table("median ms", title="trainers, rounds of 4 clients", title_justify="left", title_style="bold")
    for name in (*trainers, "auto"):
        table.add_column(name, justify="right")
    for panel in panels:
        chosen = panel.notes[0].removeprefix("auto: ")
        numbers = {row.name: panel.value(row) for row in panel.rows}
        best = min(panel.rows, key=lambda row: row.median).name
        cells = [f"[bold]{numbers[name]}[/]" if name == chosen else numbers.get(name, "–") for name in trainers]
        table.add_row(panel.title, *cells, chosen if best == chosen else f"{chosen}, [yellow]not fastest[/]")
    console.print(table)


def _verdict(row: Any) -> str:
    if row.met is None:
        return ""
    limits = ", ".join(f"{limit:g}" for limit in row.limits.values())
    return f"{limits} [green]met[/]" if row.met else f"{limits} [yellow]missed[/]"


def part(name: str) -> Any:
    """A module of the benchmarks folder, which lies beside the source and not in the package."""
    root = Path(__file__).resolve().parents[3]
    if not (root / "benchmarks" / f"{name}.py").is_file():
        raise SpecError("bench: the benchmarks folder is part of the source tree; run it from a git clone")
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))  # worker processes look for the data of a work along the same path
    return import_module(f"benchmarks.{name}")
