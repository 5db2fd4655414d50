"""`dragfl doctor`: check the installation."""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import time
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import TYPE_CHECKING

from dragfl.cli.options import add_safe_option
from dragfl.errors import SpecError

if TYPE_CHECKING:
    from dragfl.config.spec import Experiment


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "doctor",
        help="check the installation",
        description="Print the versions of Python, of the required packages and of those of every extra, and run "
        "three rounds as a test. With --deep, also check torch's kernels, memory, file locks, disk space and versions, "
        "for one experiment if it is given. The exit code is 1 if a check failed.",
    )
    command.add_argument("experiment", nargs="?", type=Path, help="with --deep: a TOML file, whose needs are estimated")
    command.add_argument("--deep", action="store_true", help="check the machine as well")
    command.add_argument("--out", type=Path, help="with --deep: the folder of the runs (default: runs)")
    add_safe_option(command)
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    if not args.deep and (args.experiment or args.out):
        raise SpecError(f"doctor: {args.experiment or '--out'} is used by the checks of --deep only; add --deep")
    experiment = None
    if args.experiment:  # a wrong spec is reported before any check
        from dragfl.config.spec import load

        experiment = load(args.experiment)
    print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
    for extra, packages in packages_by_extra(requires("dragfl") or ()).items():
        print(describe_packages(extra, packages if extra else ["dragfl", *packages]))
    print(f"free disk space here: {shutil.disk_usage('.').free / 1e9:.1f} GB")

    import torch

    import dragfl

    print(f"torch devices: cpu{', cuda' if torch.cuda.is_available() else ''}")
    started = time.perf_counter()
    small = dragfl.load({"rounds": 3, "algorithm": {"name": "drag"}, "model": {"name": "logistic"}})
    last = list(dragfl.simulate(small))[-1]
    print(f"three rounds of DRAG on digits: accuracy {last.accuracy:.3f}, {time.perf_counter() - started:.1f} s")
    if args.deep:
        return print_checks(experiment, args.out or Path("runs"))
    print("OK")
    return 0


def print_checks(experiment: Experiment | None, folder: Path) -> int:
    """Print one line for each check of the machine; returns 1 if one failed, else 0."""
    from dragfl.health import check_machine

    checks = check_machine(experiment, folder)
    for check in checks:
        print(check)
    count = {status: sum(check.status == status for check in checks) for status in ("OK", "warning", "failed")}
    print(f"{count['OK']} OK, {count['warning']} warnings, {count['failed']} failed")
    return 1 if count["failed"] else 0


def packages_by_extra(requirements: Iterable[str]) -> dict[str, list[str]]:
    """Extra -> its packages, from requirements such as `ray==2.55.1; extra == "ray"`; the required ones are of "".

    >>> packages_by_extra(["torch>=2.4", 'jinja2>=3.1; extra == "report"', 'dragfl[report]; extra == "dev"'])
    {'': ['torch'], 'report': ['jinja2']}
    """
    found: dict[str, list[str]] = {"": []}
    for line in requirements:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([^'\"]+)", line)
        if package and package[0] != "dragfl":  # an extra that contains others
            found.setdefault(extra[1] if extra else "", []).append(package[0])
    return found


def describe_packages(extra: str, packages: Iterable[str]) -> str:
    """`report: matplotlib 3.10.1, jinja2 3.1.6`, or what is missing and the command that installs it."""
    versions = {package: _version(package) for package in packages}
    text = ", ".join(f"{package} {number or 'not installed'}" for package, number in versions.items())
    missing = [package for package, number in versions.items() if number is None]
    if not missing:
        return f"{extra or 'required'}: {text}"
    what = f"'dragfl[{extra}]'" if extra else " ".join(missing)
    return f"{extra or 'required'}: {text} ({'optional' if extra else 'required'}: pip install {what})"


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
