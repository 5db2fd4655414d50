"""Both client stores: what is read, what a failed round leaves, what damage does, and what the file costs."""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.engine.client_store import ClientStore, Layout, MemoryStore, SlabStore, open_store
from dragfl.engine.client_store.slots import SlotFile
from dragfl.errors import DamagedRun, Diverged, Interrupted
from dragfl.types import FederationInfo
from tests.conftest import Load

LAYOUT = Layout.of({"h": "vector", "seen": "scalar"}, 5)
CLIENTS = 4


def state(value: float) -> dict[str, Tensor]:
    return {"h": torch.arange(5.0) + value, "seen": torch.tensor(float(value))}


def same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def keep(store: ClientStore, round: int, **values: float) -> None:
    """One round in which the clients m0, m1, ... come to keep these values."""
    store.begin(round)
    for name, value in values.items():
        store.stage(int(name[1:]), state(value))
    store.commit()


@pytest.fixture(params=["memory", "slab", "nameless slab"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ClientStore:
    if request.param == "memory":
        return MemoryStore(LAYOUT, CLIENTS)
    return SlabStore(LAYOUT, CLIENTS, tmp_path / "clients.slab" if request.param == "slab" else None)


def test_unseen_clients_have_zeros(store: ClientStore) -> None:
    assert same(store.read(2), {"h": torch.zeros(5), "seen": torch.tensor(0.0)})
    assert store.tensors() == {}


def test_what_is_staged_is_read_after_the_commit_only(store: ClientStore) -> None:
    keep(store, 1, m1=1.0)
    store.begin(2)
    store.stage(1, state(2.0))
    assert same(store.read(1), state(1.0))
    store.commit()
    assert same(store.read(1), state(2.0))


def test_a_failed_round_leaves_no_trace(store: ClientStore) -> None:
    keep(store, 1, m1=1.0)
    store.begin(2)
    store.stage(1, state(2.0))
    store.stage(3, state(2.0))
    store.begin(2)
    store.commit()
    assert same(store.read(1), state(1.0)) and same(store.read(3), LAYOUT.zeros())
    assert store.tensors()["client"].tolist() == [1]


def test_what_was_staged_before_a_restore_is_gone(store: ClientStore) -> None:
    store.begin(1)
    store.stage(1, state(2.0))
    store.restore({})
    store.commit()
    assert store.tensors() == {}


def test_a_checkpoint_holds_what_was_committed(store: ClientStore) -> None:
    keep(store, 1, m3=3.0, m1=1.0)
    tensors = store.tensors()
    assert tensors["client"].tolist() == [1, 3]
    keep(store, 2, m3=4.0, m0=4.0)
    store.restore(tensors)
    assert [float(store.read(m)["seen"]) for m in range(CLIENTS)] == [0.0, 1.0, 0.0, 3.0]


def test_the_last_of_two_staged_states_counts(store: ClientStore) -> None:
    store.begin(1)
    store.stage(0, state(1.0))
    store.stage(0, state(2.0))
    store.commit()
    assert same(store.read(0), state(2.0))


def test_a_staged_state_is_a_copy(store: ClientStore) -> None:
    mine = state(1.0)
    store.begin(1)
    store.stage(0, mine)
    mine["h"].zero_()
    store.commit()
    assert same(store.read(0), state(1.0))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"h": torch.zeros(5)}, "fields"),
        ({"h": torch.zeros(4), "seen": torch.tensor(0.0)}, "shape"),
        ({"h": torch.zeros(5), "seen": torch.tensor(0.0, dtype=torch.float64)}, "float64"),
    ],
)
def test_what_cannot_be_kept_bit_for_bit_is_refused(store: ClientStore, wrong: dict[str, Tensor], words: str) -> None:
    store.begin(1)
    with pytest.raises(ValueError, match=words):
        store.stage(0, wrong)


def test_special_values_and_strided_rows_come_back_bit_for_bit(store: ClientStore) -> None:
    odd = torch.tensor([[-0.0, 1e-45, math.inf, -math.inf, math.nan], [1, 2, 3, 4, 5]]).T.contiguous().T
    store.begin(1)
    store.stage(0, {"h": odd[0], "seen": torch.tensor(3.0)})
    store.commit()
    assert torch.equal(store.read(0)["h"].view(torch.int32), odd[0].contiguous().view(torch.int32))


def test_the_store_is_chosen_by_what_all_clients_may_need(tmp_path: Path) -> None:
    def chosen(clients: int, memory_mb: int, fields: dict[str, str]) -> type:
        info = FederationInfo(1 << 18, clients, clients, (0, 1 << 18))
        return type(open_store(fields, info, memory_mb, "error", tmp_path))  # type: ignore[arg-type]

    assert chosen(8, 8, {"c": "vector"}) is MemoryStore  # 8 x 1 MiB
    assert chosen(9, 8, {"c": "vector"}) is SlabStore
    assert chosen(1, 0, {"c": "vector"}) is SlabStore
    assert chosen(9, 0, {}) is MemoryStore  # nothing to keep
    assert list(tmp_path.iterdir()) == []  # the file comes with the first state


def test_the_file_holds_three_rows_a_client_at_most(tmp_path: Path) -> None:
    path = tmp_path / "clients.slab"
    store = SlabStore(LAYOUT, CLIENTS, path)
    for t in range(1, 40):
        keep(store, t, m0=t, m1=t, m2=t, m3=t)
        if t % 3 == 0:
            store.tensors()
            store.checkpointed()
    assert path.stat().st_size <= 3 * CLIENTS * SlotFile(LAYOUT, path).stride


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads /proc")
def test_states_take_no_anonymous_memory(tmp_path: Path) -> None:
    """10,000 clients x 416,047 floats are 16.6 GB; a round of 128 of them is 213 MB, and not in memory."""

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
    assert (tmp_path / "clients.slab").stat().st_size < 1.5 * 128 * 4 * dim


def test_rows_are_aligned_as_torch_aligns(tmp_path: Path) -> None:
    store = SlabStore(LAYOUT, CLIENTS, tmp_path / "clients.slab")
    keep(store, 1, m0=1.0)
    assert all(value.data_ptr() % 64 == 0 for value in store.read(0).values())


def checkpointed(path: Path) -> dict[str, Tensor]:
    """A slab in which every client has kept something in round 7, and its index."""
    store = SlabStore(LAYOUT, CLIENTS, path)
    keep(store, 7, m0=0.0, m1=1.0, m2=2.0, m3=3.0)
    return store.tensors()


def flip(path: Path, slot: int, byte: int) -> None:
    with path.open("r+b") as file:
        file.seek(slot * SlotFile(LAYOUT, path).stride + byte)
        old = file.read(1)[0]
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([old ^ 0x10]))


@pytest.mark.parametrize("byte", [0, 7, 8, 11, 12, 16, 24, 31, 40, 64, 83, 128, 131])  # header, padding, both fields
def test_a_flipped_bit_is_found(tmp_path: Path, byte: int) -> None:
    path = tmp_path / "clients.slab"
    index = checkpointed(path)
    flip(path, int(index["slot"][2]), byte)
    store = SlabStore(LAYOUT, CLIENTS, path)
    store.restore(index)
    assert same(store.read(1), state(1.0))
    with pytest.raises(DamagedRun, match="client 2 from round 7"):
        store.read(2)
    going_on = SlabStore(LAYOUT, CLIENTS, path, "zero")
    going_on.restore(index)
    going_on.begin(8)
    assert same(going_on.read(2), LAYOUT.zeros()) and same(going_on.read(2), LAYOUT.zeros())
    assert same(going_on.read(3), state(3.0)) and going_on.lost == 1
    going_on.stage(2, state(5.0))
    going_on.commit()
    going_on.begin(9)
    assert same(going_on.read(2), state(5.0)) and going_on.lost == 0


@pytest.mark.parametrize("left", [None, 0, 1, 3 * 4096 - 1])
def test_a_short_or_missing_file_is_told_before_the_first_round(tmp_path: Path, left: int | None) -> None:
    path = tmp_path / "clients.slab"
    index = checkpointed(path)
    if left is None:
        path.unlink()
    else:
        os.truncate(path, left)
    with pytest.raises(DamagedRun, match=r"client \d from round 7"):
        SlabStore(LAYOUT, CLIENTS, path).restore(index)
    store = SlabStore(LAYOUT, CLIENTS, path, "zero")
    store.restore(index)
    whole = (left or 0) // 4096
    for again in (False, True):
        if again:  # the loss is remembered by the checkpoints that follow
            index = store.tensors()
            store = SlabStore(LAYOUT, CLIENTS, path, "zero")
            store.restore(index)
        store.begin(8)
        read = [store.read(m) for m in range(CLIENTS)]
        assert store.lost == CLIENTS - whole
        assert sum(same(row, LAYOUT.zeros()) for row in read) >= CLIENTS - whole
    keep(store, 9, m0=4.0, m1=4.0, m2=4.0, m3=4.0)
    store.begin(10)
    assert all(same(store.read(m), state(4.0)) for m in range(CLIENTS)) and store.lost == 0


def test_a_slot_of_another_client_or_round_is_not_taken_for_it(tmp_path: Path) -> None:
    path = tmp_path / "clients.slab"
    index = checkpointed(path)
    store = SlabStore(LAYOUT, CLIENTS, path)
    store.restore({**index, "slot": index["slot"].flip(0)})
    with pytest.raises(DamagedRun, match=r"client 0 from round 7 .*holds client 3 of round 7"):
        store.read(0)
    store.restore({**index, "round": index["round"] + 1})
    with pytest.raises(DamagedRun, match=r"client 1 from round 8 .*holds client 1 of round 7"):
        store.read(1)


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
def test_an_index_that_cannot_be_is_refused(tmp_path: Path, change: dict[str, list[int]]) -> None:
    path = tmp_path / "clients.slab"
    index = checkpointed(path) | {name: torch.tensor(values) for name, values in change.items()}
    with pytest.raises(ValueError):
        SlabStore(LAYOUT, CLIENTS, path).restore(index)


def test_each_store_refuses_the_checkpoint_of_the_other(tmp_path: Path) -> None:
    memory, slab = MemoryStore(LAYOUT, CLIENTS), SlabStore(LAYOUT, CLIENTS, tmp_path / "clients.slab")
    for store in (memory, slab):
        keep(store, 1, m0=1.0)
    with pytest.raises(ValueError, match="index"):
        SlabStore(LAYOUT, CLIENTS, tmp_path / "clients.slab").restore(memory.tensors())
    with pytest.raises(ValueError, match="fields"):
        MemoryStore(LAYOUT, CLIENTS).restore(slab.tensors())


def test_a_full_disk_is_an_interruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    store = SlabStore(LAYOUT, CLIENTS, tmp_path / "clients.slab")
    monkeypatch.setattr(os, "posix_fallocate", full)
    store.begin(1)
    with pytest.raises(Interrupted, match="disk is full"):
        store.stage(0, state(1.0))


def test_short_writes_are_completed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: pwrite(fd, data[:50], at))
    store = SlabStore(LAYOUT, CLIENTS, tmp_path / "clients.slab")
    keep(store, 1, m0=1.0)
    assert same(store.read(0), state(1.0))


@pytest.mark.parametrize("algorithm", ["scaffold", "feddyn", "feddc", "adabest"])
def test_a_federation_has_the_same_bits_with_either_store(experiment: Load, algorithm: str) -> None:
    def played(memory_mb: int) -> list[dragfl.RoundRecord]:
        spec = experiment(algorithm={"name": algorithm}, clients={"per_round": 4}, state={"memory_mb": memory_mb})
        return list(dragfl.simulate(spec))

    kept, filed = played(1024), played(0)
    assert [r.metrics for r in kept] == [r.metrics for r in filed]
    assert [r.clients for r in kept] == [r.clients for r in filed]


@pytest.mark.parametrize("memory_mb", [1024, 0])
def test_a_round_that_diverges_keeps_no_client_state(
    experiment: Load, memory_mb: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = experiment(algorithm={"name": "scaffold"}, state={"memory_mb": memory_mb})
    whole = [r.metrics for r in dragfl.simulate(spec)]
    simulation = dragfl.simulate(spec)
    simulation.step()
    with monkeypatch.context() as patch, pytest.raises(Diverged):
        patch.setattr("dragfl.engine.server_round.EXPLODED", 0.0)
        simulation.step()
    assert [simulation.step().metrics for _ in range(2)] == whole[1:]
