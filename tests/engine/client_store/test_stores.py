"""The contract of both client stores, and the choice between them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from dragfl.engine.client_store import STATE_FILE, ClientStore, FileStore, MemoryStore, open_store
from dragfl.types import FederationInfo
from tests.engine.client_store.states import CLIENTS, LAYOUT, equal, file_store, run_round, state


@pytest.fixture(params=["memory", "file", "anonymous file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ClientStore:
    if request.param == "memory":
        return MemoryStore(LAYOUT, CLIENTS)
    return file_store(tmp_path / STATE_FILE if request.param == "file" else None)


def test_a_client_without_a_state_has_zeros(store: ClientStore) -> None:
    assert equal(store.read(2), {"h": torch.zeros(5), "seen": torch.tensor(0.0)})
    assert store.tensors() == {}


def test_a_staged_state_is_read_only_after_the_commit(store: ClientStore) -> None:
    run_round(store, 1, m1=1.0)
    store.begin(2)
    store.stage(1, state(2.0))
    assert equal(store.read(1), state(1.0))
    store.commit()
    assert equal(store.read(1), state(2.0))


def test_a_failed_round_changes_nothing(store: ClientStore) -> None:
    run_round(store, 1, m1=1.0)
    store.begin(2)
    store.stage(1, state(2.0))
    store.stage(3, state(2.0))
    store.begin(2)
    store.commit()
    assert equal(store.read(1), state(1.0)) and equal(store.read(3), LAYOUT.zeros())
    assert store.tensors()["client"].tolist() == [1]


def test_restore_drops_staged_states(store: ClientStore) -> None:
    store.begin(1)
    store.stage(1, state(2.0))
    store.restore({})
    store.commit()
    assert store.tensors() == {}


def test_a_checkpoint_holds_the_committed_states(store: ClientStore) -> None:
    run_round(store, 1, m3=3.0, m1=1.0)
    tensors = store.tensors()
    assert tensors["client"].tolist() == [1, 3]
    run_round(store, 2, m3=4.0, m0=4.0)
    store.restore(tensors)
    assert [float(store.read(m)["seen"]) for m in range(CLIENTS)] == [0.0, 1.0, 0.0, 3.0]


def test_a_second_staged_state_replaces_the_first(store: ClientStore) -> None:
    store.begin(1)
    store.stage(0, state(1.0))
    store.stage(0, state(2.0))
    store.commit()
    assert equal(store.read(0), state(2.0))


def test_a_staged_state_is_a_copy(store: ClientStore) -> None:
    given = state(1.0)
    store.begin(1)
    store.stage(0, given)
    given["h"].zero_()
    store.commit()
    assert equal(store.read(0), state(1.0))


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        ({"h": torch.zeros(5)}, "fields"),
        ({"h": torch.zeros(4), "seen": torch.tensor(0.0)}, "shape"),
        ({"h": torch.zeros(5), "seen": torch.tensor(0.0, dtype=torch.float64)}, "float64"),
    ],
)
def test_a_state_of_another_layout_is_refused(store: ClientStore, broken: dict[str, Tensor], message: str) -> None:
    store.begin(1)
    with pytest.raises(ValueError, match=message):
        store.stage(0, broken)


def test_special_values_and_strided_rows_are_stored_bit_for_bit(store: ClientStore) -> None:
    odd = torch.tensor([[-0.0, 1e-45, math.inf, -math.inf, math.nan], [1, 2, 3, 4, 5]]).T.contiguous().T
    store.begin(1)
    store.stage(0, {"h": odd[0], "seen": torch.tensor(3.0)})
    store.commit()
    assert torch.equal(store.read(0)["h"].view(torch.int32), odd[0].contiguous().view(torch.int32))


def test_each_store_refuses_the_checkpoint_of_the_other(tmp_path: Path) -> None:
    memory, file = MemoryStore(LAYOUT, CLIENTS), file_store(tmp_path / STATE_FILE)
    for store in (memory, file):
        run_round(store, 1, m0=1.0)
    with pytest.raises(ValueError, match="index"):
        file_store(tmp_path / STATE_FILE).restore(memory.tensors())
    with pytest.raises(ValueError, match="fields"):
        MemoryStore(LAYOUT, CLIENTS).restore(file.tensors())


def test_the_store_depends_on_the_bytes_of_all_client_states(tmp_path: Path) -> None:
    def store_type(clients: int, memory_mb: int, fields: dict[str, str]) -> type:
        info = FederationInfo(1 << 18, clients, clients, (0, 1 << 18))
        return type(open_store(fields, info, memory_mb, "error", tmp_path))  # type: ignore[arg-type]

    assert store_type(8, 8, {"c": "vector"}) is MemoryStore  # 8 x 1 MiB
    assert store_type(9, 8, {"c": "vector"}) is FileStore
    assert store_type(1, 0, {"c": "vector"}) is FileStore
    assert store_type(9, 0, {}) is MemoryStore  # no client state
    assert list(tmp_path.iterdir()) == []  # the file is created with the first state
