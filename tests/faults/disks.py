"""Disks that are full, read-only or have no room for temporary files. As root real file systems are mounted."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dragfl.runs.directory import load_run
from tests.faults.commands import run_to_end, running
from tests.faults.kills import LAST
from tests.faults.runs import KINDS, LOCAL, STORE, Bench, difference, finish, next_order, whole_run
from tests.faults.table import Row

BLOCK = 4096
MOST_FREE = 160 << 10  # bytes: about what a run of these rounds writes
STOPPED = (2, 5)  # exit codes of a command that cannot write: nothing was run, or the run can be resumed
SPILLED = LOCAL.replace('name = "drag"', 'name = "trimmed_mean"') + "[state]\nmemory_mb = 0\n"


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path]:
    """A file system of this size in memory."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", folder], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, free: int) -> None:
    """Write a file that leaves about so many bytes free."""
    status = os.statvfs(folder)
    with (folder / "filler").open("wb") as file:
        file.write(bytes(max(0, status.f_bavail * status.f_frsize - free)))


def without_message(code: int, errors: str) -> str:
    """How a command has ended, unless with a message and an exit code that says so: then ""."""
    if code in STOPPED and "dragfl: " in errors and "Traceback" not in errors:
        return ""
    return f"exit code {code}: {errors[-800:]}"


def full_local(bench: Bench) -> Row:
    return _full(bench, "in one process", bench.number(12, 2))


def full_pool(bench: Bench) -> Row:
    return _full(bench, "pool of 2 workers", bench.number(6, 1))


def full_store(bench: Bench) -> Row:
    return _full(bench, "client states on disk", bench.number(12, 1))


def _full(bench: Bench, kind: str, trials: int) -> Row:
    """No space left at a random write, twice in each run; then there is space again."""
    row, whole = Row("disk full", kind), whole_run(bench.folder, KINDS[kind])
    if os.geteuid():
        row.note = "a limit on file sizes instead of a full disk"
        return _too_large(bench, row, whole, trials)
    with small_disk(bench.folder / "disk", 8 << 20) as disk:
        (disk / "x.toml").write_text(KINDS[kind])
        for row.trials in range(1, trials + 1):
            run, stops, problem = disk / "run", 0, ""
            for _ in range(2):
                fill(disk, int(bench.draws.integers(MOST_FREE // BLOCK)) * BLOCK)
                code, errors = run_to_end(*next_order(run), "--quiet", cwd=disk)
                (disk / "filler").unlink()
                if code == 0:
                    break
                stops, problem = stops + 1, problem or without_message(code, errors)
            problem = problem or finish(run, whole)
            row.add("lost" if problem else "same_bytes", stops, problem)
            shutil.rmtree(run, ignore_errors=True)
            bench.tick(f"{row.trials} of {trials}")
    return row


def _too_large(bench: Bench, row: Row, whole: Path, trials: int) -> Row:
    """Without root: a write beyond a limit on file sizes fails as on a full disk."""
    (bench.folder / "x.toml").write_text((bench.folder / "whole.toml").read_text())
    largest = max(path.stat().st_size for path in whole.iterdir() if path.is_file())
    for row.trials in range(1, trials + 1):
        run, limit = bench.folder / "run", int(bench.draws.integers(largest))
        limited = partial(resource.setrlimit, resource.RLIMIT_FSIZE, (limit, limit))
        stopped = run_to_end(*next_order(run), "--quiet", cwd=bench.folder, prepare=limited)
        problem = without_message(*stopped) or finish(run, whole)
        row.add("lost" if problem else "same_bytes", detail=problem)
        shutil.rmtree(run, ignore_errors=True)
    return row


def full_tmp(bench: Bench) -> Row:
    """TMPDIR has no space left: the command works, or says so."""
    row = Row("/tmp full", "one process, pool, states on disk; report")
    if os.geteuid():
        row.skipped = "mounting a full file system needs root"
        return row
    with small_disk(bench.folder / "tmp", 64 << 10) as tmp:
        fill(tmp, 0)
        for kind, spec in {**KINDS, "updates in a temporary file": SPILLED}.items():
            folder = bench.folder / kind.replace(" ", "-")
            folder.mkdir()
            whole = whole_run(folder, spec, "rounds=20")
            orders: list[tuple[str | Path, ...]] = [("run", "whole.toml", "rounds=20", "--out", "run", "--quiet")]
            orders += [("report", "whole", "--out", "page")] if kind == "in one process" else []
            for order in orders:
                code, errors = run_to_end(*order, cwd=folder, prepare=partial(_set_tmpdir, tmp))
                if code == 0:
                    problem = difference(folder / "run", whole) if order[0] == "run" else ""
                    row.add("lost" if problem else "same_bytes" if order[0] == "run" else "harmless", detail=problem)
                else:
                    problem = without_message(code, errors)
                    row.add("lost" if problem else "named", detail=f"{kind}, {order[0]}: {problem}")
            row.trials += 1
    return row


def _set_tmpdir(tmp: Path) -> None:
    os.environ["TMPDIR"], tempfile.tempdir = str(tmp), None


def read_only(bench: Bench) -> Row:
    """A folder on a read-only file system: reading works, writing is refused with a message."""
    row = Row("read-only folder", "in one process, client states on disk")
    if os.geteuid():
        row.skipped = "a read-only mount needs root"
        return row
    for spec in (LOCAL, STORE):
        folder = bench.folder / f"spec-{row.trials}"
        folder.mkdir()
        whole = whole_run(folder, spec)
        (folder / "x.toml").write_text(spec)
        run = folder / "run"
        with running(*next_order(run), "--json", cwd=folder) as command:
            command.reads_round(20)
        row.trials += 1
        subprocess.run(["mount", "--bind", folder, folder], check=True)
        subprocess.run(["mount", "-o", "remount,bind,ro", folder], check=True)
        try:
            again = ("run", "x.toml", "--out", "run", "--fresh")
            for order in (("run", "x.toml", "--out", "new"), ("resume", "run"), again):
                problem = without_message(*run_to_end(*order, cwd=folder))
                row.add("lost" if problem else "named", detail=f"{order[0]}: {problem}")
            page = ("--out", str(bench.folder / "page"))
            reads = (("report", "whole", *page), ("report", "run", "--json", *page), ("resume", "whole"))
            for order in (*reads, ("run", "x.toml", "--out", "whole")):
                code, errors = run_to_end(*order, cwd=folder)
                row.add("lost" if code else "harmless", detail=f"{order}: {errors[-500:]}")
            row.add("harmless" if load_run(folder / "whole").model() else "lost", detail="no model")
        finally:
            subprocess.run(["umount", folder], check=True)
        problem = finish(run, whole)
        row.add("lost" if problem else "same_bytes", detail=problem)
    return row


def turned_read_only(bench: Bench) -> Row:
    """The run directory becomes immutable during the run: it stops with a message, and is resumed later."""
    row, trials = Row("folder becomes read-only", "in one process"), bench.number(10, 1)
    if os.geteuid() or subprocess.run(["chattr", "+i", bench.folder], capture_output=True).returncode:
        row.skipped = "chattr +i needs root and a file system that supports it"
        return row
    subprocess.run(["chattr", "-i", bench.folder], check=True)
    whole = whole_run(bench.folder, LOCAL)
    (bench.folder / "x.toml").write_text(LOCAL)
    for row.trials in range(1, trials + 1):
        run = bench.folder / f"run-{row.trials}"
        with running(*next_order(run), "--json", cwd=bench.folder) as command:
            command.reads_round(int(bench.draws.integers(1, LAST)))
            subprocess.run(["chattr", "+i", run], check=True)
            try:
                problem = without_message(command.finish(), command.text)
            finally:
                subprocess.run(["chattr", "-i", run], check=True)
        problem = problem or finish(run, whole)
        row.add("lost" if problem else "same_bytes", detail=problem)
        bench.tick(f"{row.trials} of {trials}")
    return row
