"""`dragfl resume RUN`"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from dragfl.cli.options import add_output_options
from dragfl.cli.output import print_result
from dragfl.cli.run import run_with_progress


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "resume",
        help="continue a run that was stopped or killed",
        description="Continue from the last checkpoint. The result has the same bytes as without the interruption. "
        "The missing model file of a finished run is restored.",
    )
    command.add_argument("path", type=Path, metavar="RUN", help="a run directory")
    add_output_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.runs.directory import MODEL, load_run

    existing = load_run(args.path)
    if existing.complete:
        existing.check_files()
        return print_result(existing, args, already_done=True)

    import dragfl

    if existing.finished:
        restored = dragfl.resume(args.path)
        if not args.quiet and not args.json:
            print(f"{MODEL}: restored from the last checkpoint")
        return print_result(restored, args, already_done=True)
    rounds = int(existing.spec.get("rounds", 0))
    return run_with_progress(args, args.path, existing.name, rounds, partial(dragfl.resume, args.path, log=args.log))
