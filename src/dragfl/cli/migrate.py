"""`dragfl migrate PATH`"""

from __future__ import annotations

import argparse
from pathlib import Path


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "migrate",
        help="rewrite an experiment or a run directory of version 0.1",
        description="Rename the keys of a version 0.1 experiment, or of every run below a directory, in place. "
        "Comments stay. Each changed file is kept as FILE.bak.",
    )
    command.add_argument("path", type=Path, metavar="PATH", help="a TOML file, a run directory, or a folder of runs")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.config.migrate import migrate_path

    changed = migrate_path(args.path)
    if not changed:
        print(f"{args.path}: nothing to change")
    for file, changes in changed.items():
        print(f"{file}: {len(changes)} changed, previous version in {file.name}.bak")
        for change in changes:
            print(f"  {change}")
    return 0
