"""`dragfl sweep EXPERIMENT.toml key=a,b,... [key=c,d,...]`"""

from __future__ import annotations

import argparse
from pathlib import Path

from dragfl.cli.options import add_sweep_options, number_of_jobs


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "sweep",
        help="run a grid of experiments and compare them",
        description="Run every combination of the given values, each in its own run directory, then write a report. "
        "Commas outside brackets and quotes separate values. The same command continues an interrupted sweep.",
    )
    command.add_argument("experiment", type=Path, help="a TOML file")
    command.add_argument(
        "words", nargs="+", metavar="key=a,b", help="a key and its values, e.g. algorithm.name=fedavg,drag seed=0,1,2"
    )
    add_sweep_options(command, default_out="sweeps/NAME")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.config.spec import read
    from dragfl.runs.sweep_plan import parse_grid, plan_sweep

    out = args.out or Path("sweeps") / str(read(args.experiment).get("name", "run"))
    planned = plan_sweep(args.experiment, parse_grid(args.words), out)
    if args.dry_run:
        for p in planned:
            print(p.folder)
        return 0

    from rich.console import Console

    from dragfl import report
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.output import print_report
    from dragfl.cli.progress import SweepProgress
    from dragfl.runs.sweep import run_planned

    jobs = number_of_jobs(args, len(planned))
    progress = SweepProgress(planned, jobs, quiet=args.quiet)
    with catch_interrupts() as should_stop, progress.bar:
        run_planned(planned, progress.callbacks(should_stop), jobs=jobs)
    folders = [p.folder for p in planned]
    if not args.quiet:
        Console().print(report.rich_table(report.summarize_runs(folders)))
    return print_report(lambda: report.write_report(folders, out), quiet=args.quiet)
