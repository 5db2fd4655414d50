"""Bad replies: the run completes, the model is that of the run without the node, and the reason is counted."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MessageType, MetricRecord

from dragfl.flower import AlgorithmStrategy, DragStrategy
from tests.flower.bad_replies import BAD_REPLIES, BY_GRID, REASONS, only, reordered_keys
from tests.flower.local_grid import FIRST_ID, LocalGrid
from tests.flower.numpy_app import NODES, initial_arrays, make_grid, start, updates, vector

BAD = 2  # of the nodes 0..4 this one misbehaves
BAD_NAME = str(FIRST_ID + BAD)


def misbehave(grid: LocalGrid, kind: str) -> None:
    """Let node 2 send replies of this kind in every round."""
    if kind in BAD_REPLIES:
        grid.tamper = only(grid.ids[BAD], training_only(BAD_REPLIES[kind]))
    elif kind == "doubled":
        grid.doubled = lambda node, round: node == BAD
    elif kind == "gone":
        push = grid.push_messages

        def leave(messages: Any) -> Any:  # it is there when nodes are sampled, and gone when replies are pulled
            grid.offline = {BAD}
            return push(messages)

        nodes = grid.get_nodes

        def listed() -> Any:
            grid.offline = set()
            return nodes()

        grid.push_messages, grid.get_nodes = leave, listed  # type: ignore[method-assign]
    else:
        assert kind == "raised"

        def raises(message: Message, context: Context) -> Message:
            raise RuntimeError("no data\nhere")

        grid.apps[BAD] = raises


def training_only(change: Callable[[Message], Message]) -> Callable[[Message], Message]:
    return lambda reply: change(reply) if reply.metadata.message_type == MessageType.TRAIN else reply


WITHOUT = [node for node in range(NODES) if node != BAD]


@pytest.fixture(scope="module")
def good() -> dict[str, torch.Tensor]:
    """The models of the run with all nodes and of the run without the bad one."""
    runs = {"all": make_grid(), "without": make_grid(WITHOUT)}
    return {name: vector(start(DragStrategy(c=0.5), grid).arrays) for name, grid in runs.items()}


def test_there_are_22_kinds() -> None:
    assert len(BAD_REPLIES) + len(BY_GRID) == len(REASONS) == 22


@pytest.mark.parametrize("kind", REASONS)
def test_a_bad_reply_is_left_out(kind: str, good: dict[str, torch.Tensor]) -> None:
    grid, strategy = make_grid(), DragStrategy(c=0.5)
    misbehave(grid, kind)
    result = start(strategy, grid)
    used = REASONS[kind] in (None, "doubled")
    assert torch.equal(vector(result.arrays), good["all" if used else "without"])
    train = {node: dict(reasons) for node, reasons in strategy.refusals.counts.items()}
    assert train.keys() == ({BAD_NAME} if REASONS[kind] else set())
    if reason := REASONS[kind]:
        assert train[BAD_NAME][reason] >= 2 and set(train[BAD_NAME]) == {reason}
        assert result.train_metrics_clientapp[1]["refused"] == 1
    assert result.train_metrics_clientapp[2]["used"] == (NODES if used else NODES - 1)
    assert np.isfinite(result.train_metrics_clientapp[2]["loss"])


def test_reordered_keys_are_accepted(good: dict[str, torch.Tensor]) -> None:
    grid, strategy = make_grid(), DragStrategy(c=0.5)
    grid.tamper = only(grid.ids[BAD], training_only(reordered_keys))
    assert torch.equal(vector(start(strategy, grid).arrays), good["all"])
    assert not strategy.refusals.counts


def test_stale_replies_and_replies_of_other_nodes_are_left_out(good: dict[str, torch.Tensor]) -> None:
    """Node 2's reply names no message of this round; node 3's reply claims to come from node 4."""
    grid, strategy = make_grid(), AlgorithmStrategy("fedavg")
    receive = grid.send_and_receive

    def changed(messages: Any, *, timeout: float | None = None) -> list[Message]:
        replies = list(receive(messages, timeout=timeout))
        for reply in replies:
            if reply.metadata.src_node_id == grid.ids[2]:
                reply.metadata.__dict__["_reply_to_message_id"] = "0" * 64
            elif reply.metadata.src_node_id == grid.ids[3]:
                reply.metadata.__dict__["_src_node_id"] = grid.ids[4]
            elif reply.metadata.src_node_id == grid.ids[1]:
                reply.metadata.__dict__.update(_src_node_id=77, _reply_to_message_id="1" * 64)
        return replies

    grid.send_and_receive = changed  # type: ignore[method-assign]
    result = start(strategy, grid, rounds=1)
    expected = start(AlgorithmStrategy("fedavg"), make_grid([0, 4]), rounds=1)
    assert torch.equal(vector(result.arrays), vector(expected.arrays))
    counts = strategy.refusals.counts
    assert counts[str(grid.ids[2])]["stale"] and counts[str(grid.ids[4])]["unknown node"]
    assert counts["77"]["unknown node"] and counts[str(grid.ids[3])]["no reply"]


def test_the_order_of_arrival_changes_nothing(good: dict[str, torch.Tensor]) -> None:
    grid = make_grid()
    receive = grid.send_and_receive
    grid.send_and_receive = lambda *a, **k: list(receive(*a, **k))[::-1]  # type: ignore[method-assign]
    assert torch.equal(vector(start(DragStrategy(c=0.5), grid).arrays), good["all"])


def test_an_update_above_max_norm_is_refused() -> None:
    grid, strategy = make_grid(), DragStrategy(c=0.5, max_norm=50.0)

    def far(reply: Message) -> Message:
        record = next(iter(reply.content.array_records.values()))
        record["layer.bias"] = type(record["layer.bias"])(record["layer.bias"].numpy() + 1e3)
        return reply

    grid.tamper = only(grid.ids[BAD], training_only(far))
    result = start(strategy, grid)
    assert strategy.refusals.counts == {BAD_NAME: {"norm above max_norm": 2}}
    assert float(vector(result.arrays).norm()) < 50


def test_a_round_without_a_usable_reply_leaves_the_model_as_it_is(caplog: pytest.LogCaptureFixture) -> None:
    grid, strategy = make_grid(), DragStrategy()
    grid.drop = lambda node, round: round == 1
    with caplog.at_level(logging.WARNING, "dragfl"):
        result = start(strategy, grid, rounds=1)
    assert torch.equal(vector(result.arrays), vector(initial_arrays()))
    assert result.train_metrics_clientapp[1] == MetricRecord({"used": 0, "refused": NODES, "skipped": 1})
    assert "round 1: the model stays as it is: no usable reply" in caplog.text
    assert 1 not in result.evaluate_metrics_clientapp  # no evaluation either: all replies of round 1 are lost


@pytest.mark.parametrize(
    ("strategy", "reason"),
    [
        (AlgorithmStrategy("krum", f=1), "krum: f=1 needs at least 5 updates, got 2; "),
        (DragStrategy(min_replies=3), "2 usable replies, 3 required"),
    ],
)
def test_too_few_replies_leave_the_model_as_it_is_and_the_run_goes_on(
    strategy: AlgorithmStrategy, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """In round 2 of 3 only two nodes reply; DRAG's reference survives that round too."""
    grid, models = make_grid(), {}
    grid.drop = lambda node, round: round == 2 and node > 1

    def keep(round: int, arrays: ArrayRecord) -> None:
        models[round] = vector(arrays)

    with caplog.at_level(logging.WARNING, "dragfl"):
        result = strategy.start(grid, initial_arrays(), num_rounds=3, timeout=30, evaluate_fn=keep)  # type: ignore[arg-type]
    assert torch.equal(models[1], models[2]) and not torch.equal(models[2], models[3])
    assert reason in caplog.text
    assert "skipped" in result.train_metrics_clientapp[2] and "skipped" not in result.train_metrics_clientapp[3]


def test_an_exploding_model_is_not_kept() -> None:
    """A finite reply of 1e30 under the mean: the model would be lost, so it stays as it is."""
    grid, strategy = make_grid(), AlgorithmStrategy("fedavg")

    def huge(reply: Message) -> Message:
        record = next(iter(reply.content.array_records.values()))
        record["layer.bias"] = type(record["layer.bias"])(record["layer.bias"].numpy() + np.float32(1e30))
        return reply

    grid.tamper = only(grid.ids[BAD], training_only(huge))
    result = start(strategy, grid)
    assert torch.equal(vector(result.arrays), vector(initial_arrays()))
    assert "diverged in round 1" in str(strategy.records[0].metrics["skipped"])


EVALUATION = {  # change -> the reason it is counted as; None: the reply is used
    "nan weight": "bad weight",
    "weight -5": "bad weight",
    "weight 1e18": "bad weight",
    "no metrics": None,
    "extra metric": None,
}


@pytest.mark.parametrize("kind", EVALUATION)
def test_bad_evaluations_are_left_out(kind: str) -> None:
    grid, strategy = make_grid(), DragStrategy()
    grid.tamper = only(
        grid.ids[BAD], lambda r: BAD_REPLIES[kind](r) if r.metadata.message_type == MessageType.EVALUATE else r
    )
    result = start(strategy, grid, rounds=1)
    expected = start(DragStrategy(), make_grid(), rounds=1).evaluate_metrics_clientapp[1]["loss"]
    assert strategy.refusals.counts == ({BAD_NAME: {EVALUATION[kind]: 1}} if EVALUATION[kind] else {})
    same = result.evaluate_metrics_clientapp[1]["loss"] == expected
    assert same == (kind == "extra metric")


def test_a_metric_that_is_not_finite_is_left_out_of_the_average_alone() -> None:
    grid, strategy = make_grid(), DragStrategy()

    def nan_loss(reply: Message) -> Message:
        next(iter(reply.content.metric_records.values()))["loss"] = float("nan")
        return reply

    grid.tamper = only(grid.ids[BAD], nan_loss)
    result = start(strategy, grid, rounds=1)
    assert np.isfinite(result.train_metrics_clientapp[1]["loss"])
    assert np.isfinite(result.evaluate_metrics_clientapp[1]["loss"])
    assert result.train_metrics_clientapp[1]["used"] == NODES
    assert strategy.refusals.counts == {BAD_NAME: {"bad metric": 2}}


def test_an_honest_node_that_is_away_does_not_let_a_malicious_one_in() -> None:
    """Trimmed mean, f = 1, of five nodes: node 0 is lost and node 4 sends 100 everywhere. f is not lowered."""
    grid = make_grid()
    grid.drop = lambda node, round: node == 0
    hundred = {name: Array(np.full(array.shape, 100, np.float32)) for name, array in initial_arrays().items()}

    def tamper(reply: Message) -> Message:
        reply.content["arrays"] = ArrayRecord(hundred)
        return reply

    grid.tamper = only(grid.ids[4], training_only(tamper))
    result = start(AlgorithmStrategy("trimmed_mean", f=1), grid, rounds=1)
    w = vector(initial_arrays())
    rows = torch.cat([updates(w, range(1, 4)), (100 - w)[None]]).sort(0).values[1:-1]
    torch.testing.assert_close(vector(result.arrays), w + rows.mean(0))


def test_the_average_of_large_metrics_is_finite_and_no_client_says_that_a_round_was_skipped() -> None:
    grid = make_grid()

    def tamper(reply: Message) -> Message:
        metrics = next(iter(reply.content.metric_records.values()))
        metrics["loss"], metrics["skipped"] = 1e308, 1.0
        return reply

    grid.tamper = tamper
    metrics = start(AlgorithmStrategy("median"), grid, rounds=1).train_metrics_clientapp[1]
    assert metrics["loss"] == pytest.approx(1e308) and "skipped" not in metrics
