"""`dragfl arena [EXPERIMENT.toml] --defences a,b+c --attacks x,y`"""

from __future__ import annotations

import argparse
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

from dragfl.cli.options import add_sweep_options, number_of_jobs

QUICK_ROUNDS = 60
QUICK_NOTE = (
    f"Reduced settings (--quick): at most {QUICK_ROUNDS} rounds, so that all runs together take minutes. "
    "Defences that learn slowly look weaker than they are after more rounds."
)


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "arena",
        help="run every defence against every attack: an attack matrix",
        description="Run every combination of defence, attack, partition, fraction of attackers and seed, and a "
        "no-attack baseline of each defence; then write a report of the accuracy under attack. Settings are read "
        "from the [algorithms.NAME] and [attacks.NAME] tables of the experiment. The same command continues an "
        "interrupted arena.",
    )
    command.add_argument(
        "experiment", nargs="?", help="a TOML file (default with --quick: 20 clients on the digits dataset)"
    )
    command.add_argument(
        "words", nargs="*", default=[], metavar="key=value", help="override a setting, e.g. rounds=100"
    )
    command.add_argument(
        "--defences", metavar="A,B,C+D", help="algorithms or aggregates; C+D is a chain (default: 11 common ones)"
    )
    command.add_argument("--attacks", metavar="X,Y", help="see `dragfl list attacks` (default: 8 common ones)")
    command.add_argument("--partitions", metavar="P,Q", help='e.g. iid,{kind="dirichlet_class",a=0.1}')
    command.add_argument("--fractions", metavar="F,G", help="fractions of the clients that attack, e.g. 0.2,0.4")
    command.add_argument("--seeds", metavar="0,1", default="0", help="seeds (default: 0)")
    command.add_argument(
        "--no-root-only", action="store_true", help="do not add root_only where a defence uses root data"
    )
    command.add_argument(
        "--tune-attacks", type=int, metavar="N", help="tune each attack against each defence with N candidate runs"
    )
    command.add_argument("--quick", action="store_true", help=f"at most {QUICK_ROUNDS} rounds: done in minutes")
    command.add_argument("--json", action="store_true", help="print arena.json, with the numbers, and nothing else")
    add_sweep_options(command, default_out="arena/NAME")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.cli.output import print_plan
    from dragfl.runs.arena_plan import DEFAULT_ATTACKS, default_defences, plan_arena
    from dragfl.runs.arena_tuning import plan_strengths
    from dragfl.runs.sweep_plan import parse_values

    tables = _read_tables(args)
    names = ("defences", "attacks", "partitions", "fractions", "seeds")
    sides: dict[str, Any] = {
        name: parse_values(name, text) for name in names if (text := getattr(args, name)) is not None
    }
    arena = plan_arena(
        tables,
        **{"defences": default_defences(tables), "attacks": DEFAULT_ATTACKS, **sides},
        out=args.out or Path("arena") / str(tables.get("name", "run")),
        note=QUICK_NOTE if args.quick else "",
        root_only=not args.no_root_only,
    )
    tuning = None if args.tune_attacks is None else plan_strengths(arena, args.tune_attacks)
    trials = [p for part in tuning or () for p in part.planned]
    if args.dry_run:
        later = [p for part in tuning or () for p in part.later]
        return print_plan([*trials, *(p for p in arena.planned if p not in later)], len(later), as_json=args.json)

    from dragfl.attack_matrix import run_arena
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.progress import SweepProgress
    from dragfl.errors import RunsFailed

    jobs = number_of_jobs(args, len(trials) + len(arena.planned))
    progress = SweepProgress([*trials, *arena.planned], jobs, quiet=args.quiet or args.json)
    failed: RunsFailed | None = None
    with catch_interrupts() as should_stop, progress.bar:
        try:
            run_arena(
                arena,
                progress.callbacks(should_stop),
                jobs=jobs,
                fresh=args.fresh,
                log=args.log,
                tuning=tuning,
                on_plan=progress.plan,
            )
        except RunsFailed as error:
            failed = error
    _print_results(arena.folder, args)
    if failed is not None:
        raise failed
    return 0


def _print_results(folder: Path, args: argparse.Namespace) -> None:
    """The matrices and the path of the page; with --json the content of arena.json."""
    from rich.console import Console

    from dragfl.cli.output import print_report
    from dragfl.report import write_arena_report
    from dragfl.report.arena import load_arena, rich_tables, summarize_arena
    from dragfl.report.arena.results import MANIFEST

    if args.json:
        with redirect_stdout(sys.stderr):
            print_report(lambda: write_arena_report(folder), quiet=True)
        print((folder / MANIFEST).read_text().rstrip("\n"))
        return
    if not args.quiet:
        results, console = load_arena(folder), Console()
        for matrix in results.matrices:
            for table in rich_tables(matrix, console.width):
                console.print(table)
        console.print(summarize_arena(results), markup=False, highlight=False)
    print_report(lambda: write_arena_report(folder), quiet=args.quiet)


def _read_tables(args: argparse.Namespace) -> dict[str, Any]:
    """The tables of the experiment with the overrides and `--quick` applied."""
    from importlib.resources import as_file, files

    from dragfl.config.locate import located
    from dragfl.config.overrides import override
    from dragfl.config.spec import read, resolve
    from dragfl.errors import SpecError

    source, words = args.experiment, list(args.words)
    if source is not None and "=" in source and not Path(source).exists():
        source, words = None, [source, *words]
    if source is None and not args.quick:
        raise SpecError("arena: no experiment; give a TOML file, or --quick for the built-in digits experiment")
    if any(word.startswith("seed=") for word in words):
        raise SpecError("arena: seed is one of its sides; give --seeds 3 or --seeds 0,1,2")
    with as_file(files("dragfl.demo").joinpath("arena.toml")) as default, located(source, words):
        tables = override(read(default if source is None else source), words)
        resolve({**tables, "algorithm": {"name": "fedavg"}, "attack": {"name": "none"}})  # without the sides
    if args.quick:
        tables["rounds"] = min(int(tables.get("rounds", QUICK_ROUNDS)), QUICK_ROUNDS)
    return tables
