"""`dragfl bench`: speed as ratios within one run."""

from __future__ import annotations

import argparse


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("bench", help="measure speed against a bare loop and one read of memory")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    return 0
