"""Small runs in processes of their own, and the uninterrupted runs that they are compared with."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dragfl.runs.directory import RESULT, load_run
from tests.conftest import DIGITS, KEPT, TIMEOUT_S, command, kept_bytes
from tests.faults.commands import PIPE_BYTES, run_to_end
from tests.faults.table import ROOT

Tick = Callable[[str], None]
Draws = np.random.Generator

ROUNDS = 120
LOCAL = DIGITS.replace("rounds = 12", f"rounds = {ROUNDS}").replace("every = 4", "every = 1") + "[engine]\nblock = 2\n"
STORE = LOCAL.replace('name = "drag"', 'name = "scaffold"') + "[state]\nmemory_mb = 0\n"
POOL = LOCAL + "workers = 2\n"
KINDS = {"in one process": LOCAL, "pool of 2 workers": POOL, "client states on disk": STORE}


INTERRUPTED, TRIES = 5, 3  # on a busy machine Ray and Flower may not start in time, and say so


@dataclass(frozen=True)
class Bench:
    """What a row of the table works with."""

    folder: Path
    draws: Draws
    quick: bool
    tick: Tick

    def number(self, full: int, quick: int) -> int:
        return quick if self.quick else full


@contextmanager
def bench(seed: int, quick: bool, tick: Tick) -> Iterator[Bench]:
    """A temporary folder, in memory if there is one, and draws for one row."""
    os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])  # for processes in other folders
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="dragfl-faults-", dir=memory) as folder:
        yield Bench(Path(folder), np.random.default_rng(seed), quick, tick)


def whole_run(folder: Path, spec: str, *overrides: str) -> Path:
    """The uninterrupted run of a spec."""
    (folder / "whole.toml").write_text(spec)
    code, errors = run_to_end("run", "whole.toml", *overrides, "--out", "whole", "--quiet", cwd=folder)
    assert code == 0, errors
    return folder / "whole"


def next_order(run: Path) -> tuple[str | Path, ...]:
    """What a user does after a crash: resume, or run again if there is no run yet."""
    return ("resume", run) if (run / "spec.toml").exists() else ("run", run.parent / "x.toml", "--out", run)


def difference(run: Path, whole: Path) -> str:
    """How a finished run differs from the uninterrupted one; "" if it does not."""
    if not (run / RESULT).exists():
        return f"{run.name}: has no result"
    if missing := [name for name in KEPT if not (run / name).exists()]:
        return f"{run.name}: {missing} are missing"
    load_run(run).check_files()
    mine, theirs = ({**kept_bytes(path), RESULT: (path / RESULT).read_bytes()} for path in (run, whole))
    names = [name for name, content in mine.items() if content != theirs[name]]
    left = [path.name for path in run.glob("*.tmp")]
    return f"{run.name}: {names} differ" if names else f"{run.name}: {left} were left behind" if left else ""


def finish(run: Path, whole: Path) -> str:
    """Let a stopped run go on to its end; "" if it then has the bytes of the uninterrupted one."""
    for _ in range(TRIES):
        code, errors = run_to_end(*next_order(run), "--quiet", cwd=run.parent)
        if code != INTERRUPTED:
            break
    if code:
        return f"{run.name}: exit code {code} of the last resume: {errors[-500:]}"
    return difference(run, whole)


@contextmanager
def process(*arguments: str | Path, cwd: Path, **options: Any) -> Iterator[subprocess.Popen[str]]:
    """As `commands.running`, in an interpreter of its own."""
    running = subprocess.Popen(
        command(*arguments, "--json"), cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        pipesize=PIPE_BYTES, **options,
    )  # fmt: skip
    try:
        yield running
    finally:
        if running.poll() is None:
            running.kill()
        running.communicate(timeout=TIMEOUT_S)


def read_until(running: subprocess.Popen[str], round: int) -> bool:
    """Read the output up to a round of this process; False if it ended before."""
    assert running.stdout is not None
    while line := running.stdout.readline():
        if line.startswith("{") and int(json.loads(line).get("round", 0)) >= round:
            return True
    return False


def run_command(*arguments: str | Path, cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run a dragfl command to its end with these variables in its environment."""
    environment = os.environ | {"COLUMNS": "160"} | variables
    return subprocess.run(
        command(*arguments), cwd=cwd, capture_output=True, text=True, timeout=TIMEOUT_S, env=environment
    )
