"""The software and hardware a run depends on: versions, git commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

GIT_S = 60.0  # git can hang on a dead network disk


def describe_environment(seed: int, **sizes: int) -> dict[str, Any]:
    """The content of run.json; `sizes`: of the problem, such as its number of parameters."""
    return {
        **{package: version(package) for package in ("dragfl", "torch", "numpy")},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "git": _git_commit(),
        "seed": seed,
        **sizes,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _git_commit() -> str | None:
    """The commit of the current folder, with `-dirty` if files were changed."""
    describe = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        return subprocess.run(describe, capture_output=True, text=True, timeout=GIT_S).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None
