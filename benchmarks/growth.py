"""Growth: time and memory of a round against one quantity at a time, each point in a new process.

`python -m benchmarks growth [--quick] [--only CURVE ...] [--out FOLDER]` writes growth.json and growth.png. Points that
are measured again replace those of an earlier run. `python -m benchmarks.growth POINT` measures one point.

Memory is the peak of `RssAnon` of the process and its workers, plus the largest `RssShmem` of them: all of them map the
same shared memory. `base_mb` is that of the process before the experiment is built.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.floor import ROOT

INPUTS, CLASSES, SHARE = 784, 10, 50  # pixels; classes; samples of a client
STATE_NUMBERS = 1000  # of a client's state in the curve "states": one disk page with its header
EVERY_S = 0.01
TURN_S = 1.0  # rounds are repeated for this long, at least LEAST times
LEAST, MOST = 3, 50
LIMIT_GB = 16.0  # a point that needs more is reported as too large


@dataclass(frozen=True)
class Point:
    """One measurement: a value of the quantity `curve`, the others fixed."""

    curve: str
    x: int  # as asked; d is the nearest number that the model can have
    algorithm: str
    clients: int = 10_000
    per_round: int = 100
    hidden: int = 12  # units of an MLP 784-hidden-10: 9,550 parameters
    steps: int = 5
    workers: int = 1

    @property
    def key(self) -> tuple[str, int, str]:
        return self.curve, self.x, self.algorithm


TITLES = {
    "cohort": "clients a round",
    "population": "population",
    "d": "parameters",
    "workers": "worker processes",
    "states": "clients with a state on disk",
}
FIXED = {
    "cohort": "10,000 clients, d = 9,550, 5 steps of 10 samples, 1 worker",
    "population": "100 clients a round, d = 9,550, 5 steps of 10 samples, 1 worker; SCAFFOLD with states on disk",
    "d": "4 clients a round, 1 step of 10 samples, 1 worker",
    "workers": "100 clients a round, d = 100,180, 5 steps of 10 samples",
    "states": f"{STATE_NUMBERS:,} numbers a client; every state is written, committed and indexed for a checkpoint",
}
SIZES = {
    "cohort": (10, 100, 1_000, 10_000),
    "population": (1_000, 10_000, 100_000, 1_000_000),
    "d": (10**4, 10**5, 10**6, 10**7, 10**8),
    "workers": (1, 2),
    "states": (1_000, 10_000, 100_000, 1_000_000),
}
QUICK = {"cohort": (4, 16), "population": (100, 1_000), "d": (10**4, 10**5), "workers": (1, 2), "states": (50, 500)}


def points(quick: bool = False, only: Sequence[str] = ()) -> list[Point]:
    """The points of the curves, in order."""
    made = []
    for curve, sizes in (QUICK if quick else SIZES).items():
        for x in sizes if curve in (only or SIZES) else ():
            if curve == "cohort":
                made += [Point(curve, x, name, per_round=x) for name in ("fedavg", "drag")]
            elif curve == "population":
                few = min(100, x)
                made += [Point(curve, x, name, clients=x, per_round=few) for name in ("fedavg", "drag", "scaffold")]
            elif curve == "d":
                hidden = max(1, round((x - CLASSES) / (INPUTS + 1 + CLASSES)))
                made += [Point(curve, x, name, 4, 4, hidden, steps=1) for name in ("fedavg", "drag")]
            elif curve == "workers":
                few = 8 if quick else 100
                made += [Point(curve, x, name, 1_000, few, 126, workers=x) for name in ("fedavg", "drag")]
            else:
                made.append(Point(curve, x, "client store", clients=x))
    return made


def digits() -> Any:
    """Random pixels in the shape of MNIST; few, so that the data take no memory."""
    from benchmarks.workloads import noise

    return noise((1, 28, 28), CLASSES, 2_000)


def run_point(point: Point) -> dict[str, Any]:
    """Measure one point in this process."""
    import torch  # noqa: F401  the base includes it

    import dragfl  # noqa: F401
    from dragfl.runs import simulation  # noqa: F401

    watch = Watch()
    with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR", "/var/tmp")) as name:
        found = _states(point, Path(name)) if point.curve == "states" else _rounds(point, Path(name))
    return {**asdict(point), **found, "base_mb": watch.base / 1e6, "memory_mb": watch.close() / 1e6}


def _rounds(point: Point, folder: Path) -> dict[str, Any]:
    """Seconds to build, of the first round and of the median later one; bytes of the records and states."""
    import dragfl
    from benchmarks.workloads import ENDLESS, LR
    from dragfl.runs.simulation import Simulation

    clients = {"total": point.clients, "per_round": point.per_round, "local_steps": point.steps, "batch_size": 10}
    tables = {
        "rounds": ENDLESS,
        "data": {"dataset": "benchmarks.growth:digits", "partition": {"kind": "resampled", "k": SHARE}},
        "model": {"name": "mlp", "hidden": point.hidden},
        "clients": {**clients, "lr": LR},
        "algorithm": {"name": point.algorithm},
        "evaluation": {"every": ENDLESS},
        "engine": {"workers": point.workers},
        "state": {"memory_mb": 0 if point.algorithm == "scaffold" else 1024},
    }
    started = time.perf_counter()
    with Simulation(dragfl.load(tables), folder) as simulation:
        built = time.perf_counter()
        simulation.step()
        first, seconds = time.perf_counter(), list[float]()
        while len(seconds) < LEAST or (sum(seconds) < TURN_S and len(seconds) < MOST):
            begun = time.perf_counter()
            record = simulation.step()
            seconds.append(time.perf_counter() - begun)
        low, median, high = statistics.quantiles(seconds, n=4, method="inclusive")
        line = json.dumps({"round": record.round, **record.clients})
        return {
            "d": simulation.federation.info.dim,
            "build_s": built - started,
            "first_s": first - built,
            "round_s": median,
            "quartiles_s": [low, high],
            "rounds": len(seconds),
            "log_bytes": len(line) + 1,
            "disk_mb": sum(file.stat().st_size for file in folder.iterdir()) / 1e6,
        }


def _states(point: Point, folder: Path) -> dict[str, Any]:
    """Write a state of every client, commit them, and make the index of two checkpoints."""
    import torch

    from dragfl.engine.client_store import FileStore, Layout, SlotFile

    layout = Layout.of({"c": "vector"}, STATE_NUMBERS)
    store = FileStore(layout, point.clients, SlotFile(layout, folder / "states.bin"))
    state = {"c": torch.ones(STATE_NUMBERS)}
    started = time.perf_counter()
    store.begin(1)
    for m in range(point.clients):
        store.stage(m, state)
    store.commit()
    written = time.perf_counter()
    store.tensors()
    store.checkpointed()
    synced = time.perf_counter()
    store.tensors()  # again, with nothing left to sync: the index alone
    store.checkpointed()
    return {
        "d": STATE_NUMBERS,
        "build_s": 0.0,
        "first_s": synced - written,
        "round_s": written - started,
        "quartiles_s": [written - started] * 2,
        "rounds": 1,
        "index_s": time.perf_counter() - synced,
        "log_bytes": 0,
        "disk_mb": (folder / "states.bin").stat().st_size / 1e6,
    }


class Watch:
    """The peak memory of this process and its descendants, from now to `close`."""

    def __init__(self) -> None:
        self.base = self._peak = used_memory()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        while not self._over.wait(EVERY_S):
            self._peak = max(self._peak, used_memory())

    def close(self) -> int:
        self._over.set()
        self._thread.join()
        return self._peak


def used_memory() -> int:
    """Bytes: the sum of the anonymous memory of all processes, and their shared memory once."""
    anonymous, shared, left = 0, [0], [os.getpid()]
    while left:
        folder = Path(f"/proc/{left.pop()}")
        try:
            lines = dict(line.split(":", 1) for line in (folder / "status").read_text().splitlines())
            anonymous += 1024 * int(lines["RssAnon"].split()[0])
            shared.append(1024 * int(lines["RssShmem"].split()[0]))
            for task in (folder / "task").iterdir():
                left += map(int, (task / "children").read_text().split())
        except (OSError, KeyError):  # it has ended
            continue
    return anonymous + max(shared)


def measure(point: Point) -> dict[str, Any]:
    """Measure a point in a new process; `failed` says why there is no number."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), *filter(None, sys.path)])}
    command = [sys.executable, "-m", "benchmarks.growth", json.dumps(asdict(point))]
    done = subprocess.run(command, capture_output=True, env=environment, text=True)
    if done.returncode:
        return {**asdict(point), "failed": (done.stderr.strip().splitlines() or ["killed"])[-1]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(argv: Sequence[str]) -> int:
    """Measure the curves and write growth.json and growth.png; the exit code."""
    from benchmarks.results import describe_environment

    parser = argparse.ArgumentParser(prog="python -m benchmarks growth", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes: a check of the benchmark, not a measurement")
    parser.add_argument("--only", nargs="+", choices=tuple(SIZES), default=(), metavar="CURVE", help=", ".join(SIZES))
    parser.add_argument("--sizes", nargs="+", type=int, metavar="X", help="measure only these values of the quantity")
    parser.add_argument("--out", type=Path, default=Path("bench"), help="for growth.json and growth.png")
    args = parser.parse_args(argv)
    args.out.mkdir(parents=True, exist_ok=True)
    path = args.out / "growth.json"
    earlier = json.loads(path.read_text())["points"] if path.exists() else []
    found = {(row["curve"], row["x"], row["algorithm"]): row for row in earlier}
    environment = describe_environment()
    for point in points(args.quick, args.only):
        if args.sizes and point.x not in args.sizes:
            continue
        row = found[point.key] = {**measure(point), "load": os.getloadavg()[0]}
        text = row.get("failed") or f"{row['round_s']:.4g} s, {row['memory_mb'] - row['base_mb']:.4g} MB"
        print(f"{TITLES[point.curve]} {point.x:,}, {point.algorithm}: {text}", flush=True)
        order = list(SIZES)
        rows = sorted(found.values(), key=lambda row: (order.index(row["curve"]), row["algorithm"], row["x"]))
        path.write_text(json.dumps({**environment, "points": rows}, indent=1) + "\n")  # the next point may take long
    if find_spec("matplotlib") is not None:
        from benchmarks.growth_figure import draw

        draw(json.loads(path.read_text())["points"], args.out / "growth.png")
    print(f"wrote {path}")
    return 0


if __name__ == "__main__":
    limit = int(LIMIT_GB * 2**30)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    print(json.dumps(run_point(Point(**json.loads(sys.argv[1])))))
