"""Clients of any framework: dtypes on the wire, BatchNorm, PyTorch, scikit-learn, JAX."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import (
    FedAvg,
)
from torch import nn

from dragfl.flower import AlgorithmStrategy, DragStrategy
from dragfl.functional import drag
from tests.flower.local_grid import LocalGrid
from tests.flower.numpy_app import (
    DROP_IN,
    initial_arrays,
    make_app,
    make_grid,
    samples_of,
    settings_of,
    start,
    updates,
    vector,
)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_names_order_and_dtypes_are_kept_on_the_wire(dtype: str) -> None:
    seen: list[tuple[str, str]] = []
    app = make_app()

    def spy(message: Message, context: Context) -> Message:
        seen.extend((name, array.dtype) for name, array in message.content["arrays"].items())  # type: ignore[union-attr]
        return app(message, context)

    grid = LocalGrid(spy, [{"partition-id": i} for i in range(4)])
    result = DragStrategy().start(grid, initial_arrays(dtype), num_rounds=2, timeout=30)
    assert set(seen) == {("layer.weight", dtype), ("layer.bias", dtype)}
    assert [(name, array.dtype, array.shape) for name, array in result.arrays.items()] == [
        ("layer.weight", dtype, (3, 5)),
        ("layer.bias", dtype, (3,)),
    ]
    exact = start(DragStrategy(), LocalGrid(app, [{"partition-id": i} for i in range(4)]), rounds=2)
    assert torch.allclose(
        vector(result.arrays).float(), vector(exact.arrays), atol=2e-3 if dtype == "float16" else 1e-6
    )


def test_a_client_may_return_another_floating_point_type() -> None:
    """As NumPy code does that computes in float64 after it received float32."""
    app = make_app()

    def wide(message: Message, context: Context) -> Message:
        reply = app(message, context)
        for record in reply.content.array_records.values():
            for name, array in record.items():
                record[name] = Array(array.numpy().astype(np.float64))
        return reply

    result = start(DragStrategy(), LocalGrid(wide, [{"partition-id": i} for i in range(4)]))
    assert {array.dtype for array in result.arrays.values()} == {"float32"}
    assert torch.equal(vector(result.arrays), vector(start(DragStrategy(), make_grid(range(4))).arrays))


def bn_arrays() -> ArrayRecord:
    """The state_dict of nn.Sequential(Linear(2, 3), BatchNorm1d(3)), with its names, order and dtypes."""
    floats = {"0.weight": (3, 2), "0.bias": (3,), "1.weight": (3,), "1.bias": (3,), "1.running_mean": (3,)}
    arrays = {name: Array(np.zeros(shape, np.float32)) for name, shape in floats.items()}
    return ArrayRecord(
        {**arrays, "1.running_var": Array(np.ones(3, np.float32)), "1.num_batches_tracked": Array(np.array(2**33))}
    )


def bn_app() -> ClientApp:
    """Node i makes 2 + i steps: parameters move by 0.1 (i + 1), its statistics are i and 1 + i."""
    app = ClientApp()

    @app.train()
    def train_handler(message: Message, context: Context) -> Message:
        node = int(context.node_config["partition-id"])
        arrays = {name: array.numpy().copy() for name, array in message.content["arrays"].items()}  # type: ignore[union-attr]
        for name, value in arrays.items():
            noise = np.random.default_rng([node, len(name)]).normal(size=value.shape)
            if name.endswith("running_mean"):
                value[...] = node
            elif name.endswith("running_var"):
                value[...] = 1 + node
            elif name.endswith("num_batches_tracked"):
                value += 2 + node
            else:
                value += (0.1 * (node + 1) + 0.01 * noise).astype(value.dtype)
        metrics = MetricRecord({"num-examples": 10 + node, "num-steps": 2 + node})
        record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    return app


def start_bn(strategy: FedAvg, rounds: int = 1, nodes: int = 7, forged: bool = False) -> ArrayRecord:
    grid = LocalGrid(bn_app(), [{"partition-id": i} for i in range(nodes)])

    def forge(reply: Message) -> Message:
        if reply.metadata.src_node_id == grid.ids[0]:
            record = next(iter(reply.content.array_records.values()))
            record["1.running_var"] = Array(np.full(3, 1e6, np.float32))
            record["1.num_batches_tracked"] = Array(np.array(2**40))
        return reply

    grid.tamper = forge if forged else grid.tamper
    return strategy.start(grid, bn_arrays(), num_rounds=rounds, timeout=30).arrays


def bn_settings(name: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"fraction_evaluate": 0.0, **settings_of(name)}
    if "root" in settings:
        settings["root"] = lambda arrays, t: {k: v + 0.01 for k, v in arrays.to_torch_state_dict().items()}
    if "directions" in settings:
        settings["directions"] = lambda arrays, t: [
            {k: v + 0.01 * (k.endswith("weight") or j) for k, v in arrays.to_torch_state_dict().items()}
            for j in range(2)
        ]
    return settings


def test_batch_norm_statistics_are_averaged_apart_and_counters_stay_integers() -> None:
    """Nodes 0, ..., 6: the mean of i is 3, of 1 + i 4, and of 2 + i steps 5, also for a large counter."""
    arrays = start_bn(AlgorithmStrategy("fedavg", fraction_evaluate=0.0))
    assert [(name, array.dtype, array.shape) for name, array in arrays.items()] == [
        (name, array.dtype, array.shape) for name, array in bn_arrays().items()
    ]
    assert np.array_equal(arrays["1.running_mean"].numpy(), [3.0] * 3)
    assert np.array_equal(arrays["1.running_var"].numpy(), [4.0] * 3)
    assert int(arrays["1.num_batches_tracked"].numpy()) == 2**33 + 5


def test_statistics_are_not_part_of_the_update() -> None:
    """The norm of an update does not see a forged running variance."""
    honest, forged = DragStrategy(fraction_evaluate=0.0), DragStrategy(fraction_evaluate=0.0)
    start_bn(honest)
    start_bn(forged, forged=True)
    assert honest.records[0].clients["norm"] == forged.records[0].clients["norm"]


@pytest.mark.parametrize("name", ["median", "trimmed_mean", "multi_krum", "nnm+median", "br_drag", "fools_gold"])
def test_robust_rules_aggregate_statistics_robustly(name: str) -> None:
    arrays = start_bn(AlgorithmStrategy(name, **bn_settings(name)), forged=True)
    assert arrays["1.running_var"].numpy().min() >= 1 and arrays["1.running_var"].numpy().max() <= 7
    assert 2 <= int(arrays["1.num_batches_tracked"].numpy()) - 2**33 <= 8


@pytest.mark.parametrize("name", DROP_IN)
def test_every_algorithm_runs_with_batch_norm(name: str) -> None:
    strategy = AlgorithmStrategy(name, **bn_settings(name))
    arrays = start_bn(strategy, rounds=2)
    assert "skipped" not in strategy.records[-1].metrics and not strategy.refusals.counts
    assert all(np.isfinite(array.numpy()).all() for array in arrays.values())
    assert (arrays["1.running_var"].numpy() >= 1).all()


def test_a_pytorch_client_runs_as_it_is() -> None:
    """Flower's usual one: load_state_dict, train, state_dict; a network with BatchNorm."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))
    app = ClientApp()

    @app.train()
    def train_handler(message: Message, context: Context) -> Message:
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())  # type: ignore[union-attr]
        x, y = (torch.from_numpy(v).float() for v in samples_of(int(context.node_config["partition-id"])))
        optimiser = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(2):
            optimiser.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimiser.step()
        metrics = MetricRecord({"num-examples": len(x)})
        return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)

    initial = ArrayRecord(model.state_dict())
    strategy = DragStrategy(fraction_evaluate=0.0)
    grid = LocalGrid(app, [{"partition-id": i} for i in range(3)])
    arrays = strategy.start(grid, initial, num_rounds=2, timeout=30).arrays
    assert not strategy.refusals.counts and int(arrays["1.num_batches_tracked"].numpy()) == 4
    model.load_state_dict(arrays.to_torch_state_dict())


def test_named_statistics_are_averaged_apart() -> None:
    """With `statistics` the bias is averaged like a running mean: DRAG does not modify it."""
    w0 = vector(initial_arrays())
    strategy = DragStrategy(c=0.5, statistics=["bias"])
    result = start(strategy, make_grid(range(4)), rounds=1)
    X = updates(w0, range(4))
    assert torch.allclose(vector(result.arrays)[15:], (w0 + X).mean(0)[15:], atol=1e-6)
    assert torch.allclose(vector(result.arrays)[:15], (w0[:15] + drag(X[:, :15], X[:, :15].mean(0), 0.5)), atol=1e-6)


def test_scikit_learn_clients_run() -> None:
    """Logistic regression in float64 on the digits, three classes a node; arrays may be in Fortran's order."""
    sklearn = pytest.importorskip("sklearn", reason="sklearn is not installed: pip install 'dragfl[robust]'")
    assert sklearn
    from sklearn.datasets import load_digits
    from sklearn.linear_model import SGDClassifier

    x, y = load_digits(return_X_y=True)
    x = x / 16.0
    app = ClientApp()

    @app.train()
    def train_handler(message: Message, context: Context) -> Message:
        coef, intercept = message.content["arrays"].to_numpy_ndarrays()  # type: ignore[union-attr]
        node = int(context.node_config["partition-id"])
        rows = np.isin(y, [node, node + 3, node + 6, 9])
        model = SGDClassifier("log_loss", random_state=0, learning_rate="constant", eta0=0.05)
        model.partial_fit(x[rows][:1], y[rows][:1], classes=np.arange(10))
        model.coef_, model.intercept_ = np.ascontiguousarray(coef), intercept.copy()
        model.partial_fit(x[rows], y[rows])
        record = ArrayRecord([np.asfortranarray(model.coef_), model.intercept_])
        metrics = MetricRecord({"num-examples": int(rows.sum())})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    grid = LocalGrid(app, [{"partition-id": i} for i in range(3)])
    initial = ArrayRecord([np.zeros((10, 64)), np.zeros(10)])
    strategy = DragStrategy(c=0.1, fraction_evaluate=0.0)
    coef, intercept = strategy.start(grid, initial, num_rounds=6, timeout=30).arrays.to_numpy_ndarrays()
    assert coef.dtype == np.float64 and not strategy.refusals.counts
    assert ((x @ coef.T + intercept).argmax(1) == y).mean() > 0.8


@pytest.mark.skipif(importlib.util.find_spec("jax") is None, reason="jax is not installed: pip install jax")
def test_jax_clients_run() -> None:
    import jax.numpy as jnp

    app = ClientApp()

    @app.train()
    def train_handler(message: Message, context: Context) -> Message:
        arrays = {name: jnp.asarray(array.numpy()) + 0.1 for name, array in message.content["arrays"].items()}  # type: ignore[union-attr]
        record = ArrayRecord({name: Array(np.asarray(value)) for name, value in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": MetricRecord({"num-examples": 1})}), reply_to=message)

    grid = LocalGrid(app, [{"partition-id": i} for i in range(3)])
    result = DragStrategy(fraction_evaluate=0.0).start(grid, initial_arrays(), num_rounds=1, timeout=30)
    assert torch.allclose(vector(result.arrays), vector(initial_arrays()) + 0.1, atol=1e-6)
