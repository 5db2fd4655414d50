"""A Flower client of plain NumPy that knows nothing of dragfl: least squares on its own data; and how to start it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp.strategy import FedAvg, Result
from torch import Tensor

from dragfl.algorithms import PRESETS
from dragfl.types import AssumesAttackers
from tests.flower.local_grid import FIRST_ID, LocalGrid

INPUTS, OUTPUTS, NODES = 5, 3, 5
DROP_IN = [  # without rules that need an update for each class of the server's data
    name
    for name, preset in PRESETS.items()
    if preset.correction == "none" and not hasattr(preset.build().aggregate, "direction_settings")
]
ROOT_NODE = 9  # whose data the server has


def initial_arrays(dtype: Any = np.float32) -> ArrayRecord:
    """A matrix and a vector, some of their values not zero."""
    draws = np.random.default_rng(9)
    weight = draws.normal(size=(OUTPUTS, INPUTS)) * 0.1
    return ArrayRecord({"layer.weight": Array(weight.astype(dtype)), "layer.bias": Array(np.zeros(OUTPUTS, dtype))})


def samples_of(node: int) -> tuple[np.ndarray, np.ndarray]:
    """The data of a node: each node has another number of samples and another linear map."""
    draws = np.random.default_rng(100 + node)
    x = draws.normal(size=(20 + 7 * node, INPUTS))
    y = x @ draws.normal(size=(INPUTS, OUTPUTS)) + 0.1 * node
    return x, y


def train(weight: np.ndarray, bias: np.ndarray, node: int, steps: int = 4, lr: float = 0.05) -> float:
    """Gradient descent in place; the last loss."""
    x, y = samples_of(node)
    for _ in range(steps):
        error = x @ weight.T + bias - y
        weight -= (lr / len(x) * (error.T @ x)).astype(weight.dtype)
        bias -= (lr * error.mean(0)).astype(bias.dtype)
    return float((error**2).mean())


def make_app() -> ClientApp:
    app = ClientApp()

    @app.train()
    def train_handler(message: Message, context: Context) -> Message:
        received = message.content["arrays"]
        assert isinstance(received, ArrayRecord)
        arrays = {name: array.numpy().copy() for name, array in received.items()}
        node = int(context.node_config["partition-id"])
        loss = train(arrays["layer.weight"], arrays["layer.bias"], node)
        metrics = MetricRecord({"num-examples": len(samples_of(node)[0]), "num-steps": 4, "loss": loss})
        record = ArrayRecord({name: Array(value) for name, value in arrays.items()})
        return Message(RecordDict({"arrays": record, "metrics": metrics}), reply_to=message)

    @app.evaluate()
    def evaluate_handler(message: Message, context: Context) -> Message:
        received = message.content["arrays"]
        assert isinstance(received, ArrayRecord)
        node = int(context.node_config["partition-id"])
        x, y = samples_of(node)
        error = x @ received["layer.weight"].numpy().T + received["layer.bias"].numpy() - y
        metrics = MetricRecord({"num-examples": len(x), "loss": float((error**2).mean())})
        return Message(RecordDict({"metrics": metrics}), reply_to=message)

    return app


def make_grid(nodes: Sequence[int] = range(NODES)) -> LocalGrid:
    return LocalGrid(make_app(), [{"partition-id": i} for i in nodes], ids=[FIRST_ID + i for i in nodes])


def start(strategy: FedAvg, grid: LocalGrid, rounds: int = 2) -> Result:
    return strategy.start(grid, initial_arrays(), num_rounds=rounds, timeout=30)


def vector(arrays: ArrayRecord) -> Tensor:
    return torch.cat([torch.from_numpy(array.numpy().reshape(-1)) for array in arrays.values()])


def root(arrays: ArrayRecord, server_round: int) -> dict[str, np.ndarray]:
    """A client's training on the server's own data."""
    values = {name: array.numpy().copy() for name, array in arrays.items()}
    train(values["layer.weight"], values["layer.bias"], ROOT_NODE)
    return values


def step_on_class(weight: np.ndarray, bias: np.ndarray, k: int, lr: float = 0.05) -> None:
    """One step in place on the samples of the server whose largest output is k, divided by all its samples."""
    x, y = samples_of(ROOT_NODE)
    rows = y.argmax(1) == k
    error = x[rows] @ weight.T + bias - y[rows]
    weight -= (lr / len(x) * (error.T @ x[rows])).astype(weight.dtype)
    bias -= (lr / len(x) * error.sum(0)).astype(bias.dtype)


def directions(arrays: ArrayRecord, server_round: int) -> list[dict[str, np.ndarray]]:
    """A step on each class of the server's own data."""
    found = []
    for k in range(OUTPUTS):
        values = {name: array.numpy().copy() for name, array in arrays.items()}
        step_on_class(values["layer.weight"], values["layer.bias"], k)
        found.append(values)
    return found


def class_updates(w: Tensor) -> Tensor:
    """(K, d) the directions from the model w, computed without Flower."""
    rows = []
    for k in range(OUTPUTS):
        weight, bias = w[:15].reshape(3, 5).numpy().copy(), w[15:].numpy().copy()
        step_on_class(weight, bias, k)
        rows.append(torch.from_numpy(np.concatenate([weight.reshape(-1), bias])) - w)
    return torch.stack(rows)


def settings_of(name: str) -> dict[str, Any]:
    rule = PRESETS[name].build().aggregate if name in PRESETS else None
    settings: dict[str, Any] = {"f": 1} if rule is None or isinstance(rule, AssumesAttackers) else {}
    settings |= {"directions": directions} if "cone_drag" in name else {}
    return settings | (
        {"root": root} if name.split("+")[-1] in ("br_drag", "cone_drag", "fltrust", "root_only") else {}
    )


def updates(w: Tensor, nodes: range) -> Tensor:
    """(n, d) updates of the nodes from the model w, computed without Flower."""
    rows = []
    for node in nodes:
        weight, bias = w[:15].reshape(3, 5).numpy().copy(), w[15:].numpy().copy()
        train(weight, bias, node)
        rows.append(torch.from_numpy(np.concatenate([weight.reshape(-1), bias])) - w)
    return torch.stack(rows)
