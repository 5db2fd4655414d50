"""What a result depends on beside its spec: versions, git commit, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

from dragfl.types import FederationInfo


def describe_machine(seed: int, info: FederationInfo) -> dict[str, Any]:
    return {
        "dragfl": version("dragfl"),
        "torch": version("torch"),
        "numpy": version("numpy"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "git": _git_commit(),
        "seed": seed,
        "parameters": info.dim,
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor()


def _git_commit() -> str | None:
    """The commit of the folder the run was started in, with a mark if files were changed."""
    try:
        found = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            timeout=5,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return found.stdout.strip() or None
