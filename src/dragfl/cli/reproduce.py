"""`dragfl paper [PANEL ...] [--seeds N] [--quick]`"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.cli.options import add_jobs_option

if TYPE_CHECKING:
    from dragfl.reproduction.figure import Panel
    from dragfl.reproduction.plan import Laid, Scale

RUNS, QUICK_RUNS = Path("paper-runs"), Path("paper-runs-quick")
OUT, QUICK_OUT = Path("paper"), Path("paper-quick")
NOT_TO_SET = {
    "seed": "give --seeds",
    "name": "runs are named after what they compute",
    "data": "give data.dataset=NAME, data.partition.kind=NAME",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "paper",
        help="make the figures of the DRAG paper again and say of every claim whether it holds",
        description="Runs what is missing of the panels named (default: all), draws them and prints a verdict for "
        "every claim they serve. The same command goes on where an interrupted one stopped, and panels share runs.",
    )
    command.add_argument("words", nargs="*", metavar="PANEL", help="as in fig3a fig7, or key=value; see --list")
    command.add_argument("--seeds", type=int, metavar="N", help="seeds 0 to N-1 (default: what each panel asks for)")
    command.add_argument("--rounds", type=int, metavar="N", help="other than the panel has, and told as such")
    command.add_argument("--quick", action="store_true", help="every panel in small: minutes, and not evidence")
    command.add_argument("--list", action="store_true", help="list the panels, what each would take, and stop")
    command.add_argument("--dry-run", action="store_true", help="list the runs that are missing and stop")
    command.add_argument("--judge", action="store_true", help="run nothing: figures and verdicts of what is there")
    kept, told = f"{RUNS}, with --quick {QUICK_RUNS}", f"{OUT}, with --quick {QUICK_OUT}"
    command.add_argument("--runs", type=Path, metavar="DIR", help=f"where runs are kept (default: {kept})")
    command.add_argument("--out", type=Path, help=f"where figures and verdicts go (default: {told})")
    add_jobs_option(command)
    command.add_argument("--quiet", action="store_true", help="print nothing but the verdicts and errors")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.errors import SpecError
    from dragfl.reproduction.runs import lay_all, missing, waiting

    folder = args.runs or (QUICK_RUNS if args.quick else RUNS)
    if folder.exists() and not folder.is_dir():
        raise SpecError(f"--runs: {folder} is not a folder; choose another")
    asked = _asked(args)
    if args.list:
        return _list(asked, folder, args)
    laid = lay_all(asked, folder)
    if args.dry_run:
        for p in missing(laid):
            print(p.folder)
        if later := waiting(laid):
            print(f"and {len(later)} runs of controls, when they are tuned")
        return 0
    if not args.judge:
        _play(asked, laid, folder, args)
    return _tell(asked, folder, args)


def _asked(args: argparse.Namespace) -> list[tuple[Panel, Scale]]:
    """The panels asked for, each at its scale; those without data are told of and left out."""
    from dragfl.cli.data import DownloadProgress
    from dragfl.config.overrides import parse_override
    from dragfl.errors import DataError, SpecError
    from dragfl.reproduction import data
    from dragfl.reproduction import figure as panel
    from dragfl.reproduction.plan import Scale

    changes = [word for word in args.words if "=" in word]
    wanted = [word for word in args.words if "=" not in word] or panel.names()
    if args.seeds is not None and not 1 <= args.seeds <= 100:
        raise SpecError(f"--seeds: {args.seeds}; give a number from 1 to 100")
    if args.rounds is not None:
        changes.append(f"rounds={args.rounds}")
    given = {".".join(path): value for path, value in map(parse_override, changes)}
    for key, instead in NOT_TO_SET.items():
        if key in given:
            raise SpecError(f"paper: {key} cannot be set here; {instead}")
    asked, skipped = [], dict[str, list[str]]()
    to_run = not (args.list or args.dry_run or args.judge)
    with DownloadProgress(quiet=args.quiet) as progress:
        finder = data.Finder(quick=args.quick, asked=given.get("data.dataset"), fetch=to_run, progress=progress)
        for name in dict.fromkeys(wanted):
            one = panel.load(name)
            found = finder.find(one)
            if found.dataset is None:
                skipped.setdefault(found.reason, []).append(name)
                continue
            seeds = args.seeds or (1 if args.quick else one.seeds)
            asked.append((one, Scale(found.dataset, tuple(range(seeds)), args.quick, tuple(changes))))
    for reason, names in skipped.items():
        print(f"skipped, the data are not at hand: {', '.join(names)}\n  {reason}")
    if not asked:
        raise DataError("paper: no panel has its data at hand; see the reasons above and `dragfl data`")
    return asked


def _cores(args: argparse.Namespace, runs: int) -> int:
    from dragfl.errors import SpecError

    if args.jobs is not None and args.jobs < 1:
        raise SpecError(f"--jobs: {args.jobs}; give at least 1")
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(args.jobs or cores, runs))


def _list(asked: list[tuple[Panel, Scale]], folder: Path, args: argparse.Namespace) -> int:
    from dragfl.reproduction.cost import Rates, duration
    from dragfl.reproduction.plan import lay_out, unique
    from dragfl.reproduction.runs import missing, waiting

    for one, scale in asked:
        laid = lay_out(one, scale, folder)
        later = waiting([laid])
        left = missing([laid]) + later
        seconds = Rates(laid.planned).left(left) / _cores(args, 100)
        when = duration(seconds) if left else "nothing to do"
        count = len(unique(laid.planned)) + len(later)
        runs = f"{scale.dataset}, {laid.planned[0].experiment.rounds} rounds at most, {count} runs"
        print(f"{one.name:16} {one.title}")
        print(f"{'':16} {one.figure}; {runs}, {len(left)} missing: {when}")
    return 0


def _play(asked: list[tuple[Panel, Scale]], laid: list[Laid], folder: Path, args: argparse.Namespace) -> None:
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.reproduce_progress import Work
    from dragfl.reproduction.runs import missing, play, waiting
    from dragfl.runs.sweep import Callbacks

    todo = missing(laid)
    jobs = _cores(args, len(todo))
    work = Work(jobs, all_runs=[p for one in laid for p in one.planned], quiet=args.quiet)
    work.plan(todo, waiting(laid))
    work.announce()
    with catch_interrupts() as should_stop, work:
        callbacks = Callbacks(work.begin, work.record, work.end, should_stop)
        play(asked, folder, callbacks, on_plan=work.plan, jobs=jobs)


def _tell(asked: list[tuple[Panel, Scale]], folder: Path, args: argparse.Namespace) -> int:
    """Summaries, figures and verdicts of what is there."""
    from rich.console import Console

    from dragfl.cli.reproduce_tables import curves_table, verdicts_table
    from dragfl.errors import SpecError
    from dragfl.reproduction import results

    names = [panel.name for panel, _ in asked]
    out = args.out or (QUICK_OUT if args.quick else OUT)
    book = results.keep(asked, folder, out)
    rows = results.verdicts(book, names)
    console = Console()
    if not args.quiet:
        for one, _ in asked:
            if one.name in book:
                console.print(curves_table(one, book[one.name]))
        for text in results.remarks(book, names):
            console.print(text, markup=False, highlight=False)
    if rows:
        console.print(verdicts_table(rows))
        console.print(results.tally(rows), markup=False, highlight=False)
    else:
        print("no claim is judged by these panels")
    results.write_verdicts(results.verdicts(book), out)
    try:
        drawn = results.draw(book, names, out)
    except SpecError as error:  # no plotting library: runs, summaries and verdicts are there all the same
        print(f"no figures: {error}")
        return 0
    if not args.quiet:
        print(f"{len(drawn)} figures in {out / results.FIGURES}, summaries and verdicts in {out}")
    return 0
