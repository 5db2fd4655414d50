"""Drop-in strategies: sampling, numbering of nodes, arguments and errors."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict

from dragfl.errors import PartError, SpecError
from dragfl.flower import AlgorithmStrategy, BRDragStrategy, DragStrategy
from tests.flower.local_grid import FIRST_ID, LocalGrid
from tests.flower.numpy_app import (
    directions,
    make_app,
    make_grid,
    root,
    start,
    vector,
)


def test_sampling_depends_on_the_seed_and_not_on_the_order_of_nodes() -> None:
    def sampled(seed: int, **changes: Any) -> list[tuple[int, int]]:
        grid = make_grid(range(8))
        listed = grid.get_nodes
        if changes.get("reverse"):
            grid.get_nodes = lambda: list(listed())[::-1]  # type: ignore[method-assign]
        start(DragStrategy(fraction_train=0.5, fraction_evaluate=0.5, seed=seed), grid, rounds=3)
        return [(node, round) for node, _, round in grid.sent]

    assert sampled(1) == sampled(1, reverse=True)
    assert sampled(1) != sampled(2)
    counts = Counter(round for _, round in sampled(1))
    assert counts == {1: 8, 2: 8, 3: 8}  # 4 of 8 to train, 4 of 8 to evaluate


def test_a_node_that_joins_later_gets_the_next_number() -> None:
    grid = make_grid(range(4))
    strategy = DragStrategy()
    grid.offline = {1}
    grid.delay = lambda node, round: grid.offline.clear() or 0.0  # type: ignore[func-returns-value]
    start(strategy, grid, rounds=2)
    ids = [str(FIRST_ID + i) for i in range(4)]
    assert strategy.nodes == {0: ids[0], 1: ids[2], 2: ids[3], 3: ids[1]}
    assert [record.metrics["used"] for record in strategy.records] == [3, 4]


def test_named_nodes_are_numbered_and_counted_by_name() -> None:
    configs = [{"partition-id": i} for i in range(3)]
    grid = LocalGrid(make_app(), configs, names=["c", "a", "b"])
    grid.drop = lambda node, round: node == 0
    strategy = DragStrategy(fraction_evaluate=0.0)
    start(strategy, grid, rounds=1)
    assert strategy.nodes == {0: "a", 1: "b", 2: "c"}
    assert strategy.refusals.counts == {"c": {"no reply": 1}}


def test_a_strategy_that_is_started_again_begins_anew() -> None:
    strategy = DragStrategy(c=0.5, alpha=0.5)
    first = start(strategy, make_grid(range(4)), rounds=2)
    grid = make_grid(range(4))
    second = start(strategy, grid, rounds=2)
    assert torch.equal(vector(first.arrays), vector(second.arrays))
    assert len(strategy.records) == 2


def test_arguments_of_fedavg_carry_over() -> None:
    seen: list[int] = []

    def own(contents: list[RecordDict], key: str) -> MetricRecord:
        seen.append(len(contents))
        return MetricRecord({"own": 1.0})

    strategy = DragStrategy(
        fraction_train=0.5,
        min_available_nodes=4,
        weighted_by_key="num-steps",
        arrayrecord_key="arrays",
        train_metrics_aggr_fn=own,
        fraction_evaluate=0.0,
    )
    result = start(strategy, make_grid(range(6)), rounds=2)
    assert seen == [3, 3] and result.train_metrics_clientapp[1]["own"] == 1.0
    assert strategy.weighted_by_key == "num-steps" and not result.evaluate_metrics_clientapp


def test_a_failing_function_for_metrics_does_not_end_the_run(caplog: pytest.LogCaptureFixture) -> None:
    def fails(contents: list[RecordDict], key: str) -> MetricRecord:
        raise KeyError("accuracy")

    result = start(DragStrategy(train_metrics_aggr_fn=fails), make_grid(range(3)), rounds=1)
    assert result.train_metrics_clientapp[1]["loss"] > 0 and "KeyError: 'accuracy'" in caplog.text


def test_fednova_needs_the_number_of_local_steps() -> None:
    app = make_app()

    def without(message: Message, context: Context) -> Message:
        reply = app(message, context)
        if context.node_config["partition-id"] == 0:
            next(iter(reply.content.metric_records.values())).pop("num-steps", None)
        return reply

    strategy = AlgorithmStrategy("fednova")
    grid = LocalGrid(without, [{"partition-id": i} for i in range(3)])
    start(strategy, grid, rounds=1)
    assert strategy.refusals.counts == {str(grid.ids[0]): {"bad metric": 1}}


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: AlgorithmStrategy("scaffold"), r"scaffold changes the local training .*dragfl\.flower\.client_app"),
        (lambda: AlgorithmStrategy("fedprox"), "fedprox changes the local training"),
        (lambda: AlgorithmStrategy("fltrust"), "fltrust needs the server's own data; give root="),
        (
            lambda: AlgorithmStrategy("boba", f=1, root=root),
            "boba needs an update of each class of the server's own data; give directions",
        ),
        (lambda: BRDragStrategy(root=None), "br_drag needs the server's own data; give root="),  # type: ignore[arg-type]
        (
            lambda: AlgorithmStrategy("cone_drag", directions=directions),
            "cone_drag needs the server's own data; give root",
        ),
        (
            lambda: AlgorithmStrategy("cone_drag", root=root),
            r"cone_drag needs an update of each class of the server's own data; give directions=function\(arrays,",
        ),
        (lambda: AlgorithmStrategy("nnm+cone_drag", f=1, root=root), r"nnm\+cone_drag needs an update of each class"),
        (
            lambda: AlgorithmStrategy("br_drag", root=root, directions=directions),
            "br_drag does not use the classes of the server's own data; remove directions",
        ),
        (lambda: AlgorithmStrategy("median", root=root), "median does not use the server's own data"),
        (lambda: AlgorithmStrategy("trimmed_mean"), "trimmed_mean assumes a number of malicious nodes .* give f"),
        (lambda: AlgorithmStrategy("nnm+median"), r"nnm\+median assumes a number of malicious nodes"),
        (lambda: AlgorithmStrategy("trimmed_meen", f=1), "did you mean 'trimmed_mean'"),
        (lambda: DragStrategy(c=1.5), r"c: 1\.5 is outside \[0, 1\]"),
        (lambda: DragStrategy(max_norm=0.0), "max_norm: 0"),
        (lambda: DragStrategy(statistics="bias"), "give a list of name endings"),
        (lambda: AlgorithmStrategy("drag", fraction_tran=0.5), "no setting 'fraction_tran'"),
        (lambda: AlgorithmStrategy("fednova", prox=0.1), "prox needs the learning rate"),
    ],
)
def test_what_cannot_work_is_an_error_at_construction(make: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        ([1.0], "root returned a list"),
        ({"layer.weight": np.zeros((3, 5))}, "root returned no array 'layer.bias'"),
        ({"layer.weight": np.zeros((3, 5)), "layer.bias": np.zeros(4)}, "root: 'layer.bias' has shape"),
        ({"layer.weight": np.full((3, 5), np.nan), "layer.bias": np.zeros(3)}, "root: 'layer.weight' is not finite"),
    ],
)
def test_what_the_root_function_returns_is_checked(returned: Any, message: str) -> None:
    with pytest.raises(PartError, match=message):
        start(BRDragStrategy(root=lambda arrays, t: returned), make_grid(range(3)), rounds=1)


@pytest.mark.parametrize(
    ("returned", "message"),
    [
        (
            {"layer.weight": np.zeros((3, 5))},
            "directions returned a dict; return a list of arrays by name, one for each",
        ),
        ([], "directions returned an empty list"),
        (None, "directions returned a NoneType"),
        ([1.0], r"directions\[0\] returned a float"),
        ([{"layer.weight": np.zeros((3, 5))}], r"directions\[0\] returned no array 'layer.bias'"),
        ([{"layer.weight": np.zeros((3, 4)), "layer.bias": np.zeros(3)}], r"directions\[0\]: 'layer.weight' has shape"),
    ],
)
def test_what_the_directions_function_returns_is_checked(returned: Any, message: str) -> None:
    strategy = AlgorithmStrategy("cone_drag", root=root, directions=lambda arrays, t: returned)
    with pytest.raises(PartError, match=message):
        start(strategy, make_grid(range(3)), rounds=1)


def test_another_number_of_classes_in_a_later_round_is_an_error() -> None:
    strategy = AlgorithmStrategy("cone_drag", root=root, directions=lambda arrays, t: directions(arrays, t)[: 4 - t])
    with pytest.raises(PartError, match="2 directions after 3 in earlier rounds"):
        start(strategy, make_grid(range(3)), rounds=2)


def test_an_error_in_the_root_function_names_its_line() -> None:
    def fails(arrays: ArrayRecord, server_round: int) -> ArrayRecord:
        raise RuntimeError("no data")

    with pytest.raises(PartError, match=r"root raised RuntimeError: no data \(test_strategy.py:\d+\)"):
        start(BRDragStrategy(root=fails), make_grid(range(3)), rounds=1)


@pytest.mark.parametrize("values", [np.zeros(3, complex), np.array(["a"]), np.zeros(2, np.int64), np.full(2, np.nan)])
def test_initial_arrays_that_cannot_be_trained_are_an_error(values: Any) -> None:
    with pytest.raises(SpecError, match="initial arrays"):
        DragStrategy().start(make_grid(range(2)), ArrayRecord({"x": Array(values)}), num_rounds=1)
