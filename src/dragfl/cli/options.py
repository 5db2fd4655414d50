"""Options that several commands share."""

from __future__ import annotations

import argparse
from pathlib import Path

from dragfl.engine.threads import available_cores
from dragfl.errors import SpecError


def add_output_options(command: argparse.ArgumentParser) -> None:
    add_log_option(command)
    add_quiet_option(command)
    add_safe_option(command)
    command.add_argument("--json", action="store_true", help="print one JSON object per round, then the result")


def add_log_option(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--log",
        action="append",
        default=[],
        metavar="TRACKER",
        help="log every round to tensorboard, mlflow or wandb as well; may be given several times",
    )


def add_safe_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--safe", action="store_true", help="refuse a spec that names code to import (module:attr)")


def add_quiet_option(command: argparse.ArgumentParser) -> None:
    command.add_argument("--quiet", action="store_true", help="print errors only")


def add_sweep_options(command: argparse.ArgumentParser, default_out: str) -> None:
    command.add_argument("--out", type=Path, help=f"folder of the runs and the report (default: {default_out})")
    command.add_argument(
        "--jobs", type=int, metavar="N", help="runs in parallel (default: one per core for many runs, else 1)"
    )
    command.add_argument("--dry-run", action="store_true", help="list the runs and exit")
    add_log_option(command)
    command.add_argument(
        "--fresh",
        action="store_true",
        help="start over the runs whose settings, data, weights or code are others now; the matching ones are kept",
    )
    add_quiet_option(command)
    add_safe_option(command)


def number_of_jobs(args: argparse.Namespace, runs: float) -> int:
    """The number of runs in parallel: `--jobs`, or one per core if there are at least four runs per core, else 1."""
    if args.jobs is None:
        cores = available_cores()
        return cores if runs >= 4 * cores else 1
    if args.jobs < 1:
        raise SpecError(f"--jobs: {args.jobs}; give at least 1")
    return int(args.jobs)
