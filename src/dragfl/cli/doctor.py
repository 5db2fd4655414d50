"""`dragfl doctor`: check the installation."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import time
from importlib.metadata import PackageNotFoundError, version

REQUIRED = ("dragfl", "torch", "numpy", "safetensors", "msgspec", "rich")
OPTIONAL = {  # package -> what pip installs
    "matplotlib": "'dragfl[report]'",
    "jinja2": "'dragfl[report]'",
    "pandas": "pandas",
    "scikit-learn": "'dragfl[robust]'",
    "ray": "'dragfl[ray]'",
}


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser(
        "doctor",
        help="check the installation",
        description="Print the versions of Python and the packages, and run three rounds as a test.",
    )
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    from dragfl.runs.trackers import TRACKERS

    print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
    optional = OPTIONAL | {tracker: f"'dragfl[{tracker}]'" for tracker in TRACKERS}
    for package in (*REQUIRED, *optional):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            kind = "optional" if package in optional else "required"
            print(f"{package} not installed ({kind}: pip install {optional.get(package, package)})")
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
