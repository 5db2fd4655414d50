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


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "doctor",
        help="check the installation",
        description="Print the versions of Python, of the required packages and of those of every extra, and run "
        "three rounds as a test.",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
    for extra, packages in packages_by_extra(requires("dragfl") or ()).items():
        print(describe_packages(extra, packages if extra else ["dragfl", *packages]))
    print(f"free disk space here: {shutil.disk_usage('.').free / 1e9:.1f} GB")

    import torch

    import dragfl

    print(f"torch devices: cpu{', cuda' if torch.cuda.is_available() else ''}")
    started = time.perf_counter()
    experiment = dragfl.load({"rounds": 3, "algorithm": {"name": "drag"}, "model": {"name": "logistic"}})
    last = list(dragfl.simulate(experiment))[-1]
    print(f"three rounds of DRAG on digits: accuracy {last.accuracy:.3f}, {time.perf_counter() - started:.1f} s")
    print("OK")
    return 0


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
