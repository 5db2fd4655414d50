"""`dragfl run EXPERIMENT.toml [key=value ...]`"""

from __future__ import annotations

import argparse
from pathlib import Path

from dragfl.cli.result import print_outcome


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "run",
        help="run an experiment from a TOML file",
        description="Run an experiment. A value in key=value is a TOML literal; setting algorithm.name replaces the "
        "whole [algorithm] table by that preset's defaults plus the file's [algorithms.NAME] table.",
    )
    command.add_argument("experiment", type=Path, help="a TOML file; also the spec.toml of an earlier run")
    command.add_argument("words", nargs="*", metavar="key=value", help="for example clients.lr=0.05")
    command.add_argument("--out", type=Path, help="the run directory (default: runs/NAME)")
    command.add_argument("--dry-run", action="store_true", help="print the resolved spec and stop")
    add_output_options(command)
    command.set_defaults(run=run)


def add_output_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="print nothing but errors")
    command.add_argument("--json", action="store_true", help="one JSON object a round, then the result")


def run(args: argparse.Namespace) -> int:
    from dragfl.config.spec import load

    experiment = load(args.experiment, *args.words)
    if args.dry_run:
        print(experiment.to_toml(), end="")
        return 0

    import dragfl
    from dragfl.cli.interrupt import polite_interrupt
    from dragfl.cli.progress import Watch
    from dragfl.errors import Diverged

    with polite_interrupt() as should_stop, Watch(quiet=args.quiet, as_json=args.json) as watch:
        watch.begin(experiment.name, experiment.rounds)
        try:
            done = dragfl.run(experiment, args.out, on_record=watch, should_stop=should_stop)
        except Diverged:
            if args.json:  # the result is there too
                ended = dragfl.load_run(args.out or Path("runs") / experiment.name)
                print_outcome(ended, already=False, quiet=True, as_json=True)
            raise
    return print_outcome(done, already=watch.seen == 0, quiet=args.quiet, as_json=args.json)
