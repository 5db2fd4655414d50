"""Faults around a run: a clock that jumps, several processes in one folder, too little memory in a worker."""

from __future__ import annotations

import os
import resource
import shutil
import time
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from dragfl.errors import DragflError
from dragfl.report import read_summary
from dragfl.runs.directory import load_run
from tests.conftest import TIMEOUT_S
from tests.engine.backends.test_worker_process import marked
from tests.faults.commands import running
from tests.faults.kills import LAST, POOL_WORKER, command_line
from tests.faults.runs import (
    KINDS,
    LOCAL,
    POOL,
    ROUNDS,
    Bench,
    difference,
    finish,
    next_order,
    process,
    read_until,
    run_command,
    whole_run,
)
from tests.faults.table import Row

REFUSED = (2, 5, 6)  # exit codes: in use, can be resumed, damaged

# Python imports it before anything else, in worker processes too: every look at the clock may be a year off.
JUMPING_CLOCK = """
import datetime, random, time
draws = random.Random({seed})
offset = 0.0
real, real_ns = time.time, time.time_ns

def jump():
    global offset
    if draws.random() < 0.3:
        offset = draws.choice([-1.0, 1.0]) * 10.0 ** draws.uniform(-3.0, 7.5)
    return offset

time.time = lambda: real() + jump()
time.time_ns = lambda: real_ns() + int(jump() * 1e9)

class Jumping(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(time.time(), tz)

datetime.datetime = Jumping
"""

# A limit on the data of worker processes alone.
LITTLE_MEMORY = """
import resource, sys
if any("worker_process" in word for word in sys.orig_argv):
    resource.setrlimit(resource.RLIMIT_DATA, ({limit}, {limit}))
"""

MEMORY = POOL.replace("batch_size = 10", "batch_size = 200").replace('name = "logistic"', 'name = "mlp"')
MEMORY = MEMORY.replace(f"rounds = {ROUNDS}", "rounds = 40")


def _with_code(folder: Path, code: str) -> str:
    """PYTHONPATH with this code as sitecustomize."""
    folder.mkdir(exist_ok=True)
    (folder / "sitecustomize.py").write_text(code)
    return os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])


def clock(bench: Bench) -> Row:
    """Runs, a kill and a resume with a clock that jumps forth and back."""
    row = Row("clock jumps", "in one process, pool, states on disk")
    for number in range(bench.number(2, 1)):
        for kind, spec in KINDS.items():
            folder = bench.folder / f"{kind}-{number}".replace(" ", "-")
            folder.mkdir()
            whole = whole_run(folder, spec, "rounds=80")
            (folder / "x.toml").write_text((whole / "spec.toml").read_text())
            path = _with_code(folder / "clock", JUMPING_CLOCK.format(seed=int(bench.draws.integers(2**31))))
            run, problem = folder / "run", ""
            with process(*next_order(run), cwd=folder, env=os.environ | {"PYTHONPATH": path}) as started:
                read_until(started, int(bench.draws.integers(1, 40)))
            done = run_command(*next_order(run), "--quiet", cwd=folder, PYTHONPATH=path)
            problem = difference(run, whole) if done.returncode == 0 else done.stderr[-800:]
            report = run_command("report", run, "--json", cwd=folder, PYTHONPATH=path)
            problem = problem or (report.stderr[-800:] if report.returncode else "")
            row.trials += 1
            row.add("lost" if problem else "same_bytes", detail=f"{kind}: {problem}")
            bench.tick(kind)
    return row


def together(bench: Bench) -> Row:
    """Two processes start, two resume and one reports the same run at once."""
    row, whole = Row("start, resume and report at once", "in one process, 5 commands"), whole_run(bench.folder, LOCAL)
    for row.trials in range(1, bench.number(8, 1) + 1):
        folder = bench.folder / f"trial-{row.trials}"
        folder.mkdir()
        (folder / "x.toml").write_text(LOCAL)
        start, resume, problem = ("run", "x.toml", "--out", "run", "--quiet"), ("resume", "run", "--quiet"), ""
        with ExitStack() as stack:
            commands = [stack.enter_context(running(*start, cwd=folder)) for _ in range(2)]
            time.sleep(bench.draws.uniform(0.0, 1.0))
            for order in (resume, resume, ("report", "run", "--json")):
                commands.append(stack.enter_context(running(*order, cwd=folder)))
            for command in commands:
                code, errors = command.finish(), command.text
                if "Traceback" in errors or not (code == 0 or (code in REFUSED and "dragfl: " in errors)):
                    problem = f"exit code {code}: {errors[-800:]}"
        problem = problem or finish(folder / "run", whole)
        row.add("lost" if problem else "same_bytes", len(commands), problem)
        bench.tick(f"{row.trials}")
    return row


def read_while_running(bench: Bench) -> Row:
    """Every look at a running run: its numbers are the first rows of the uninterrupted run."""
    row = Row("read and report while it runs", "in one process, killed once")
    whole = whole_run(bench.folder, LOCAL)
    metrics = load_run(whole).metrics
    for row.trials in range(1, bench.number(3, 1) + 1):
        run = bench.folder / f"run-{row.trials}"
        (bench.folder / "x.toml").write_text(LOCAL)
        for attempt in range(2):
            with running(*next_order(run), "--json", cwd=bench.folder) as command:
                for round in range(1, ROUNDS, 2):
                    if not command.reads_round(round) or (attempt == 0 and round > LAST // 2):
                        break
                    outcome, detail = _look(run, metrics)
                    row.add(outcome, detail=detail)
        problem = finish(run, whole)
        row.add("lost" if problem else "same_bytes", detail=problem)
        bench.tick(f"{row.trials}")
    return row


def _look(run: Path, metrics: list[dict[str, Any]]) -> tuple[str, str]:
    try:
        found = load_run(run).metrics
        summary = read_summary(run)
    except DragflError as error:
        return "lost", f"a run in good order was refused: {error}"
    except Exception as error:
        return "lost", repr(error)
    if found != metrics[: len(found)] or len(summary.rows) != 1:
        return "lost", f"other metrics in {len(found)} rounds"
    return "harmless", ""


def little_memory(bench: Bench) -> Row:
    """A limit on the memory of workers from their start, or set to less than they use during the run."""
    os.environ["POOL_MARKER"] = uuid.uuid4().hex
    row, whole = Row("out of memory in a worker", "pool of 2 workers"), whole_run(bench.folder, MEMORY)
    (bench.folder / "x.toml").write_text(MEMORY)
    limits = [int(2 ** bench.draws.uniform(23.0, 29.0)) for _ in range(bench.number(8, 2))]
    for number, limit in enumerate(limits):
        run = bench.folder / f"run-{number}"
        code = LITTLE_MEMORY.format(limit=limit) if number % 2 else ""
        path = _with_code(bench.folder / f"limit-{number}", code)
        with process(*next_order(run), cwd=bench.folder, env=os.environ | {"PYTHONPATH": path}) as started:
            if not number % 2:
                read_until(started, int(bench.draws.integers(1, 20)))
                for pid in marked(os.environ["POOL_MARKER"]):
                    if POOL_WORKER in command_line(pid):
                        resource.prlimit(pid, resource.RLIMIT_DATA, (1 << 20, 1 << 20))
            _, err = started.communicate(timeout=TIMEOUT_S)
        problem, code = "", started.returncode
        message = err.rpartition("Traceback")[2]  # a worker may fail in an import; the command ends it
        if not (code == 0 or (code in REFUSED and "dragfl: " in message)):
            problem = f"limit {limit >> 20} MB, exit code {code}: {err[-1500:]}"
        problem = problem or finish(run, whole)
        row.trials += 1
        row.add("lost" if problem else "same_bytes", detail=problem)
        row.note += f"{limit >> 20} MB: {code} {err.strip().splitlines()[-1][:150] if err.strip() else ''}\n"
        shutil.rmtree(run, ignore_errors=True)
        bench.tick(row.note.splitlines()[-1])
    return row
