"""The server's half of a round identifies clients by id: order, missing and doubled results change no other row."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

import dragfl
from dragfl.engine.aggregation import fold
from dragfl.engine.client import BUFFERS, Client, ClientData, train_client
from dragfl.engine.round import TrainTasks, run_round
from dragfl.engine.server_round import ServerRound
from dragfl.engine.threads import one_thread, own_generator
from tests.conftest import Load


def opened(experiment: Load, **changes: Any) -> tuple[ServerRound, list[Any]]:
    """A round of six clients with blocks of one, and its folded blocks."""
    fed = dragfl.simulate(experiment(**{"engine": {"block": 1}, **changes})).federation
    with one_thread(), own_generator():
        server = ServerRound.open(fed, fed.start())
        plan = server.begin()
        blocks = [fold(fed.algorithm.aggregate, plan, result) for result in fed.backend.train(TrainTasks(server))]
    return server, blocks


def test_results_in_another_order_give_the_same_rows(experiment: Load) -> None:
    server, blocks = opened(experiment)
    for block in blocks:
        assert server.take(block)
    state, record = server.close(None)
    reverse, blocks = opened(experiment)
    for block in reversed(blocks):
        assert reverse.take(block)
    other, same = reverse.close(None)
    assert record.clients == same.clients
    torch.testing.assert_close(state.w, other.w, rtol=0, atol=1e-7)


def test_a_missing_result_leaves_the_other_rows_as_they_are(experiment: Load) -> None:
    server, blocks = opened(experiment)
    for block in blocks:
        server.take(block)
    _, whole = server.close(None)
    partial, blocks = opened(experiment)
    for block in blocks[:2] + blocks[3:]:
        partial.take(block)
    _, record = partial.close(None)
    assert record.metrics["missing"] == 1 and record.metrics["used"] == 5
    assert record.clients["client"] == [0, 1, 2, 3, 4, 5]
    assert record.clients["dropped"] == [m == 2 for m in range(6)]
    for name, column in whole.clients.items():
        if name != "dropped":
            assert [v for m, v in enumerate(record.clients[name]) if m != 2] == [
                v for m, v in enumerate(column) if m != 2
            ]


@pytest.mark.parametrize("clients", [(0,), (99,), (3, 3)])
def test_a_doubled_or_unknown_result_is_ignored(experiment: Load, clients: tuple[int, ...]) -> None:
    server, blocks = opened(experiment)
    for block in blocks:
        server.take(block)
    again = replace(blocks[0], clients=clients)
    assert not server.take(again)
    state, record = server.close(None)
    once, blocks = opened(experiment)
    for block in blocks:
        once.take(block)
    expected, same = once.close(None)
    assert torch.equal(state.w, expected.w) and record == same


@pytest.mark.parametrize("name", ["fedavg", "scaffold", "feddc"])
def test_a_client_by_itself_equals_the_simulated_one(experiment: Load, name: str) -> None:
    """`train_client` with the client's own data gives the update that the simulator's block has in its row."""
    fed = dragfl.simulate(experiment(algorithm={"name": name})).federation
    with one_thread(), own_generator():
        state, _ = run_round(fed, fed.start())  # so that client states are not zero
        server = ServerRound.open(fed, state)
        (block,) = fed.backend.train(TrainTasks(server), keep=True)
        worker = fed.worker
        for row, m in enumerate(server.cohort):
            data = ClientData(worker.dataset.x, worker.dataset.y, worker.split.samples_of(m))
            client = Client(m, fed.store.read(m), data)
            alone = train_client(worker.local, state.w, server.broadcast, client, server.context)
            torch.testing.assert_close(alone.delta, block.updates.delta[row], rtol=1e-5, atol=1e-7)
            assert alone.steps == block.steps[row] and alone.samples == block.updates.weight[row]
            assert alone.extra.keys() == block.updates.extra.keys()
    assert BUFFERS not in server.broadcast
