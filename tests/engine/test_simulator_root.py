"""Root training: data disjoint from the clients by default, the steps of a client, and options of the authors' code."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import dragfl
from dragfl.errors import DataError
from dragfl.rng import rng
from dragfl.types import RoundContext
from tests.conftest import Load
from tests.engine.plain_sgd import sgd

CONTEXT = RoundContext(t=2, lr=0.2, seed=3)


def rooted(experiment: Load, **root: Any) -> dragfl.runs.simulation.Simulation:
    return dragfl.simulate(experiment(algorithm={"name": "br_drag"}, root={"size": 30, **root}))


def client_samples(simulation: Any) -> np.ndarray:
    return np.concatenate([simulation.federation.worker.split.samples_of(m) for m in range(6)])


def rows_of(simulation: Any, x: torch.Tensor) -> list[int]:
    """Where each row of the root data is in x."""
    root_x = simulation.federation.worker.root.x
    return [int((x == row).all(1).nonzero().item()) for row in root_x]


def test_root_and_client_data_are_disjoint_by_default(experiment: Load, toy: dragfl.Dataset) -> None:
    simulation = rooted(experiment)
    chosen = rows_of(simulation, toy.x)
    assert len(set(chosen)) == 30
    assert not set(chosen) & set(client_samples(simulation).tolist())
    assert sorted([*chosen, *client_samples(simulation)]) == list(range(144)), "no sample is left out"
    assert torch.equal(simulation.federation.worker.root.y, toy.y[chosen])


def test_disjoint_false_keeps_all_samples_with_the_clients(experiment: Load, toy: dragfl.Dataset) -> None:
    simulation = rooted(experiment, disjoint=False)
    assert sorted(client_samples(simulation)) == list(range(144))
    assert rows_of(simulation, toy.x) == rows_of(rooted(experiment), toy.x), "the same root data either way"


def test_root_data_from_the_test_set(experiment: Load, toy: dragfl.Dataset) -> None:
    simulation = rooted(experiment, source="test")
    assert len(set(rows_of(simulation, toy.test_x))) == 30
    assert sorted(client_samples(simulation)) == list(range(144))


def test_root_training_makes_as_many_steps_as_a_client(experiment: Load) -> None:
    simulation = rooted(experiment)
    w = simulation.federation.initial
    x, y = simulation.federation.worker.root.x, simulation.federation.worker.root.y
    batches = list(rng(3, "root", 2).integers(0, 30, (2, 5)))
    expected = sgd(simulation.federation.model.module, w, x, y, batches, 0.2)
    torch.testing.assert_close(simulation.federation.worker.train_root(w, CONTEXT), expected, atol=1e-6, rtol=0)


def test_fixed_batch(experiment: Load) -> None:
    """One minibatch of its own size for all root steps."""
    simulation = rooted(experiment, fixed_batch=13)
    w = simulation.federation.initial
    x, y = simulation.federation.worker.root.x, simulation.federation.worker.root.y
    (batch,) = rng(3, "root", 2).integers(0, 30, (1, 13))
    expected = sgd(simulation.federation.model.module, w, x, y, [batch, batch], 0.2)
    torch.testing.assert_close(simulation.federation.worker.train_root(w, CONTEXT), expected, atol=1e-6, rtol=0)


def test_accumulate(experiment: Load) -> None:
    """Gradients are never cleared: with two steps, w - lr g1 - lr (g1 + g2)."""
    simulation = rooted(experiment, accumulate=True)
    module, w = simulation.federation.model.module, simulation.federation.initial
    x, y = simulation.federation.worker.root.x, simulation.federation.worker.root.y
    one, two = list(rng(3, "root", 2).integers(0, 30, (2, 5)))
    first = sgd(module, w, x, y, [one], 0.2)
    second = sgd(module, w + first, x, y, [two], 0.2)
    expected = 2 * first + second
    torch.testing.assert_close(simulation.federation.worker.train_root(w, CONTEXT), expected, atol=1e-6, rtol=0)


def test_a_range_of_steps_means_its_maximum(experiment: Load) -> None:
    spec = experiment(algorithm={"name": "br_drag"}, root={"size": 30}, clients={"local_steps": [1, 4]})
    simulation = dragfl.simulate(spec)
    w = simulation.federation.initial
    x, y = simulation.federation.worker.root.x, simulation.federation.worker.root.y
    batches = list(rng(3, "root", 2).integers(0, 30, (4, 5)))
    expected = sgd(simulation.federation.model.module, w, x, y, batches, 0.2)
    torch.testing.assert_close(simulation.federation.worker.train_root(w, CONTEXT), expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(
    ("root", "message"),
    [({"size": 144}, "144 of the 144 train"), ({"size": 60, "source": "test"}, "60 of the 60 test")],
)
def test_a_root_as_large_as_the_data_is_an_error(experiment: Load, root: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=rf"root.size: {message} samples; choose a smaller root"):
        rooted(experiment, **root)


def test_too_few_samples_left_for_the_clients_is_an_error(experiment: Load) -> None:
    with pytest.raises(DataError, match="4 samples are too few for 6 clients"):
        rooted(experiment, size=140)
