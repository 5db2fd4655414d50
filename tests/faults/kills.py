"""`kill -9` of runs and of their workers, and signals that ask a run to stop, at random moments."""

from __future__ import annotations

import os
import shutil
import signal
import time
import uuid
from pathlib import Path

from tests.conftest import TIMEOUT_S
from tests.engine.backends.test_worker_process import marked
from tests.faults.commands import running
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
    whole_run,
)
from tests.faults.table import Row
from tests.flower.processes import below, wait_until_gone

KILLS_PER_RUN = 5
LAST = ROUNDS - 40  # no fault is planned for a later round: a process is some rounds ahead of its output
RAY = POOL + 'executor = "ray"\n'
RAY_WORKER, POOL_WORKER = "ray::", "worker_process"


def killed_local(bench: Bench) -> Row:
    return _killed(bench, "in one process", bench.number(40, 4))


def killed_pool(bench: Bench) -> Row:
    return _killed(bench, "pool of 2 workers", bench.number(30, 2))


def killed_store(bench: Bench) -> Row:
    return _killed(bench, "client states on disk", bench.number(30, 2))


def killed_ray(bench: Bench) -> Row:
    row = Row("kill -9 of the run", "Ray")
    return _kill_runs(bench, row, RAY, whole_run(bench.folder, LOCAL), bench.number(10, 1))


def killed_pool_workers(bench: Bench) -> Row:
    return _kill_workers(bench, Row("kill -9 of a worker", "pool of 2 workers"), POOL, POOL_WORKER, bench.number(20, 2))


def killed_ray_workers(bench: Bench) -> Row:
    return _kill_workers(bench, Row("kill -9 of a worker", "Ray"), RAY, RAY_WORKER, bench.number(10, 1))


def _killed(bench: Bench, kind: str, kills: int) -> Row:
    return _kill_runs(bench, Row("kill -9 of the run", kind), KINDS[kind], whole_run(bench.folder, KINDS[kind]), kills)


def _kill_runs(bench: Bench, row: Row, spec: str, whole: Path, kills: int) -> Row:
    (bench.folder / "x.toml").write_text(spec)
    while row.injected < kills:
        row.trials += 1
        run = bench.folder / f"run-{row.trials}"
        done = _kill_several(bench, run, min(KILLS_PER_RUN, kills - row.injected))
        problem = finish(run, whole)
        row.add("lost" if problem else "same_bytes", done, problem)
        bench.tick(f"{row.injected} of {kills}")
        shutil.rmtree(run)
    return row


def _kill_several(bench: Bench, run: Path, kills: int) -> int:
    """Start, kill, resume, kill, ...; returns the number of kills. One in five comes while the process starts."""
    done = 0
    for round in sorted(bench.draws.integers(1, LAST, kills).tolist()):
        with running(*next_order(run), "--json", cwd=bench.folder) as command:
            if bench.draws.random() < 0.2:
                time.sleep(bench.draws.uniform(0.0, 0.5))
            elif command.reads_round(round):
                time.sleep(bench.draws.uniform(0.0, 0.02))
        if command.returncode == 0:
            break
        done += 1
    return done


def _kill_workers(bench: Bench, row: Row, spec: str, command: str, kills: int) -> Row:
    """Kill workers of one run after another; the run goes on, or stops with a message and is resumed."""
    os.environ["POOL_MARKER"] = uuid.uuid4().hex  # finds the processes of Ray, which leave their parent
    whole = whole_run(bench.folder, LOCAL)
    (bench.folder / "x.toml").write_text(spec)
    while row.injected < kills:
        row.trials += 1
        run, done = bench.folder / f"run-{row.trials}", 0
        rounds = sorted(bench.draws.choice(LAST, min(KILLS_PER_RUN, kills - row.injected), replace=False).tolist())
        with process(*next_order(run), cwd=bench.folder) as started:
            for round in rounds:
                if read_until(started, round + 1):
                    time.sleep(bench.draws.uniform(0.0, 0.02))
                    done += _kill_one(bench, command)
            _, err = started.communicate(timeout=TIMEOUT_S)
        ended_well = started.returncode == 0 or (started.returncode == 5 and "dragfl: " in err)
        problem = finish(run, whole) if ended_well else f"exit code {started.returncode}: {err[-500:]}"
        row.add("lost" if problem else "same_bytes", done, problem)
        bench.tick(f"{row.injected} of {kills}")
        shutil.rmtree(run)
    return row


def _kill_one(bench: Bench, command: str) -> bool:
    """Kill one of the workers of the run."""
    found = sorted(pid for pid in marked(os.environ["POOL_MARKER"]) if command in command_line(pid))
    if not found:
        return False
    os.kill(found[int(bench.draws.integers(len(found)))], signal.SIGKILL)
    return True


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    except OSError:
        return ""


def signalled_local(bench: Bench) -> Row:
    return _signalled(bench, "in one process", bench.number(20, 2))


def signalled_pool(bench: Bench) -> Row:
    return _signalled(bench, "pool of 2 workers", bench.number(10, 1))


def _signalled(bench: Bench, kind: str, trials: int) -> Row:
    """SIGINT, SIGTERM or SIGHUP; in half of the trials a second signal some milliseconds later."""
    row, whole = Row("SIGINT, SIGTERM, SIGHUP; a second one", kind), whole_run(bench.folder, KINDS[kind])
    (bench.folder / "x.toml").write_text(KINDS[kind])
    for row.trials in range(1, trials + 1):
        run = bench.folder / f"run-{row.trials}"
        with running(*next_order(run), "--json", cwd=bench.folder) as command:
            started = bench.draws.random() < 0.8 and command.reads_round(int(bench.draws.integers(1, LAST)))
            time.sleep(bench.draws.uniform(0.0, 0.02 if started else 0.5))
            processes = below(command.pid)
            signals = [_any_signal(bench) for _ in range(int(bench.draws.integers(1, 3)))]
            for number in signals:
                command.send(number)
                time.sleep(bench.draws.uniform(0.0, 0.02))
            code = command.finish()
            problem = _ended_badly(code, command.text, signals if started else [])
        wait_until_gone(processes)
        problem = problem or (difference(run, whole) if code == 0 else finish(run, whole))
        row.add("lost" if problem else "same_bytes", detail=problem)
        bench.tick(f"{row.trials} of {trials}")
    return row


def _any_signal(bench: Bench) -> signal.Signals:
    return (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)[int(bench.draws.integers(3))]


def _ended_badly(code: int, errors: str, signals: list[signal.Signals]) -> str:
    """Why the end of a run is not that of a stopped one.

    Without signals it had not begun, and any end will do. A second one may come when the checkpoint is written and the
    process is about to end: then the process ends at once, by this signal.
    """
    if not signals or code == 0 or (code == 5 and "Traceback" not in errors):
        return ""
    if len(signals) == 2 and code == -signals[1] and "continue with" in errors:
        return ""
    return f"{signals}, exit code {code}: {errors[-500:]}"
