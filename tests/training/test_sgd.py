"""Local momentum, weight decay and clipping: against torch.optim.SGD, and against sums worked out by hand."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn import functional as nnf

import dragfl
from dragfl.arithmetic import effective_steps
from dragfl.data.dataset import Dataset
from dragfl.models import MODELS
from dragfl.rng import rng
from dragfl.training.batches import draw
from dragfl.training.loop import Loop, Share
from dragfl.training.select import select_trainer
from dragfl.training.sgd import LocalSGD
from dragfl.types import Affine
from dragfl.vector import FlatModel
from tests.conftest import Load

OPTIONS: list[dict[str, Any]] = [
    {"momentum": 0.9},
    {"weight_decay": 0.05},
    {"clip_norm": 0.3},
    {"momentum": 0.5, "weight_decay": 0.02, "clip_norm": 0.5},
]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 3))


def torch_sgd(module: nn.Module, data: Dataset, batches: list[Any], lr: float, sgd: LocalSGD) -> Tensor:
    """The parameters after PyTorch's own clipping and optimiser."""
    optimizer = torch.optim.SGD(module.parameters(), lr=lr, momentum=sgd.momentum, weight_decay=sgd.weight_decay)
    for batch in batches:
        optimizer.zero_grad()
        nnf.cross_entropy(module(data.x[batch]), data.y[batch]).backward()
        if sgd.clip_norm is not None:
            nn.utils.clip_grad_norm_(module.parameters(), sgd.clip_norm)
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()])


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_train_is_the_optimizer_of_pytorch(toy: Dataset, options: dict[str, Any]) -> None:
    sgd = LocalSGD(**options)
    batches = draw(rng(1, "test"), len(toy.y), 7, 16, "replacement")
    expected, plain = torch_sgd(net(), toy, batches, 0.3, sgd), torch_sgd(net(), toy, batches, 0.3, LocalSGD())
    model = FlatModel(net())
    w0, out = model.w.clone(), torch.empty(model.dim)
    affine = sgd.decayed(Affine(), sgd.decay(w0))
    Loop(model, toy, sgd=sgd).train(w0, Share(toy.x, toy.y, batches, affine), 0.3, out)
    torch.testing.assert_close(w0 + out, expected, atol=1e-6, rtol=0)
    assert (expected - plain).abs().max() > 1e-3, "the option must matter"


def test_the_velocity_starts_at_zero_in_every_round(toy: Dataset) -> None:
    """Trained twice from the same model, the update is the same."""
    loop = Loop(FlatModel(net()), toy, sgd=LocalSGD(momentum=0.9))
    w0, share = loop.model.w.clone(), Share(toy.x, toy.y, [np.arange(9), np.arange(5)])
    one, two = torch.empty_like(w0), torch.empty_like(w0)
    loop.train(w0, share, 0.3, one)
    loop.train(w0, share, 0.3, two)
    assert torch.equal(one, two)


def test_a_wide_clip_changes_no_bit() -> None:
    grads = [torch.randn(4, 3), torch.randn(5)]
    assert all(torch.equal(a, b) for a, b in zip(LocalSGD(clip_norm=1e6).clipped(grads), grads, strict=True))
    assert LocalSGD().clipped(grads) is grads


def test_clipped_by_hand() -> None:
    """|(3, 4)| = 5, so a clip of 1 leaves (0.6, 0.8): the norm is of all tensors together."""
    a, b = LocalSGD(clip_norm=1.0).clipped([torch.tensor([3.0]), torch.tensor([4.0])])
    assert (a.item(), b.item()) == pytest.approx((0.6, 0.8), abs=1e-6)


def test_weight_decay_is_a_direction() -> None:
    """scale (g + wd w) + anchor (g0 + wd w0) + prox (w - w0) + shift, with scale 0.7, anchor -0.2, wd 0.1."""
    w0, w, shift = torch.tensor([1.0, -2.0]), torch.tensor([1.5, 0.5]), torch.tensor([0.3, 0.1])
    affine, sgd = Affine(0.7, 0.4, shift, -0.2), LocalSGD(weight_decay=0.1)
    found = sgd.decayed(affine, sgd.decay(w0))
    expected = 0.7 * 0.1 * w - 0.2 * 0.1 * w0 + 0.4 * (w - w0) + shift
    assert found.shift is not None
    torch.testing.assert_close(found.prox * (w - w0) + found.shift, expected)
    assert (found.scale, found.anchor) == (0.7, -0.2)
    assert LocalSGD().decayed(affine, LocalSGD().decay(w0)) is affine


def test_a_full_gradient_has_weight_decay(toy: Dataset) -> None:
    model = FlatModel(net())
    w, rows = model.w.clone(), np.arange(30)
    plain, decayed = (
        Loop(model, toy, sgd=s).gradient(w, toy.x, toy.y, rows, 10) for s in (LocalSGD(), LocalSGD(0, 0.1))
    )
    torch.testing.assert_close(decayed, plain + 0.1 * w)


@given(st.integers(1, 40), st.floats(0.0, 0.99), st.floats(0.0, 0.9))
def test_effective_steps(steps: int, momentum: float, shrink: float) -> None:
    """The closed forms of Wang et al. 2020 for each alone; for both, minus the movement along a gradient of 1."""
    rho, tau = momentum, steps
    alone = (tau - rho * (1 - rho**tau) / (1 - rho)) / (1 - rho)
    assert effective_steps(steps, momentum) == pytest.approx(alone, rel=1e-9)
    if shrink > 1e-3:
        assert effective_steps(steps, 0.0, shrink) == pytest.approx((1 - (1 - shrink) ** tau) / shrink, rel=1e-9)
    lr, mu, w, v = 0.5, 2.0 * shrink, 0.0, 0.0
    for _ in range(steps):
        v = momentum * v + 1.0 + mu * w
        w -= lr * v
    assert effective_steps(steps, momentum, shrink) == pytest.approx(-w / lr, rel=1e-9)
    assert effective_steps(steps, 0.0) == steps


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_dense_equals_the_reference_loop(experiment: Load, options: dict[str, Any]) -> None:
    models = []
    for trainer in ("dense", "reference"):
        spec = experiment(
            clients=options, algorithm={"name": "br_drag"}, root={"size": 20}, engine={"trainer": trainer},
            model={"name": "mlp", "hidden": 9},
        )  # fmt: skip
        simulation = dragfl.simulate(spec)
        list(simulation)
        models.append(simulation.state.w)
    torch.testing.assert_close(*models, rtol=2e-4, atol=2e-6)


def test_channels_last_equals_the_reference_loop() -> None:
    draws = torch.Generator().manual_seed(3)
    x, y = torch.randn(60, 2, 16, 16, generator=draws), torch.randint(0, 4, (60,), generator=draws)
    data = Dataset("images", x, y, x[:20], y[:20], classes=4)
    models = []
    for trainer in ("channels_last", "reference"):
        clients = {"total": 3, "local_steps": 3, "batch_size": 7, "lr": 0.05, **OPTIONS[-1]}
        tables = {"rounds": 2, "data": {"dataset": data}, "clients": clients, "engine": {"trainer": trainer}}
        simulation = dragfl.simulate(dragfl.load({**tables, "model": {"name": "cnn", "channels": 3}}))
        list(simulation)
        models.append(simulation.model())
    for key, value in models[1].items():
        torch.testing.assert_close(models[0][key], value, rtol=1e-5, atol=2e-6)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_the_server_trains_its_root_data_like_a_client(toy: Dataset, experiment: Load, options: dict[str, Any]) -> None:
    """PyTorch on the root batches of the first round gives the update that BR-DRAG uses as its reference."""
    spec = experiment(clients=options, algorithm={"name": "br_drag"}, root={"size": 20})
    fed = dragfl.simulate(spec).federation
    context = dragfl.types.RoundContext(0, 0.2, 3)
    seen = fed.worker.train_root(fed.initial, context)
    root = fed.worker.root
    assert root is not None
    data = Dataset("root", root.x, root.y, root.x, root.y, classes=3)
    module = copy.deepcopy(fed.model.module)
    fed.model.load(fed.initial, None)
    module.load_state_dict(fed.model.module.state_dict())
    batches = draw(context.rng("root"), 20, 2, 5, "replacement")
    expected = torch_sgd(module, data, batches, 0.2, LocalSGD(**options)) - fed.initial
    torch.testing.assert_close(seen, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize(("width", "trainer"), [(4, "reference"), (8, "channels_last")])
def test_narrow_strided_convolutions_keep_the_reference_loop(width: int, trainer: str) -> None:
    """Strided 1x1 convolutions of fewer than 8 channels corrupt memory in oneDNN's channels-last gradient."""
    module = MODELS["resnet"]((3, 16, 16), 10, width=width, blocks=1, groups=2)
    assert select_trainer("auto", module) == trainer
    if trainer == "reference":
        with pytest.raises(dragfl.errors.SpecError, match="at least 8 channels"):
            select_trainer("channels_last", module)
