"""`dragfl sweep EXPERIMENT.toml key=a,b,... [key=c,d,...]`"""

from __future__ import annotations

import argparse
import os
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "sweep",
        help="run a grid of experiments and compare them",
        description="Every combination of the values given, each in a run directory of its own, then a report. "
        "Commas outside brackets and quotes separate values. The same command goes on where an interrupted one "
        "stopped.",
    )
    command.add_argument("experiment", type=Path, help="a TOML file")
    command.add_argument("words", nargs="+", metavar="key=a,b", help="as in algorithm.name=fedavg,drag seed=0,1,2")
    command.add_argument("--out", type=Path, help="where the runs and the report go (default: sweeps/NAME)")
    add_jobs(command)
    command.add_argument("--dry-run", action="store_true", help="list the runs and stop")
    command.add_argument("--quiet", action="store_true", help="print nothing but errors")
    command.set_defaults(run=run)


def add_jobs(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--jobs", type=int, metavar="N", help="runs side by side (default: the cores, where there are many runs)"
    )


def jobs(args: argparse.Namespace, runs: int) -> int:
    """How many runs side by side: as asked, or the cores once there are four runs for each to pay for the start."""
    from dragfl.errors import SpecError

    if args.jobs is not None:
        if args.jobs < 1:
            raise SpecError(f"--jobs: {args.jobs}; give at least 1")
        return int(args.jobs)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return cores if runs >= 4 * cores else 1


def run(args: argparse.Namespace) -> int:
    from dragfl.config.spec import read
    from dragfl.runs.sweep import parse_grid, plan, play

    out = args.out or Path("sweeps") / str(read(args.experiment).get("name", "run"))
    planned = plan(args.experiment, parse_grid(args.words), out)
    if args.dry_run:
        for p in planned:
            print(p.folder)
        return 0

    from dragfl.cli.interrupt import polite_interrupt
    from dragfl.cli.progress import Tally

    with polite_interrupt() as should_stop, Tally(planned, quiet=args.quiet) as tally:
        play(
            planned,
            on_begin=tally.begin,
            on_record=tally.record,
            on_end=tally.end,
            should_stop=should_stop,
            jobs=jobs(args, len(planned)),
        )
    return show([p.folder for p in planned], out, quiet=args.quiet)


def show(folders: list[Path], out: Path, *, quiet: bool) -> int:
    """The table and the page that compare finished runs."""
    from rich.console import Console

    from dragfl import report
    from dragfl.errors import SpecError

    if not quiet:
        Console().print(report.rich_table(report.table(folders)))
    try:
        page = report.write(folders, out)
    except SpecError as error:  # no plotting library: the runs and the table are there all the same
        print(f"no figures: {error}")
        return 0
    if not quiet:
        print(f"report: {page}")
    return 0
