"""The rounds that the server has accepted, as a client store."""

from __future__ import annotations

import pytest
import torch

from dragfl.flower.accepted import Accepted


def a_round(store: Accepted, round: int, clients: list[int], commit: bool = True) -> None:
    store.begin(round)
    for m in clients:
        assert store.read(m) == {}
        store.stage(m, {})
    if commit:
        store.commit()


def test_a_client_is_accepted_when_its_round_commits() -> None:
    store = Accepted(3)
    a_round(store, 1, [0, 1])
    assert store.accepted == [1, 1, 0]
    a_round(store, 2, [1, 2], commit=False)  # the round was skipped, or failed
    assert store.accepted == [1, 1, 0]
    a_round(store, 3, [2])
    assert store.accepted == [1, 1, 3]


def test_durable_is_what_the_last_checkpoint_on_disk_has() -> None:
    store = Accepted(2)
    a_round(store, 1, [0, 1])
    saved = store.tensors()
    assert saved["accepted"].tolist() == [1, 1] and saved["accepted"].dtype == torch.int64
    a_round(store, 2, [0])
    assert store.durable == [0, 0]  # the file may not be there yet
    store.checkpointed()
    assert store.durable == [1, 1] and store.accepted == [2, 1]


def test_a_store_returns_to_a_checkpoint() -> None:
    store = Accepted(2)
    store.restore({"accepted": torch.tensor([4, 0])})
    assert store.accepted == store.durable == [4, 0]
    a_round(store, 5, [1])
    assert store.accepted == [4, 5] and store.durable == [4, 0]


def test_lost_states_are_counted_by_round() -> None:
    store = Accepted(3)
    store.begin(1)
    store.lose(2)
    store.lose(2)
    assert store.lost_states == 1
    store.begin(2)
    assert store.lost_states == 0


@pytest.mark.parametrize(
    "tensors",
    [
        {},
        {"accepted": torch.zeros(3, dtype=torch.int64)},
        {"accepted": torch.zeros(2)},
        {"accepted": torch.tensor([0, -1])},
        {"client": torch.tensor([0, 1])},
        {"accepted": torch.tensor([0, 1]), "client": torch.tensor([0, 1])},
    ],
    ids=str,
)
def test_tensors_of_another_store_are_refused(tensors: dict[str, torch.Tensor]) -> None:
    store = Accepted(2)
    with pytest.raises(ValueError, match="accepted"):
        store.restore(tensors)
    assert store.accepted == [0, 0]
