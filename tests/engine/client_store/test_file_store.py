"""The file of client states: its size, memory and alignment, damage to it, and a full disk."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dragfl.engine.client_store import STATE_FILE, SlotFile, open_store
from dragfl.errors import DamagedRun, Interrupted
from dragfl.types import FederationInfo
from tests.engine.client_store.states import CLIENTS, LAYOUT, equal, file_store, run_round, state


def test_the_file_holds_at_most_three_slots_a_client(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    store = file_store(path)
    for t in range(1, 40):
        run_round(store, t, m0=t, m1=t, m2=t, m3=t)
        if t % 3 == 0:
            store.tensors()
            store.checkpointed()
    assert path.stat().st_size <= 3 * CLIENTS * SlotFile(LAYOUT, path).stride


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc: needs Linux")
def test_states_do_not_stay_in_memory(tmp_path: Path) -> None:
    """10,000 clients x 416,047 floats are 16.6 GB; a round of 128 of them is 213 MB, on disk only."""

    def anonymous_mb() -> float:
        found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
        assert found
        return int(found[1]) / 1024

    dim = 416_047
    store = open_store({"c": "vector"}, FederationInfo(dim, 10_000, 10, (0, dim)), 1024, "error", tmp_path)
    before = anonymous_mb()
    store.begin(1)
    for m in range(0, 128 * 78, 78):
        store.stage(m, {"c": store.read(m)["c"] + m})
    assert anonymous_mb() - before < 64
    store.commit()
    assert float(store.read(78)["c"][-1]) == 78.0
    assert anonymous_mb() - before < 64
    assert (tmp_path / STATE_FILE).stat().st_size < 1.5 * 128 * 4 * dim


def test_states_are_aligned_like_torch_tensors(tmp_path: Path) -> None:
    store = file_store(tmp_path / STATE_FILE)
    run_round(store, 1, m0=1.0)
    assert all(value.data_ptr() % 64 == 0 for value in store.read(0).values())


def write_states(path: Path) -> dict[str, Tensor]:
    """Write a file in which every client has a state of round 7; return its index."""
    store = file_store(path)
    run_round(store, 7, m0=0.0, m1=1.0, m2=2.0, m3=3.0)
    return store.tensors()


def flip_bit(path: Path, slot: int, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(slot * SlotFile(LAYOUT, path).stride + byte)
        old = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([old ^ 0x10]))


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 12, 16, 24, 31, 40, 64, 83, 128, 131])  # header, padding, both fields
def test_a_flipped_bit_is_detected(tmp_path: Path, byte: int) -> None:
    path = tmp_path / STATE_FILE
    index = write_states(path)
    store = file_store(path)
    store.restore(index)
    flip_bit(path, int(index["slot"][2]), byte)
    assert equal(store.read(1), state(1.0))
    with pytest.raises(DamagedRun, match="client 2 from round 7"):
        store.read(2)
    with pytest.raises(DamagedRun, match="client 2 from round 7"):  # before a round is trained
        file_store(path).restore(index)
    continuing = file_store(path, "zero")
    continuing.restore(index)
    continuing.begin(8)
    assert equal(continuing.read(2), LAYOUT.zeros()) and equal(continuing.read(2), LAYOUT.zeros())
    assert equal(continuing.read(3), state(3.0)) and continuing.lost_states == 1
    continuing.stage(2, state(5.0))
    continuing.commit()
    continuing.begin(9)
    assert equal(continuing.read(2), state(5.0)) and continuing.lost_states == 0


@pytest.mark.parametrize("left", [None, 0, 1, 3 * 4096 - 1])
def test_a_truncated_or_missing_file_is_an_error_at_restore(tmp_path: Path, left: int | None) -> None:
    path = tmp_path / STATE_FILE
    index = write_states(path)
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    with pytest.raises(DamagedRun, match=r"client \d from round 7"):
        file_store(path).restore(index)
    store = file_store(path, "zero")
    store.restore(index)
    readable = (left or 0) // 4096
    for again in (False, True):
        if again:  # later checkpoints record the loss
            index = store.tensors()
            store = file_store(path, "zero")
            store.restore(index)
        store.begin(8)
        read = [store.read(m) for m in range(CLIENTS)]
        assert store.lost_states == CLIENTS - readable
        assert sum(equal(row, LAYOUT.zeros()) for row in read) >= CLIENTS - readable
    run_round(store, 9, m0=4.0, m1=4.0, m2=4.0, m3=4.0)
    store.begin(10)
    assert all(equal(store.read(m), state(4.0)) for m in range(CLIENTS)) and store.lost_states == 0


def test_a_slot_of_another_client_or_round_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / STATE_FILE
    index = write_states(path)
    store = file_store(path)
    with pytest.raises(DamagedRun, match=r"client 0 from round 7 .*holds client 3 of round 7"):
        store.restore({**index, "slot": index["slot"].flip(0)})
    with pytest.raises(DamagedRun, match=r"client 0 from round 8 .*holds client 0 of round 7"):
        store.restore({**index, "round": index["round"] + 1})


@pytest.mark.parametrize(
    "change",
    [
        {"slot": [0, 0, 1, 2]},
        {"slot": [0, 1, 2, -2]},
        {"client": [0, 1, 2, 2]},
        {"client": [0, 1, 2, 4]},
        {"client": [-1, 1, 2, 3]},
        {"round": [7, 7, 7]},
        {"other": [1]},
    ],
)
def test_an_invalid_index_is_refused(tmp_path: Path, change: dict[str, list[int]]) -> None:
    path = tmp_path / STATE_FILE
    index = write_states(path) | {name: torch.tensor(values) for name, values in change.items()}
    with pytest.raises(ValueError):
        file_store(path).restore(index)


def test_a_full_disk_interrupts_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: object) -> int:
        raise OSError(28, "No space left on device")

    store = file_store(tmp_path / STATE_FILE)
    monkeypatch.setattr(os, "posix_fallocate", no_space)
    store.begin(1)
    with pytest.raises(Interrupted, match="disk is full"):
        store.stage(0, state(1.0))


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:50], at))
    store = file_store(tmp_path / STATE_FILE)
    run_round(store, 1, m0=1.0)
    assert equal(store.read(0), state(1.0))
