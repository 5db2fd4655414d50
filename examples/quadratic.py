"""Clients with quadratic objectives, whose common optimum is known: which algorithms converge to it?

    python quadratic.py [ROUNDS]

Client m has F_m(theta) = (theta - b_m)' A_m (theta - b_m) / 2 and takes several exact gradient steps on it each round.
The mean of all F_m has its minimum at (sum A_m)^-1 sum A_m b_m. FedAvg with local steps converges to another point,
which is also known.

The engine minimises a cross-entropy. A module with the log-probabilities (-q, log(1 - e^-q)) has the cross-entropy q on
label 0. With q = 1 + F_m and the row (A_m, b_m) as the only sample of client m, the engine minimises F_m.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import dragfl
from dragfl.data.dataset import from_tensors
from dragfl.data.partitions.split import Split

Array = NDArray[np.float64]
Objective = tuple[Any, Any]  # (A, b): (d, d) and (d,)


class QuadraticModel(nn.Module):
    """A model whose cross-entropy on label 0 is 1 + F(theta) for the row (A, b)."""

    def __init__(self, start: Any) -> None:
        super().__init__()
        self.theta = nn.Parameter(torch.as_tensor(start, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        d = len(self.theta)
        A, off = x[:, : d * d].reshape(-1, d, d), self.theta - x[:, d * d :]
        q = 1.0 + 0.5 * (off.unsqueeze(1) @ A @ off.unsqueeze(2)).flatten()
        return torch.stack([-q, torch.log(-torch.expm1(-q))], 1)


def one_each(labels: NDArray[np.int64], clients: int, draws: np.random.Generator) -> Split:
    """Assign sample m to client m."""
    return Split.from_parts([np.array([m]) for m in range(clients)])


def experiment(
    objectives: Sequence[Objective],
    start: Any,
    algorithm: Mapping[str, Any],
    root: Objective | None = None,
    **tables: Any,
) -> dragfl.Experiment:
    """A federation of quadratics. `root` is the server's objective, for rules that need root data."""
    rows = np.stack([np.concatenate([np.ravel(A), np.ravel(b)]) for A, b in objectives])
    test = np.tile(np.concatenate([np.ravel(part) for part in root]) if root else rows[0], (2, 1))
    dataset = from_tensors(rows, np.zeros(len(rows), int), test, [0, 0], name="quadratics", classes=2)
    base: dict[str, Any] = {
        "data": {"dataset": dataset, "partition": one_each},
        "clients": {"total": len(rows), "batch_size": 1, **tables.pop("clients", {})},
        "model": {"name": QuadraticModel(np.ravel(start))},
        "algorithm": algorithm,
        "evaluation": {"every": 1_000_000},
    }
    if root:
        base["root"] = {"size": 1, "source": "test"}
    return dragfl.load({**base, **tables})


def path(federation: dragfl.Experiment) -> Array:
    """The model before the first round and after each round, (rounds + 1, d)."""
    simulation = dragfl.simulate(federation)
    points = [simulation.state.w.double().numpy()]
    for _ in simulation:
        points.append(simulation.state.w.double().numpy())
    return np.stack(points)


def optimum(objectives: Sequence[Objective]) -> Array:
    """The minimum of the mean of all F_m."""
    point: Array = np.linalg.solve(
        sum(np.asarray(A) for A, _ in objectives), sum(np.asarray(A) @ b for A, b in objectives)
    )
    return point


def fedavg_point(objectives: Sequence[Objective], lr: float, steps: int) -> Array:
    """The fixed point of FedAvg: (sum K_m)^-1 sum K_m b_m with K_m = I - (I - lr A_m)^steps."""
    eye = np.eye(len(objectives[0][1]))
    K = [eye - np.linalg.matrix_power(eye - lr * np.asarray(A), steps) for A, _ in objectives]
    point: Array = np.linalg.solve(sum(K), sum(k @ b for k, (_, b) in zip(K, objectives, strict=True)))
    return point


# Three clients with different curvature, each with its own direction of largest curvature.
THREE: list[Objective] = [
    ([[2.0, 0.0], [0.0, 0.3]], [-1.0, 0.5]),
    ([[0.2, 0.0], [0.0, 1.5]], [2.0, -1.5]),
    ([[0.7, 0.5], [0.5, 0.7]], [1.0, 2.0]),
]
START = (-2.5, -2.0)
LOCAL: dict[str, Any] = {"local_steps": 10, "lr": 0.1}
ALGORITHMS: dict[str, dict[str, Any]] = {
    "FedAvg": {"name": "fedavg"},
    "SCAFFOLD": {"name": "scaffold"},
    "FedDyn": {"name": "feddyn", "strength": 0.5},
    "Mime": {"name": "mime", "momentum": 0.0},
    "DRAG, c = 0.1": {"name": "drag", "c": 0.1, "alpha": 0.5},
}


if __name__ == "__main__":
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    best, fixed_point = optimum(THREE), fedavg_point(THREE, LOCAL["lr"], LOCAL["local_steps"])
    distance = np.linalg.norm(fixed_point - best)
    print(f"optimum {best.round(4)}; fixed point of FedAvg {fixed_point.round(4)}, distance {distance:.4f}")
    for name, algorithm in ALGORITHMS.items():
        last = path(experiment(THREE, START, algorithm, clients=LOCAL, rounds=rounds))[-1]
        print(f"{name:14} {last.round(4)}, {np.linalg.norm(last - best):.1e} from the optimum after {rounds} rounds")
