"""Every trainer gives the reference loop's numbers, for every correction; the choice depends on the module alone."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.data.dataset import Dataset
from dragfl.errors import SpecError
from dragfl.training import grouped_mlp
from dragfl.training.grouped_mlp import DenseTrainer, Layer, deferring_pays
from dragfl.training.loop import Loop, Share
from dragfl.training.select import select_trainer
from dragfl.types import Affine
from dragfl.vector import FlatModel

DRAWS = torch.Generator().manual_seed(3)
X = torch.randint(0, 256, (120, 2, 16, 16), dtype=torch.uint8, generator=DRAWS)
Y = torch.randint(0, 4, (120,), generator=DRAWS)
IMAGES = Dataset("images", X, Y, X[:40], Y[:40], classes=4)


def final_model(
    trainer: str, model: dict[str, Any], algorithm: dict[str, Any], **tables: Any
) -> dict[str, torch.Tensor]:
    experiment = dragfl.load(
        {
            "rounds": 3,
            "data": {"dataset": IMAGES},
            "root": {"size": 20},
            "clients": {"total": 4, "per_round": 3, "batch_size": 7, "lr": 0.05, "local_steps": 3},
            "algorithm": algorithm,
            "model": model,
            "engine": {"trainer": trainer},
            **tables,
        }
    )
    simulation = dragfl.simulate(experiment)
    list(simulation)
    assert simulation.experiment.engine.trainer == trainer
    return simulation.model()


@pytest.mark.parametrize("hidden", [9, 60], ids=["in place", "deferred first layer"])
@pytest.mark.parametrize("name", PRESETS)
def test_dense_equals_the_reference_loop(name: str, hidden: int) -> None:
    model = {"name": "mlp", "hidden": hidden}
    assert deferring_pays(3 * 7, Layer(torch.empty(hidden, 512), None)) == (hidden == 60)
    fast, slow = (final_model(trainer, model, {"name": name}) for trainer in ("dense", "reference"))
    for key, value in slow.items():
        torch.testing.assert_close(fast[key], value, rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [[], [30], [30, 20, 10]], ids=str)
@pytest.mark.parametrize("deferred", [True, False], ids=["deferred first layer", "in place"])
def test_dense_equals_the_reference_loop_for_every_direction(
    monkeypatch: pytest.MonkeyPatch, widths: list[int], bias: bool, deferred: bool
) -> None:
    """Scale, prox and shift together, batches of different sizes, one to four layers, with and without bias."""
    sizes = [512, *widths, 4]
    parts: list[nn.Module] = [nn.Flatten()]
    for into, out in pairwise(sizes):
        parts += [nn.Linear(into, out, bias=bias), nn.ReLU()]
    loop = Loop(FlatModel(nn.Sequential(*parts[:-1])), IMAGES)
    draws = torch.Generator().manual_seed(5)
    w0 = loop.model.w.clone()
    shift = 0.01 * torch.randn(len(w0), generator=draws)
    batches = [np.arange(0, 20), np.arange(7, 19), np.arange(30, 31), np.arange(40, 60)]
    monkeypatch.setattr(grouped_mlp, "deferring_pays", lambda *_: deferred)
    trainer = DenseTrainer(loop)
    for affine in (Affine(), Affine(scale=0.7, prox=0.5), Affine(shift=shift), Affine(1.3, 0.4, shift)):
        slow, fast, share = torch.empty(1, len(w0)), torch.empty(1, len(w0)), Share(X, Y, batches, affine)
        expected = loop.train_group(w0, [share], 0.1, slow)
        assert trainer.train_group(w0, [share], 0.1, fast) == pytest.approx(expected, rel=1e-5)
        torch.testing.assert_close(fast, slow, rtol=1e-4, atol=2e-6)


@pytest.mark.parametrize("affine", [Affine(), Affine(0.7, 0.5), Affine(anchor=0.6)], ids=["sgd", "prox", "anchor"])
@pytest.mark.parametrize("hidden", [40, 300], ids=["small products", "large products"])
def test_a_group_of_clients_has_the_bits_of_each(hidden: int, affine: Affine) -> None:
    """A client of a real federation trains alone; the simulator trains five at a time.

    A product of one client has 30 x 512 x hidden multiplications: 0.6 and 4.6 million. The limit is 1 million, and a
    group of the small ones is above it.
    """
    loop = Loop(FlatModel(nn.Sequential(nn.Flatten(), nn.Linear(512, hidden), nn.ReLU(), nn.Linear(hidden, 4))), IMAGES)
    trainer, w0 = DenseTrainer(loop), loop.model.w.clone()
    shares = [Share(X, Y, [np.arange(a, a + 12), np.arange(a + 12, a + 30)], affine) for a in (0, 20, 50, 85)]
    together, alone = torch.empty(4, len(w0)), torch.empty(4, len(w0))
    losses = trainer.train_group(w0, shares, 0.1, together)
    assert losses == [
        trainer.train_group(w0, [share], 0.1, row.unsqueeze(0))[0] for share, row in zip(shares, alone, strict=True)
    ]
    assert torch.equal(together, alone)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"name": "fedavg"},
        {"name": "drag"},
        {"name": "scaffold", "option": "I"},
        {"name": "scaffold"},
        {"name": "feddyn"},
        {"name": "mime", "momentum": 0.0},
        {"name": "mimelite", "momentum": 0.5},
        {"name": "br_drag"},
    ],
    ids=str,
)
def test_channels_last_equals_the_reference_loop(algorithm: dict[str, Any]) -> None:
    """A kernel with several input channels has another layout in the vector; full gradients must use it."""
    model = {"name": "cnn", "channels": 3}
    fast, slow = (final_model(trainer, model, algorithm) for trainer in ("channels_last", "reference"))
    for key, value in slow.items():
        assert fast[key].is_contiguous()
        torch.testing.assert_close(fast[key], value, rtol=1e-5, atol=2e-6)


def test_options_that_dense_passes_to_the_reference_loop() -> None:
    """Accumulated root gradients and the doubled soft-max: the same bits, since it is the same loop."""
    switches: list[dict[str, Any]] = [
        {"root": {"size": 20, "accumulate": True}},
        {"model": {"name": "mlp", "hidden": 9, "double_softmax": True}},
    ]
    for tables in switches:
        model = tables.pop("model", {"name": "mlp", "hidden": 9})
        fast, slow = (final_model(trainer, model, {"name": "br_drag"}, **tables) for trainer in ("dense", "reference"))
        for key, value in slow.items():
            torch.testing.assert_close(fast[key], value, rtol=2e-4, atol=2e-5)


def test_select_trainer() -> None:
    linear = nn.Linear(4, 3)
    assert select_trainer("auto", nn.Sequential(nn.Flatten(), linear)) == "dense"
    assert select_trainer("auto", nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Identity(), nn.Linear(5, 3))) == "dense"
    assert select_trainer("reference", nn.Sequential(linear)) == "reference"
    assert select_trainer("auto", nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), linear)) == "channels_last"
    for other in (linear, nn.Sequential(linear, nn.Tanh(), linear), nn.Sequential(linear, nn.ReLU())):
        assert select_trainer("auto", other) == "reference"
    twice = nn.Linear(4, 4)
    assert select_trainer("auto", nn.Sequential(twice, nn.ReLU(), twice)) == "reference"
    frozen = nn.Sequential(nn.Linear(4, 3))
    frozen[0].bias.requires_grad_(False)
    assert select_trainer("auto", frozen) == "reference"
    with pytest.raises(SpecError, match="'dense' needs a Sequential of Linear and ReLU"):
        select_trainer("dense", linear)
    with pytest.raises(SpecError, match="'channels_last' needs convolutions"):
        select_trainer("channels_last", linear)


def test_a_subclass_of_sequential_keeps_the_reference_loop() -> None:
    class Scaled(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 3.0 * super().forward(x)

    assert select_trainer("auto", Scaled(nn.Linear(4, 3))) == "reference"


def test_a_module_with_hooks_keeps_the_reference_loop() -> None:
    module = nn.Sequential(nn.Linear(4, 3))
    module[0].register_forward_hook(lambda *_: None)
    assert select_trainer("auto", module) == "reference"
