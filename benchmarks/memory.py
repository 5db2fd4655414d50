"""W5, memory: the peak of a run with few and with many clients per round, each in a fresh process.

Measures anonymous memory (`RssAnon`) of the process and all its workers, read every few milliseconds. Data
and the shared memory of the updates are mapped from files and not anonymous.
`python -m benchmarks.memory WORK ALGORITHM WORKERS` prints the peak in bytes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from dataclasses import asdict, replace
from pathlib import Path

from benchmarks.floor import ROOT
from benchmarks.results import Comparison, Row
from benchmarks.timing import Tick, silent
from benchmarks.workloads import Workload

FEW, ROUNDS = 10, 3
EVERY_S = 0.02
LIMIT = 1.05  # times the memory of few clients


def measure(workload: Workload, tick: Tick = silent, few: int = FEW, algorithm: str = "drag") -> Comparison:
    """Compare the peak memory of a small and of the full cohort, of the same population."""
    from dragfl.engine.threads import available_cores

    found: dict[int, float] = {}
    for count in (few, workload.per_round):
        tick(f"memory of {count:,} clients a round")
        found[count] = _peak(replace(workload, per_round=count), algorithm, available_cores())
    base, how, rows = f"{few} clients", f"{available_cores()} workers", []
    for count, peak in found.items():
        limits = {base: LIMIT} if count != few else {}
        ratios = {base: peak / found[few]}
        rows.append(Row(f"{algorithm}, {count:,} clients a round", "dragfl", how, peak, peak, peak, ratios, limits))
    title = f"peak anonymous memory of {ROUNDS} rounds, {how}"
    return Comparison(workload.name, title, tuple(rows), (base,), 1, unit="MB")


def _peak(workload: Workload, algorithm: str, workers: int) -> float:
    command = [sys.executable, "-m", "benchmarks.memory", json.dumps(asdict(workload)), algorithm, str(workers)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    done = subprocess.run(command, stdout=subprocess.PIPE, env=environment, check=True, text=True)
    return float(done.stdout) / 1e6


def anonymous() -> int:
    """Bytes of anonymous memory of this process and its descendants; a process may end meanwhile."""
    total, left = 0, [os.getpid()]
    while left:
        folder = Path(f"/proc/{left.pop()}")
        try:
            lines = (folder / "status").read_text().splitlines()
            total += next(1024 * int(line.split()[1]) for line in lines if line.startswith("RssAnon"))
            for task in (folder / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except (OSError, StopIteration):
            continue
    return total


def main() -> None:
    import dragfl

    workload = Workload(**json.loads(sys.argv[1]))
    peak, over = [0], threading.Event()

    def watch() -> None:
        while not over.wait(EVERY_S):
            peak.append(max(peak.pop(), anonymous()))

    watcher = threading.Thread(target=watch)
    watcher.start()
    with dragfl.simulate(workload.experiment(sys.argv[2], int(sys.argv[3]))) as simulation:
        for _ in range(ROUNDS):
            simulation.step()
        over.set()
        watcher.join()
    print(peak[0])


if __name__ == "__main__":
    main()
