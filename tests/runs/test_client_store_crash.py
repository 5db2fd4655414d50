"""SCAFFOLD with client states in memory or in a file: a crash at every step, resumed, gives the same bytes.

As a script in an empty folder this module runs the crashes: it forks a process for each crash point before torch starts
a thread, so one interpreter serves hundreds. A crash comes before, during or after one of these steps: training a
block, growing the file of states, writing a slot, a log line, a tensor file, an fsync, a rename, a removal.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import dragfl
from dragfl.engine.simulator import Worker
from dragfl.errors import DamagedRun, Interrupted
from dragfl.runs.loop import RoundLogs
from tests.conftest import KEPT, TIMEOUT_S, Load, kept_bytes, shell
from tests.runs.processes import kill_at

SPEC: dict[str, Any] = {
    "rounds": 5,
    "clients": {"total": 5, "per_round": 4, "local_steps": 1, "batch_size": 4},
    "algorithm": {"name": "scaffold"},
    "model": {"name": "logistic"},
    "evaluation": {"every": 5},
    "checkpoint": {"every": 2},
    "engine": {"block": 2},
}
STORES = {"memory": 1024, "file": 0}
WAYS = ("before", "torn", "after")
CRASHED = 77


class Crash:
    """Counts steps, and ends the process at one of them."""

    def __init__(self, at: int, way: str) -> None:
        self.at, self.way, self.seen = at, way, 0

    def around(self, owner: Any, name: str, torn: Callable[..., Any] | None = None) -> None:
        real = getattr(owner, name)

        def step(*arguments: Any, **named: Any) -> Any:
            self.seen += 1
            if self.seen != self.at:
                return real(*arguments, **named)
            if self.way == "torn" and torn is not None:
                torn(real, *arguments)
            if self.way == "after":
                real(*arguments, **named)
            os._exit(CRASHED)

        setattr(owner, name, step)

    def install(self) -> None:
        self.around(os, "pwrite", lambda real, fd, data, at: real(fd, data[: len(data) // 2], at))
        self.around(os, "posix_fallocate", lambda real, fd, at, length: real(fd, at, length // 2 + 1))
        os.fsync = lambda descriptor: None  # type: ignore[assignment]  # slow, and the kernel outlives the process
        self.around(os, "fsync")
        self.around(os, "replace")
        self.around(os, "unlink")
        self.around(Worker, "train")
        self.around(RoundLogs, "append", _half_a_line)
        self.around(safetensors.torch, "save_file", _half_a_file)
        self.around(Path, "write_bytes", lambda real, path, data: real(path, data[: len(data) // 2]))


def _half_a_line(real: Callable[..., None], logs: Any, record: Any) -> None:
    real(logs, record)
    path = logs.folder / "clients.jsonl"
    os.truncate(path, path.stat().st_size - 20)


def _half_a_file(real: Callable[..., None], tensors: Any, path: Path) -> None:
    real(tensors, path)
    os.truncate(path, path.stat().st_size // 2)


def start_or_resume(folder: Path, memory_mb: int) -> None:
    """What a user does after a crash: resume, or run again if there is no run yet."""
    if (folder / "spec.toml").exists():
        dragfl.resume(folder)
    else:
        dragfl.run(dragfl.load(SPEC, f"state.memory_mb={memory_mb}"), folder)


def in_child(folder: Path, memory_mb: int, at: int = 0, way: str = "before") -> tuple[int, int]:
    """(exit code, steps) of one attempt, ended at a step; 0 lets it finish."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            crash = Crash(at, way)
            crash.install()
            start_or_resume(folder, memory_mb)
            os.write(writing, str(crash.seen).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    _, status = os.waitpid(child, 0)
    with os.fdopen(reading) as pipe:
        return os.waitstatus_to_exitcode(status), int(pipe.read() or 0)


def harness(memory_mb: int, ways: tuple[str, ...], second: int) -> None:
    """Crash at every step, in alternating ways or in all; with `second`, crash again during the resume."""
    dragfl.simulate(dragfl.load(SPEC))  # trains nothing: children find everything imported
    code, steps = in_child(Path("whole"), memory_mb)
    whole = kept_bytes(Path("whole"))
    points = [(at, way) for at in range(1, steps + 1) for way in (ways if len(ways) > 1 else (WAYS[at % 3],))]
    crashes = 0
    for number, (at, way) in enumerate(points):
        folder = Path(f"crash-{number}")
        attempts = [(at, way), (3 + 5 * (number % second), WAYS[number % 3])] if second else [(at, way)]
        for attempt in attempts:
            code, _ = in_child(folder, memory_mb, *attempt)
            crashes += code == CRASHED
            if code not in (CRASHED, 0):
                raise SystemExit(f"{attempts}: an attempt ended with {code}")
        code, _ = in_child(folder, memory_mb)
        if code or kept_bytes(folder) != whole:
            raise SystemExit(f"{attempts}: the resumed run differs or failed ({code})")
    print(json.dumps({"steps": steps, "crashes": crashes}))  # noqa: T201


def start(folder: Path, store: str, ways: tuple[str, ...], second: int = 0) -> subprocess.Popen[str]:
    """The harness in a process of its own."""
    folder.mkdir()
    return subprocess.Popen(
        [sys.executable, "-m", "tests.runs.test_client_store_crash", json.dumps([STORES[store], ways, second])],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])},
    )  # fmt: skip


def found(process: subprocess.Popen[str]) -> dict[str, int]:
    """The numbers of steps and crashes; fails if a resumed run differs."""
    out, err = process.communicate(timeout=2 * TIMEOUT_S)
    assert process.returncode == 0, err[-3000:]
    numbers: dict[str, int] = json.loads(out)
    return numbers


def test_a_crash_at_every_step_of_either_store(tmp_path: Path) -> None:
    processes = {store: start(tmp_path / store, store, ("one",)) for store in STORES}
    for store, process in processes.items():
        numbers = found(process)
        assert numbers["crashes"] == numbers["steps"] > (80 if store == "file" else 60)
    assert kept_bytes(tmp_path / "file" / "whole") == kept_bytes(tmp_path / "memory" / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_crash_before_within_and_after_every_step(tmp_path: Path, store: str) -> None:
    numbers = found(start(tmp_path / store, store, WAYS))
    assert numbers["crashes"] == 3 * numbers["steps"]


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_second_crash_during_the_resume(tmp_path: Path, store: str) -> None:
    numbers = found(start(tmp_path / store, store, WAYS, second=11))
    assert numbers["crashes"] > 4 * numbers["steps"]


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_command_killed_several_times(tmp_path: Path, store: str) -> None:
    """SIGKILL at arbitrary moments, in and between rounds and checkpoints."""
    spec = dragfl.load(SPEC, "rounds=150", "checkpoint.every=1", f"state.memory_mb={STORES[store]}")
    whole = kept_bytes(dragfl.run(spec, tmp_path / "whole").path)
    (tmp_path / "x.toml").write_text(spec.to_toml())
    run = tmp_path / "run"
    for round in (1, 20, 45, 80):
        order = ("resume", run) if (run / "spec.toml").exists() else ("run", "x.toml", "--out", run)
        kill_at(run, round, 0.0, *order)
    assert shell("resume", run, "--quiet", cwd=tmp_path).returncode == 0
    assert kept_bytes(run) == whole


@pytest.fixture
def stopped(experiment: Load, tmp_path: Path) -> Callable[[str], tuple[dragfl.Experiment, Path]]:
    """A SCAFFOLD run of 6 clients, 3 a round, with its states in a file, stopped after round 3 of 6."""

    def make(lost: str) -> tuple[dragfl.Experiment, Path]:
        spec = experiment(
            rounds=6,
            algorithm={"name": "scaffold"},
            clients={"per_round": 3},
            state={"memory_mb": 0, "on_missing": lost},
        )
        asked = iter([False, False, True])
        with pytest.raises(Interrupted):
            dragfl.run(spec, tmp_path / "run", should_stop=lambda: next(asked))
        return spec, tmp_path / "run"

    return make


def damage(path: Path, how: str) -> None:
    if how == "deleted":
        path.unlink()
    elif how == "cut":
        os.truncate(path, 4096 + 17)
    else:
        data = bytearray(path.read_bytes())
        for slot in range(0, len(data), 4096):
            data[slot + 70] ^= 1
        path.write_bytes(data)


@pytest.mark.parametrize("how", ["deleted", "cut", "flipped"])
def test_a_lost_state_stops_the_run_and_names_the_client(
    stopped: Callable[[str], tuple[dragfl.Experiment, Path]], how: str
) -> None:
    spec, folder = stopped("error")
    damage(folder / "client_states.bin", how)
    with pytest.raises(DamagedRun, match=r"client \d from round [123] .*state\.on_missing = \"zero\""):
        dragfl.resume(folder, spec)


@pytest.mark.parametrize("how", ["deleted", "cut", "flipped"])
def test_a_run_may_continue_from_zeros_and_counts_them(
    stopped: Callable[[str], tuple[dragfl.Experiment, Path]], experiment: Load, how: str
) -> None:
    """`state.on_missing` may be changed after the damage: it does not make another experiment."""
    _, folder = stopped("error")
    spec = experiment(
        rounds=6, algorithm={"name": "scaffold"}, clients={"per_round": 3}, state={"memory_mb": 0, "on_missing": "zero"}
    )
    damage(folder / "client_states.bin", how)
    run = dragfl.resume(folder, spec)
    counted = [row.get("lost_states", 0) for row in run.metrics]
    assert len(counted) == 6 and counted[:3] == [0, 0, 0] and sum(counted) > 0
    assert "lost_states" not in run.metrics[0]


def test_lost_states_are_counted_the_same_after_another_stop(
    stopped: Callable[[str], tuple[dragfl.Experiment, Path]], tmp_path: Path
) -> None:
    spec, folder = stopped("zero")
    damage(folder / "client_states.bin", "deleted")
    other = tmp_path / "other"
    other.mkdir()
    for path in folder.iterdir():
        (other / path.name).write_bytes(path.read_bytes())
    whole = dragfl.resume(folder, spec)
    for _ in range(2):
        with pytest.raises(Interrupted):
            dragfl.resume(other, spec, should_stop=lambda: True)
    assert kept_bytes(dragfl.resume(other, spec).path) == kept_bytes(whole.path)


def test_an_index_that_names_a_slot_twice_is_a_damaged_run(
    stopped: Callable[[str], tuple[dragfl.Experiment, Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec, folder = stopped("zero")
    real = dragfl.engine.client_store.FileStore.tensors

    def twice(self: Any) -> Any:
        tensors = real(self)
        return {**tensors, "slot": torch.zeros_like(tensors["slot"])}

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr("dragfl.engine.client_store.FileStore.tensors", twice)
        dragfl.resume(folder, spec, should_stop=lambda: True)
    with pytest.raises(DamagedRun, match="same slot twice"):
        dragfl.resume(folder, spec)


def test_the_command_exits_with_code_6(tmp_path: Path) -> None:
    asked = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(dragfl.load(SPEC, "state.memory_mb=0"), tmp_path / "run", should_stop=lambda: next(asked))
    (tmp_path / "run" / "client_states.bin").unlink()
    done = shell("resume", "run", cwd=tmp_path)
    assert done.returncode == 6 and "client" in done.stderr and "Traceback" not in done.stderr
    spec = tmp_path / "run" / "spec.toml"
    spec.write_text(spec.read_text().replace('on_missing = "error"', 'on_missing = "zero"'))  # as the message says
    assert shell("resume", "run", "--quiet", cwd=tmp_path).returncode == 0
    assert all((tmp_path / "run" / name).exists() for name in KEPT)


if __name__ == "__main__":
    torch.set_num_threads(1)
    given = json.loads(sys.argv[1])
    harness(given[0], tuple(given[1]), given[2])
