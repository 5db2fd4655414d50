"""The full gradient of a client: closed form and autograd agree; the number of workers changes no bit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dragfl
from dragfl.data.dataset import Dataset
from dragfl.training import grouped_mlp
from dragfl.training.grouped_mlp import DenseTrainer
from dragfl.training.loop import Loop, Share
from dragfl.training.sgd import LocalSGD
from dragfl.types import Affine
from dragfl.vector import FlatModel

DRAWS = torch.Generator().manual_seed(3)
X = torch.randint(0, 256, (120, 2, 6, 6), dtype=torch.uint8, generator=DRAWS)
Y = torch.randint(0, 4, (120,), generator=DRAWS)
IMAGES = Dataset("images", X, Y, X[:40], Y[:40], classes=4)


def make_loop(hidden: int, sgd: LocalSGD = LocalSGD()) -> Loop:  # noqa: B008 - it is frozen
    middle = [nn.Linear(72, hidden), nn.ReLU(), nn.Linear(hidden, 4)] if hidden else [nn.Linear(72, 4)]
    return Loop(FlatModel(nn.Sequential(nn.Flatten(), *middle)), IMAGES, sgd=sgd)


@pytest.mark.parametrize("hidden", [0, 30])
@pytest.mark.parametrize("block", [17, 1000])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_closed_form_equals_autograd(hidden: int, block: int, decay: float) -> None:
    loop, rows = make_loop(hidden, LocalSGD(weight_decay=decay)), np.arange(10, 90)
    w = loop.model.w.clone()
    expected = loop.gradient(w, X, Y, rows, block)
    torch.testing.assert_close(DenseTrainer(loop).gradient(w, X, Y, rows, block), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("hidden", [0, 30])
@pytest.mark.parametrize("deferred", [True, False], ids=["deferred first layer", "in place"])
def test_anchored_steps_equal_the_reference_loop(monkeypatch: pytest.MonkeyPatch, hidden: int, deferred: bool) -> None:
    loop = make_loop(hidden)
    w0 = loop.model.w.clone()
    shift = 0.01 * torch.randn(len(w0), generator=torch.Generator().manual_seed(5))
    monkeypatch.setattr(grouped_mlp, "deferring_pays", lambda *_: deferred)
    for affine in (Affine(scale=1.0, anchor=-1.0, shift=shift), Affine(scale=0.3, anchor=-0.7, prox=0.5, shift=shift)):
        shares = [Share(X, Y, [np.arange(k, k + n) for n in (20, 7, 12)], affine) for k in (0, 50)]
        slow, fast = torch.empty(2, len(w0)), torch.empty(2, len(w0))
        expected = loop.train_group(w0, shares, 0.1, slow)
        assert DenseTrainer(loop).train_group(w0, shares, 0.1, fast) == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=1e-6)


def models(name: str, workers: int) -> dict[str, torch.Tensor]:
    tables: dict[str, Any] = {
        "rounds": 2,
        "data": {"dataset": "digits"},
        "model": {"name": "mlp", "hidden": 20},
        "clients": {"total": 9, "per_round": 7, "batch_size": 5, "lr": 0.05, "local_steps": 3},
        "algorithm": {"name": name},
        "engine": {"workers": workers, "block": 4},
    }
    simulation = dragfl.simulate(dragfl.load(tables))
    list(simulation)
    return simulation.model()


@pytest.mark.parametrize("name", ["mime", "mimelite"])
def test_the_number_of_workers_changes_no_bit(name: str) -> None:
    one, *others = (models(name, workers) for workers in (1, 2, 3))
    for other in others:
        assert all(torch.equal(other[key], value) for key, value in one.items())
