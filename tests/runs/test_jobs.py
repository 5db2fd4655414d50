"""Runs in parallel processes write the same bytes as runs one after the other, even when a process dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.engine.backends.worker_process import end_idle_processes
from dragfl.errors import DamagedRun, Interrupted, RunsFailed, SpecError
from dragfl.runs.directory import Run
from dragfl.runs.sweep import Callbacks
from dragfl.types import RoundRecord
from tests.runs.processes import wait_until

SMALL: dict[str, Any] = {
    "rounds": 12,
    "data": {"partition": {"kind": "sorted_shards"}},
    "clients": {"total": 6},
    "model": {"name": "logistic"},
    "evaluation": {"every": 4},
    "checkpoint": {"every": 3},
}
GRID = {"algorithm.name": ["drag", "scaffold"], "seed": [0, 1]}
FILES = ("metrics.jsonl", "clients.jsonl", "model.safetensors")


def contents(runs: list[Run]) -> list[bytes]:
    return [(run.path / name).read_bytes() for run in runs for name in FILES]


@pytest.fixture(autouse=True)
def _no_idle_processes() -> None:
    """Idle processes of other tests would be reused here."""
    end_idle_processes()


def children() -> set[int]:
    """The living child processes of this one."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == os.getpid() and fields[0] != "Z":
            found.add(int(path.parent.name))
    return found


@pytest.fixture(scope="module")
def one_after_the_other(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    return contents(dragfl.sweep(SMALL, GRID, tmp_path_factory.mktemp("one_after_the_other")))


def test_equal_bytes_and_no_process_left(tmp_path: Path, one_after_the_other: list[bytes]) -> None:
    before, begun, ended = children(), [], []
    runs = dragfl.sweep(
        SMALL,
        GRID,
        tmp_path,
        Callbacks(
            on_begin=lambda p, done: begun.append((p.name, done)),
            on_end=lambda run, already: ended.append((run.path.name, already)),
        ),
        jobs=2,
    )
    assert contents(runs) == one_after_the_other
    assert sorted(begun) == sorted((run.path.name, 0) for run in runs)
    assert sorted(ended) == sorted((run.path.name, False) for run in runs)
    assert children() <= before
    again: list[bool] = []
    dragfl.sweep(SMALL, GRID, tmp_path, Callbacks(on_end=lambda run, already: again.append(already)), jobs=2)
    assert again == [True] * 4


def test_a_killed_process_is_replaced_and_its_run_resumed(tmp_path: Path, one_after_the_other: list[bytes]) -> None:
    before, killed = children(), []

    def kill_one(record: RoundRecord) -> None:
        if record.round == 5 and not killed:
            killed.append(min(children() - before))
            os.kill(killed[0], signal.SIGKILL)

    runs = dragfl.sweep(SMALL, GRID, tmp_path, Callbacks(on_record=kill_one), jobs=2)
    assert killed and contents(runs) == one_after_the_other


def test_a_stopped_sweep_continues_with_the_same_call(tmp_path: Path, one_after_the_other: list[bytes]) -> None:
    rounds: list[int] = []
    with pytest.raises(Interrupted, match="of 4 runs finished; continue with the same command"):
        dragfl.sweep(
            SMALL,
            GRID,
            tmp_path,
            Callbacks(on_record=lambda record: rounds.append(record.round), should_stop=lambda: len(rounds) >= 3),
            jobs=2,
        )
    assert len(rounds) < 4 * SMALL["rounds"]
    assert contents(dragfl.sweep(SMALL, GRID, tmp_path, jobs=2)) == one_after_the_other


def test_an_error_in_a_run_is_raised_by_the_sweep(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        dragfl.sweep(SMALL, {"seed": [0, 1]}, tmp_path, Callbacks(should_stop=lambda: True))
    (tmp_path / "seed0" / "checkpoint.json").write_text("{}")
    with pytest.raises(RunsFailed, match=r"1 of 2 runs failed(.|\n)*checkpoint\.json") as error:
        dragfl.sweep(SMALL, {"seed": [0, 1]}, tmp_path, jobs=2)
    assert error.value.exit_code == DamagedRun.exit_code
    assert dragfl.load_run(tmp_path / "seed1").finished, "the other run is not lost"


def test_an_object_without_a_name_cannot_be_sent_to_a_process(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="runs in parallel are loaded by name"):
        dragfl.sweep({**SMALL, "data": {"dataset": dragfl.data.load("digits")}}, {"seed": [0, 1]}, tmp_path, jobs=2)


def test_processes_end_when_their_parent_is_killed(tmp_path: Path) -> None:
    """The closed connection ends them."""
    long = {**SMALL, "rounds": 100_000}
    script = f"import dragfl; dragfl.sweep({long!r}, {{'seed': [0, 1]}}, {str(tmp_path)!r}, jobs=2)"
    mark = {**os.environ, "DRAGFL_TEST_MARK": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", script], env=mark)
    try:
        wait_until(lambda: len(list(tmp_path.glob("*/metrics.jsonl"))) == 2)
    finally:
        parent.kill()
        parent.wait()
    wait_until(lambda: not _marked(str(tmp_path)))


def _marked(mark: str) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"DRAGFL_TEST_MARK={mark}".encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found
