"""SCAFFOLD with client states in memory or in a file: a crash at every step, resumed, gives the same bytes.

A crash comes before, during or after one of these steps: training a block, growing the file of states, writing a slot,
a log line, a tensor file, an fsync, a rename, a removal. What a process that ends there leaves is a copy of the run
directory at that moment: Python's buffers and the memory are lost. So one run has a copy for each of its steps.
Processes that are really killed: tests/runs/test_killed.py, and the slow tests below.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch
import torch

import dragfl
from dragfl.engine.simulator import Worker
from dragfl.errors import DamagedRun, Interrupted
from dragfl.runs.loop import RoundLogs
from tests.conftest import KEPT, Load, kept_bytes, shell
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

Finish = Callable[[], object]  # completes a call that was torn


class Steps:
    """Counts the steps of a run, and copies its directory before, within or after some of them."""

    def __init__(self, folder: Path, ways: Callable[[int], Sequence[str]]) -> None:
        """`ways`: for the number of a step, when to copy."""
        self.folder, self.ways, self.seen = folder, ways, 0
        self.copies: list[Path] = []

    def install(self, patch: pytest.MonkeyPatch) -> None:
        for owner, name, torn in (
            (os, "pwrite", _half_a_slot),
            (os, "posix_fallocate", _half_the_growth),
            (os, "fsync", None),
            (os, "replace", None),
            (os, "unlink", None),
            (Worker, "train", None),
            (RoundLogs, "append", _half_a_line),
            (safetensors.torch, "save_file", _half_a_tensor_file),
            (Path, "write_bytes", _half_a_file),
        ):
            patch.setattr(owner, name, self._around(getattr(owner, name), torn))

    def _around(self, real: Callable[..., Any], torn: Callable[..., Finish] | None) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self.seen += 1
            at = self.seen
            ways, finish = self.ways(at), lambda: real(*arguments, **named)
            if "before" in ways:
                self._copy(at, "before")
            if "torn" in ways:
                if torn is not None:
                    finish = torn(real, *arguments)
                self._copy(at, "torn")
            result = finish()
            if "after" in ways:
                self._copy(at, "after")
            return result

        return step

    def _copy(self, at: int, way: str) -> None:
        copy = self.folder.with_name(f"{self.folder.name}-{at}-{way}")
        if self.folder.exists():
            shutil.copytree(self.folder, copy)
        self.copies.append(copy)


def _half_a_slot(real: Callable[..., int], fd: int, data: bytes, at: int) -> Finish:
    real(fd, data[: len(data) // 2], at)
    return lambda: real(fd, data, at)


def _half_the_growth(real: Callable[..., None], fd: int, at: int, length: int) -> Finish:
    real(fd, at, length // 2 + 1)
    return lambda: real(fd, at, length)


def _half_a_line(real: Callable[..., None], logs: RoundLogs, record: Any) -> Finish:
    real(logs, record)
    path = logs.folder / "clients.jsonl"
    end = path.read_bytes()[-20:]
    os.truncate(path, path.stat().st_size - len(end))

    def finish() -> None:
        with path.open("ab") as file:
            file.write(end)

    return finish


def _half_a_tensor_file(real: Callable[..., None], tensors: Any, path: Path) -> Finish:
    real(tensors, path)
    os.truncate(path, path.stat().st_size // 2)
    return lambda: real(tensors, path)


def _half_a_file(real: Callable[..., int], path: Path, data: bytes) -> Finish:
    real(path, data[: len(data) // 2])
    return lambda: real(path, data)


def start_or_resume(folder: Path, store: str) -> None:
    """What a user does after a crash: resume, or run again if there is no run yet."""
    if (folder / "spec.toml").exists():
        dragfl.resume(folder)
    else:
        dragfl.run(dragfl.load(SPEC, f"state.memory_mb={STORES[store]}"), folder)


def crashed(folder: Path, store: str, ways: Callable[[int], Sequence[str]]) -> Steps:
    """Start or resume to the end; the copies are what crashes on the way leave."""
    steps = Steps(folder, ways)
    with pytest.MonkeyPatch.context() as patch:
        steps.install(patch)
        start_or_resume(folder, store)
    return steps


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is slow, and the kernel outlives the process."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def resumed(copies: Sequence[Path], store: str, whole: Path) -> Iterator[Path]:
    """Every copy, resumed to the bytes of the whole run."""
    for copy in copies:
        start_or_resume(copy, store)
        assert kept_bytes(copy) == kept_bytes(whole), copy.name
        yield copy


def test_a_crash_at_every_step_of_either_store(tmp_path: Path, no_fsync: None) -> None:
    """Before, within and after the steps in turn."""
    for store, least in (("memory", 60), ("file", 80)):
        steps = crashed(tmp_path / store, store, lambda at: [WAYS[at % 3]])
        assert len(steps.copies) == steps.seen > least
        assert len(list(resumed(steps.copies, store, tmp_path / store))) == steps.seen
    assert kept_bytes(tmp_path / "file") == kept_bytes(tmp_path / "memory")


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_crash_before_within_and_after_every_step(tmp_path: Path, store: str, no_fsync: None) -> None:
    steps = crashed(tmp_path / "run", store, lambda at: WAYS)
    assert len(list(resumed(steps.copies, store, tmp_path / "run"))) == 3 * steps.seen


@pytest.mark.slow
@pytest.mark.parametrize("store", STORES)
def test_a_second_crash_during_the_resume(tmp_path: Path, store: str, no_fsync: None) -> None:
    whole, second = tmp_path / "run", 0
    steps = crashed(whole, store, lambda at: WAYS)
    for number, copy in enumerate(steps.copies):
        at, way = 3 + 5 * (number % 11), WAYS[number % 3]
        again = crashed(copy, store, lambda step, at=at, way=way: [way] if step == at else [])
        assert kept_bytes(copy) == kept_bytes(whole), copy.name
        second += len(list(resumed(again.copies, store, whole)))
    assert second > steps.seen


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
