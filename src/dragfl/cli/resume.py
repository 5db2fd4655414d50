"""`dragfl resume RUN`"""

from __future__ import annotations

import argparse
from pathlib import Path

from dragfl.cli.options import add_output_options


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "resume",
        help="continue a run that was stopped or killed",
        description="Continue from the last checkpoint. The result has the same bytes as without the interruption.",
    )
    command.add_argument("path", type=Path, metavar="RUN", help="a run directory")
    add_output_options(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.cli.output import print_result
    from dragfl.runs.directory import load_run

    existing = load_run(args.path)
    if existing.finished:
        return print_result(existing, already_done=True, quiet=args.quiet, as_json=args.json)

    import dragfl
    from dragfl.cli.interrupt import catch_interrupts
    from dragfl.cli.progress import RunProgress

    progress = RunProgress(quiet=args.quiet, as_json=args.json)
    progress.begin(existing.name, int(existing.spec.get("rounds", 0)))
    with catch_interrupts() as should_stop, progress.bar:
        result = dragfl.resume(args.path, on_record=progress, should_stop=should_stop)
    return print_result(result, already_done=False, quiet=args.quiet, as_json=args.json)
