"""`dragfl arena [EXPERIMENT.toml] --defences a,b+c --attacks x,y`"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from dragfl.cli.sweep import add_jobs, jobs


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "arena",
        help="play every defence against every attack and see where each breaks",
        description="A run for every defence, attack, partition, fraction of attackers and seed, and one without "
        "attackers; then a page that maps what is left of the accuracy. Settings are taken from the [algorithms.NAME] "
        "and [attacks.NAME] tables of the experiment. The same command goes on where an interrupted one stopped.",
    )
    command.add_argument("experiment", nargs="?", help="a TOML file; with --quick the default is 20 clients on digits")
    command.add_argument("words", nargs="*", metavar="key=value", help="for example rounds=100")
    command.add_argument(
        "--defences", metavar="A,B,C+D", help="algorithms or rules; C+D is a chain (default: a choice)"
    )
    command.add_argument("--attacks", metavar="X,Y", help="names of `dragfl list attacks` (default: a choice)")
    command.add_argument("--partitions", metavar="P,Q", help='as in iid,{kind="dirichlet_class",a=0.1}')
    command.add_argument("--fractions", metavar="F,G", help="shares of the clients that attack, as in 0.2,0.4")
    command.add_argument("--seeds", metavar="0,1", default="0", help="default: 0")
    command.add_argument("--quick", action="store_true", help="at most 60 rounds: a look in minutes")
    command.add_argument("--out", type=Path, help="where the runs and the page go (default: arena/NAME)")
    add_jobs(command)
    command.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    command.add_argument("--quiet", action="store_true", help="print nothing but errors")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.errors import SpecError
    from dragfl.runs.arena import choose, fight, lay_out

    if any(word.startswith("seed=") for word in args.words):
        raise SpecError("arena: seed is one of its sides; give --seeds 3 or --seeds 0,1,2")
    tables, note = _tables(args)
    defences, attacks = choose(tables, _values("defences", args.defences), _values("attacks", args.attacks))
    arena = lay_out(
        tables,
        defences,
        attacks,
        partitions=_values("partitions", args.partitions),
        fractions=_values("fractions", args.fractions),
        seeds=_values("seeds", args.seeds) or (),
        out=args.out or Path("arena") / str(tables.get("name", "run")),
        note=note,
    )
    if args.dry_run:
        for p in arena.planned:
            print(p.folder)
        return 0

    from dragfl.cli.interrupt import polite_interrupt
    from dragfl.cli.progress import Tally

    with polite_interrupt() as should_stop, Tally(arena.planned, quiet=args.quiet) as tally:
        fight(
            arena,
            on_begin=tally.begin,
            on_record=tally.record,
            on_end=tally.end,
            should_stop=should_stop,
            jobs=jobs(args, len(arena.planned)),
        )
    return show(arena.folder, quiet=args.quiet)


def show(folder: Path, *, quiet: bool) -> int:
    """The matrix and the page of a finished arena."""
    from rich.console import Console

    from dragfl.errors import SpecError
    from dragfl.report import arena as report

    if not quiet:
        results, console = report.load(folder), Console()
        for matrix in results.matrices:
            for table in report.rich_tables(matrix, console.width):
                console.print(table)
        console.print(report.summary(results), markup=False, highlight=False)
    try:
        page = report.write(folder)
    except SpecError as error:  # no plotting library: the runs and the table are there all the same
        print(f"no figures: {error}")
        return 0
    if not quiet:
        print(f"report: {page}")
    return 0


def _tables(args: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The experiment, and what `--quick` did to it in words."""
    from importlib.resources import as_file, files

    from dragfl.config.overrides import override
    from dragfl.config.spec import read
    from dragfl.errors import SpecError
    from dragfl.runs.arena import QUICK_ROUNDS

    given, words = args.experiment, list(args.words)
    if given is not None and "=" in given and not Path(given).exists():
        given, words = None, [given, *words]
    if given is None and not args.quick:
        raise SpecError("arena: no experiment; give a TOML file, or --quick for a look at the embedded digits")
    with as_file(files("dragfl.demo").joinpath("arena.toml")) as default:
        tables = override(read(given if given is not None else default), words)
    if not args.quick:
        return tables, ""
    rounds = min(int(tables.get("rounds", QUICK_ROUNDS)), QUICK_ROUNDS)
    note = f"A quick look (--quick): at most {QUICK_ROUNDS} rounds, so that all runs together take minutes. "
    note += "Defences that learn slowly look weaker than they are after more rounds."
    return {**tables, "rounds": rounds}, note


def _values(option: str, text: str | None) -> list[Any] | None:
    """`a,b,c` as values; each is a TOML literal or a bare word."""
    from dragfl.config.overrides import parse_override
    from dragfl.runs.sweep import split_commas

    return None if text is None else [parse_override(f"{option}={word}")[1] for word in split_commas(text)]
