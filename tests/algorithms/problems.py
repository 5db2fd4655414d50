"""Problems that the engine solves and a few lines of NumPy solve too: exact quadratics, and soft-max regression.

A test spells its algorithm out with `update`, the local steps of one client with a direction of the paper's own, and
compares with what `run` has seen of the real engine, round after round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol
from unittest import mock

import numpy as np
from examples.quadratic import Objective, experiment, optimum
from numpy.typing import NDArray

import dragfl
from dragfl.rng import rng
from dragfl.runs.simulation import Simulation
from dragfl.training.batches import draw

Array = NDArray[np.float64]
Gradient = Callable[[Array], Array]
Direction = Callable[[Gradient, Array], Array]
History = Sequence[tuple[int, ...]]


def plain(grad: Gradient, w: Array) -> Array:
    """Local SGD."""
    return grad(w)


def walk(w: Array, gradients: Sequence[Gradient], lr: float, direction: Direction = plain) -> Array:
    """w after the steps, minus w."""
    x = w.copy()
    for grad in gradients:
        x = x - lr * direction(grad, x)
    return x - w


@dataclass(frozen=True)
class Run:
    """What the engine did: who took part, and the model before the first round and after each."""

    simulation: Simulation
    records: list[dragfl.RoundRecord]
    models: list[Array]
    own: list[Array]  # the models that the algorithm's paper evaluates

    @property
    def cohorts(self) -> list[list[int]]:
        return [record.clients["client"] for record in self.records]

    def steps(self, t: int) -> dict[int, int]:
        """Client -> local steps of round t."""
        clients = self.records[t].clients
        return dict(zip(clients["client"], clients["steps"], strict=True))

    def kept(self, client: int, name: str) -> Array:
        """What a client keeps between rounds."""
        value: Array = self.simulation.federation.store.read(client)[name].double().numpy()
        return value

    def server(self, part: str, name: str) -> Array:
        """A vector of the server's state."""
        value: Array = getattr(getattr(self.simulation.state, part), name).double().numpy()
        return value


class Problem(Protocol):
    clients: int
    start: Array

    def run(self, algorithm: Mapping[str, Any], **tables: Any) -> Run: ...

    def lr(self, t: int) -> float: ...

    def size(self, client: int) -> int: ...

    def batches(self, t: int, client: int, steps: int) -> list[Gradient]:
        """The minibatch gradients of a client's local steps."""
        ...

    def gradient(self, client: int) -> Gradient:
        """Over all of a client's data."""
        ...

    def update(
        self, t: int, client: int, w: Array, direction: Direction = plain, steps: int | None = None
    ) -> Array: ...

    def root_update(self, t: int, w: Array) -> Array: ...


@contextmanager
def attendance(history: History) -> Iterator[None]:
    """Round t is attended by history[t] instead of a drawn cohort."""
    with mock.patch("dragfl.engine.server_round.sample_clients", lambda fed, context: tuple(history[context.t])):
        yield


def watch(spec: dragfl.Experiment, history: History | None = None) -> Run:
    """Run an experiment to its end and keep every model."""
    simulation = dragfl.simulate(spec)
    records, models, own = [], [vector(simulation.state.w)], [vector(simulation.state.w)]
    with attendance(history) if history else nullcontext():
        for record in simulation:
            records.append(record)
            models.append(vector(simulation.state.w))
            own.append(vector(simulation.state.w if simulation.state.own is None else simulation.state.own))
    return Run(simulation, records, models, own)


def vector(w: Any) -> Array:
    out: Array = w.double().numpy().copy()
    return out


def close(seen: Any, expected: Any, atol: float = 1e-5) -> None:
    np.testing.assert_allclose(seen, expected, atol=atol, rtol=0)


STEPS = 3


@dataclass(frozen=True)
class Quadratic:
    """Four clients in the plane; one or two stay away in every round but the first; the local rate falls."""

    objectives: tuple[Objective, ...] = (
        ([[1.0, 0.0], [0.0, 2.0]], [4.0, 0.0]),
        ([[2.0, 1.0], [1.0, 1.0]], [0.0, 2.0]),
        ([[1.0, 0.0], [0.0, 0.5]], [-2.0, 1.0]),
        ([[0.5, 0.0], [0.0, 1.0]], [1.0, -3.0]),
    )
    root: Objective = ([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0])
    history: History = ((0, 1, 2, 3), (0, 2), (1, 2, 3), (0, 1))
    rates: tuple[float, ...] = (0.25, 0.1875, 0.125, 0.125)

    @property
    def clients(self) -> int:
        return len(self.objectives)

    @property
    def start(self) -> Array:
        return np.array([-1.0, 0.5])

    @property
    def best(self) -> Array:
        return optimum(self.objectives)

    def run(self, algorithm: Mapping[str, Any], **tables: Any) -> Run:
        lr = {"kind": "linear", "start": 0.25, "end": 0.125, "rounds": 2}
        clients = {"local_steps": STEPS, "lr": lr, **tables.pop("clients", {})}
        spec = experiment(self.objectives, self.start, algorithm, self.root, clients=clients, rounds=4, **tables)
        return watch(spec, self.history)

    def lr(self, t: int) -> float:
        return self.rates[t]

    def size(self, client: int) -> int:
        return 1

    def batches(self, t: int, client: int, steps: int) -> list[Gradient]:
        return [self.gradient(client)] * steps

    def gradient(self, client: int) -> Gradient:
        A, b = map(np.asarray, self.objectives[client])
        return lambda w: A @ (w - b)

    def update(self, t: int, client: int, w: Array, direction: Direction = plain, steps: int | None = None) -> Array:
        return walk(w, self.batches(t, client, steps or STEPS), self.lr(t), direction)

    def root_update(self, t: int, w: Array) -> Array:
        A, b = map(np.asarray, self.root)
        return walk(w, [lambda w: A @ (w - b)] * STEPS, self.lr(t))


class Digits:
    """Soft-max regression on the embedded digits: six clients of unequal size, three drawn each round, minibatches."""

    SEED, BATCH, CLASSES = 11, 16, 10
    clients = 6
    tables: Mapping[str, Any] = {
        "seed": SEED,
        "rounds": 3,
        "data": {"dataset": "digits", "partition": {"kind": "dirichlet_class", "a": 0.5}},
        "root": {"size": 60},
        "model": {"name": "logistic"},
        "evaluation": {"every": 3},
    }

    def __init__(self) -> None:
        federation = dragfl.simulate(dragfl.load({**self.tables, "clients": self.table()})).federation
        dataset = federation.worker.dataset
        self.x = dataset.inputs(dataset.x).flatten(1).double().numpy()
        self.y = dataset.y.numpy()
        self.mine = [federation.worker.split.samples_of(m) for m in range(self.clients)]
        root_x, root_y = federation.worker.root.x, federation.worker.root.y
        self.root = dataset.inputs(root_x).flatten(1).double().numpy(), root_y.numpy()
        self.start = vector(federation.initial)

    def table(self, **changes: Any) -> dict[str, Any]:
        lr = {"kind": "linear", "start": 0.5, "end": 0.25, "rounds": 2}
        base = {"total": self.clients, "per_round": 3, "local_steps": STEPS, "batch_size": self.BATCH, "lr": lr}
        return {**base, **changes}

    def run(self, algorithm: Mapping[str, Any], **tables: Any) -> Run:
        clients = self.table(**tables.pop("clients", {}))
        return watch(dragfl.load({**self.tables, **tables, "clients": clients, "algorithm": algorithm}))

    def lr(self, t: int) -> float:
        return (0.5, 0.375, 0.25)[t]

    def size(self, client: int) -> int:
        return len(self.mine[client])

    def batches(self, t: int, client: int, steps: int) -> list[Gradient]:
        mine = self.mine[client]
        drawn = draw(rng(self.SEED, "batch", t, client), len(mine), steps, self.BATCH, "replacement")
        return [softmax_gradient(self.x[mine[rows]], self.y[mine[rows]]) for rows in drawn]

    def gradient(self, client: int) -> Gradient:
        return softmax_gradient(self.x[self.mine[client]], self.y[self.mine[client]])

    def update(self, t: int, client: int, w: Array, direction: Direction = plain, steps: int | None = None) -> Array:
        return walk(w, self.batches(t, client, steps or STEPS), self.lr(t), direction)

    def root_update(self, t: int, w: Array) -> Array:
        x, y = self.root
        drawn = draw(rng(self.SEED, "root", t), len(y), STEPS, self.BATCH, "replacement")
        return walk(w, [softmax_gradient(x[rows], y[rows]) for rows in drawn], self.lr(t))


def softmax_gradient(x: Array, y: NDArray[np.int64], classes: int = 10) -> Gradient:
    """Of the mean cross-entropy of logits x W' + v, for the flat vector (W, v)."""

    def gradient(w: Array) -> Array:
        W, v = w[:-classes].reshape(classes, -1), w[-classes:]
        logits = x @ W.T + v
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        p[np.arange(len(y)), y] -= 1.0
        return np.concatenate([(p.T @ x).ravel(), p.sum(0)]) / len(y)

    return gradient


LINE: tuple[Objective, ...] = (([[1.0]], [4.0]), ([[2.0]], [-4.0]))


def line(algorithm: Mapping[str, Any], **tables: Any) -> Run:
    """Two rounds by hand: F_1 = (theta - 4)^2 / 2 and F_2 = (theta + 4)^2 from theta = 0, two local steps of 1/2.

    A plain step takes client 1 half of its way to 4 and client 2 all of its way to -4, so that from theta
    g_1 = 3/4 (4 - theta) and g_2 = -4 - theta. The root objective is (theta - 2)^2 / 2. The optimum is -4/3.
    """
    clients = {"local_steps": 2, "lr": 0.5, **tables.pop("clients", {})}
    tables = {"rounds": 2, "clients": clients, **tables}
    return watch(experiment(LINE, [0.0], algorithm, ([[1.0]], [2.0]), **tables))


def thetas(run: Run) -> list[float]:
    """The model after each round, on the line."""
    return [float(w[0]) for w in run.models[1:]]
