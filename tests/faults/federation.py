"""`kill -9` of the parts of a Flower federation on this machine, at random moments.

After SuperLink, the ServerApp or the command was killed, the resumed run has the bytes of the simulator. A SuperNode or
a ClientApp takes the result of its client with it: the round goes on without it, the record names the reason, and the
model is that of a federation in memory that loses the same results.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import torch

import dragfl
from dragfl.runs.directory import METRICS, MODEL, load_run
from tests.conftest import TIMEOUT_S, shell
from tests.faults.kills import command_line
from tests.faults.runs import INTERRUPTED, TRIES, Bench, next_order, process, read_until
from tests.faults.table import Row
from tests.flower.native import Federation
from tests.flower.processes import below, living, wait_until, wait_until_gone
from tests.flower.supervised import missing

ROUNDS = 5
ASKS = "continue with: dragfl resume"
TABLES: dict[str, Any] = {
    "name": "faults",
    "seed": 5,
    "rounds": ROUNDS,
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "clients": {"total": 2, "local_steps": 2, "batch_size": 10},
    "algorithm": {"name": "scaffold"},
    "model": {"name": "logistic"},
    "evaluation": {"every": 1},
    "checkpoint": {"every": 1},
    "engine": {"block": 1, "executor": "flower"},
    "flower": {"deadline": 3600.0, "secure": False},
}
ENDS_THE_RUN = ("flower-superlink", "flwr-serverapp", "the command")
COSTS_A_RESULT = ("flwr-clientapp", "flower-supernode")


def killed_server_parts(bench: Bench) -> Row:
    """Each run loses SuperLink, the ServerApp and the command in random order, one after the other."""
    row, experiment = Row("kill -9 of SuperLink, ServerApp, command", "Flower"), dragfl.load(TABLES)
    (bench.folder / "x.toml").write_text(experiment.to_toml())
    whole = dragfl.run(dragfl.load(TABLES, "engine.executor=local"), bench.folder / "whole").path
    for row.trials in range(1, bench.number(2, 1) + 1):
        run, problem, done = bench.folder / f"run-{row.trials}", "", 0
        parts = [ENDS_THE_RUN[i] for i in bench.draws.permutation(3)][: bench.number(3, 1)]
        for number, part in enumerate(parts):
            with process(*next_order(run), cwd=bench.folder) as started:
                read_until(started, number + 1)
                time.sleep(bench.draws.uniform(0.0, 3.0))
                processes = below(started.pid)
                done += kill_part(started.pid, part)
                _, err = started.communicate(timeout=TIMEOUT_S)
                wait_until_gone(processes)
            bench.tick(f"{part}: exit code {started.returncode}")
            if part != "the command" and (started.returncode not in (0, 5) or (started.returncode and ASKS not in err)):
                problem = f"{part}: exit code {started.returncode}: {err[-1500:]}"
        problem = problem or _finish(run, whole)
        row.add("lost" if problem else "same_bytes", done, problem)
    return row


def _finish(run: Path, whole: Path) -> str:
    for _ in range(TRIES):
        done = shell(*next_order(run), "--quiet", cwd=run.parent)
        if done.returncode != INTERRUPTED:
            break
    if done.returncode:
        return f"exit code {done.returncode}: {done.stderr[-1500:]}"
    differing = [name for name in (METRICS, MODEL) if (run / name).read_bytes() != (whole / name).read_bytes()]
    return f"{differing} differ" if differing else ""


def kill_part(root: int, part: str) -> bool:
    """Kill a process of the federation below the command; wait until there is one."""
    found: list[int] = []

    def there() -> bool:
        found[:] = [root] if part == "the command" else [p for p, _ in below(root) if part in command_line(p)]
        return bool(found) or not living(below(root))

    wait_until(there)
    for pid in found[-1:]:
        os.kill(pid, signal.SIGKILL)
    return bool(found)


def killed_client_parts(bench: Bench) -> Row:
    """Each run loses a ClientApp and a SuperNode, and goes on; an idle one takes no result with it."""
    row, experiment = Row("kill -9 of ClientApp, SuperNode", "Flower"), dragfl.load(TABLES)
    (bench.folder / "x.toml").write_text(experiment.to_toml())
    for row.trials in range(1, bench.number(2, 1) + 1):
        run, done = bench.folder / f"run-{row.trials}", 0
        with process(*next_order(run), cwd=bench.folder) as started:
            for number, part in enumerate(COSTS_A_RESULT[: bench.number(2, 1)]):
                read_until(started, 1 + 2 * number)
                time.sleep(bench.draws.uniform(0.0, 1.0))
                done += kill_part(started.pid, part)
            _, err = started.communicate(timeout=TIMEOUT_S)
        problem = f"exit code {started.returncode}: {err[-1500:]}" if started.returncode else _unexpected(bench, run)
        row.add("lost" if problem else "named" if missing(run) else "same_bytes", done, problem)
        bench.tick(f"missing: {problem or sorted(missing(run))}")
    return row


def _unexpected(bench: Bench, run: Path) -> str:
    """How the model differs from that of a federation in memory without the same results; "" if it does not."""
    lost = {(round, client) for round, client, _ in missing(run)}
    federation = Federation(dragfl.load(TABLES), bench.folder / f"states-{run.name}")
    federation.grid.drop = lambda client, round: (round, client) in lost
    expected, found = federation.run(bench.folder / f"expected-{run.name}").model(), load_run(run).model()
    same = all(torch.equal(found[name], value) for name, value in expected.items())
    return "" if same else f"another model; missing: {missing(run)}"
