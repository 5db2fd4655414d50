"""`dragfl doctor`: is everything in place?"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import time
from importlib.metadata import PackageNotFoundError, version


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    command = commands.add_parser("doctor", help="check the installation", description="Check the installation.")
    command.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    print(f"python {platform.python_version()} on {platform.platform()}, {os.cpu_count()} cores")
    for package in (
        "dragfl",
        "torch",
        "numpy",
        "safetensors",
        "msgspec",
        "rich",
        "matplotlib",
        "jinja2",
        "pandas",
    ):
        try:
            print(f"{package} {version(package)}")
        except PackageNotFoundError:
            hint = "pip install 'dragfl[report]'" if package in ("matplotlib", "jinja2") else f"pip install {package}"
            print(f"{package} not installed (optional: {hint})")
    print(f"free disk here: {shutil.disk_usage('.').free / 1e9:.1f} GB")

    import torch

    import dragfl

    print(f"torch devices: cpu{', cuda' if torch.cuda.is_available() else ''}")
    started = time.perf_counter()
    experiment = dragfl.load({"rounds": 3, "algorithm": {"name": "drag"}, "model": {"name": "logistic"}})
    last = list(dragfl.simulate(experiment))[-1]
    print(f"three rounds of DRAG on digits: accuracy {last.accuracy:.3f}, {time.perf_counter() - started:.1f} s")
    print("all well")
    return 0
