"""`dragfl resume RUN`"""

from __future__ import annotations

import argparse
from pathlib import Path

from dragfl.cli.result import print_outcome
from dragfl.cli.run import add_output_options


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "resume",
        help="go on with a run that was stopped or killed",
        description="Go on from the last checkpoint. The result is the same, byte for byte, as without the stop.",
    )
    command.add_argument("path", type=Path, metavar="RUN", help="a run directory")
    add_output_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.runs.directory import load_run

    before = load_run(args.path)
    if before.finished:
        return print_outcome(before, already=True, quiet=args.quiet, as_json=args.json)

    import dragfl
    from dragfl.cli.interrupt import polite_interrupt
    from dragfl.cli.progress import Watch

    with polite_interrupt() as should_stop, Watch(quiet=args.quiet, as_json=args.json) as watch:
        watch.begin(before.name, int(before.spec.get("rounds", 0)))
        done = dragfl.resume(args.path, on_record=watch, should_stop=should_stop)
    return print_outcome(done, already=False, quiet=args.quiet, as_json=args.json)
