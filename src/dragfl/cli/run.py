"""`dragfl run EXPERIMENT.toml [key=value ...]`"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.cli.options import add_output_options
from dragfl.cli.output import print_result

if TYPE_CHECKING:
    from dragfl.config.spec import Experiment
    from dragfl.runs.directory import Run


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "run",
        help="run an experiment from a TOML file",
        description="Run an experiment. The value in key=value is a TOML literal or a bare word. Setting "
        "algorithm.name replaces the whole [algorithm] table by the defaults of that preset and the "
        "[algorithms.NAME] table of the file.",
    )
    command.add_argument("experiment", type=Path, help="a TOML file, or the spec.toml of an earlier run")
    command.add_argument(
        "words", nargs="*", default=[], metavar="key=value", help="override a setting, e.g. clients.lr=0.05"
    )
    command.add_argument(
        "--out", type=Path, help="the run directory (default: runs/NAME, or runs/run-1, run-2, ... without a name)"
    )
    command.add_argument("--fresh", action="store_true", help="start over: replace the run in the directory")
    command.add_argument("--dry-run", action="store_true", help="print the resolved spec and exit")
    add_output_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.config.locate import located
    from dragfl.config.spec import load

    experiment = load(args.experiment, *args.words)
    if args.dry_run:
        print(experiment.to_toml(), end="")
        return 0

    import dragfl
    from dragfl.runs.directory import find_run
    from dragfl.runs.numbering import default_folder

    experiment, out = (experiment, args.out) if args.out else default_folder(experiment)
    if (args.fresh or find_run(out) is None) and not args.quiet and not args.json:
        print_assumed_f(experiment)
    start = partial(dragfl.run, experiment, out, fresh=args.fresh, log=args.log)
    with located(args.experiment, args.words):
        return run_with_progress(args, out, experiment.name, experiment.rounds, start)


def print_assumed_f(experiment: Experiment) -> None:
    """Print the number of attackers that a robust rule assumes, and how often a cohort has more."""
    from dragfl.config.assumed_f import smallest_f

    if experiment.exceeds_f is not None:
        f = smallest_f(experiment.algorithm.aggregate)
        often = f"{100 * experiment.exceeds_f:.3g} %"
        print(f"{experiment.algorithm.name}: f = {f}; a cohort has more than {f} attackers in {often} of rounds")


def run_with_progress(args: argparse.Namespace, out: Path, name: str, rounds: int, start: Callable[..., Run]) -> int:
    """Run or resume, show the progress and print the result; returns the exit code."""
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.progress import RunProgress
    from dragfl.errors import Diverged
    from dragfl.runs.directory import load_run

    progress = RunProgress(quiet=args.quiet, as_json=args.json)
    progress.begin(name, rounds)
    try:
        with catch_interrupts() as should_stop, progress.bar, progress.messages():
            run = start(on_record=progress, should_stop=should_stop)
    except Diverged:
        if args.json:
            print_result(load_run(out), args)
        raise
    return print_result(run, args, already_done=progress.records == 0)
