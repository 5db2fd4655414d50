"""Augmentation: flips and crops by hand, draws that depend on their address alone, and functions that are wrong."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import dragfl
from dragfl.config.portable import why_not_portable
from dragfl.data.dataset import Dataset
from dragfl.errors import PartError, SpecError
from dragfl.rng import rng
from dragfl.training.augment import Chain, Crop, Flip, augment_batches, fit
from dragfl.training.loop import Share
from dragfl.types import RoundContext

DRAWS = torch.Generator().manual_seed(3)
X = torch.randint(1, 256, (60, 2, 6, 5), dtype=torch.uint8, generator=DRAWS)
Y = torch.arange(60) % 3
IMAGES = Dataset("images", X, Y, X[:20], Y[:20], classes=3)


def brighter(x: Tensor, rng: np.random.Generator) -> Tensor:
    """An augmentation that specs can name."""
    return (x.float() * rng.uniform(0.5, 1.0)).to(x.dtype)


def tables(augment: Any = "flip+crop", **changes: Any) -> dict[str, Any]:
    clients = {"total": 4, "local_steps": 3, "batch_size": 7, "augment": augment}
    base = {"rounds": 3, "data": {"dataset": IMAGES}, "clients": clients, "model": {"name": "mlp", "hidden": 9}}
    return {**base, "evaluation": {"every": 1}, **changes}


def trained(**changes: Any) -> Tensor:
    simulation = dragfl.simulate(dragfl.load(tables(**changes)))
    list(simulation)
    return simulation.state.w


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_flip(dtype: torch.dtype) -> None:
    """Each image is itself or mirrored, as the addressed draws say: mirrored where the draw is below 1/2."""
    x = X.to(dtype)
    out = Flip()(x, rng(0, "flip"))
    assert out.dtype == dtype and torch.equal(x, X.to(dtype))
    mirrored = rng(0, "flip").random(60) < 0.5
    assert 15 < mirrored.sum() < 45
    for i, yes in enumerate(mirrored):
        assert torch.equal(out[i], x[i, :, :, [4, 3, 2, 1, 0]] if yes else x[i])


def test_a_transposed_image_is_flipped_as_the_viewer_sees_it() -> None:
    """EMNIST stores images transposed; the upright images of `Dataset.images` must be mirrored left to right."""
    stored = Dataset("t", X, Y, X, Y, classes=3, transposed=True)
    flipped = fit(Flip(), stored)(X, rng(0, "flip"))
    before, after = stored.images(X), stored.images(flipped)  # (n, height, width, channels)
    mirrored = rng(0, "flip").random(60) < 0.5
    for i, yes in enumerate(mirrored):
        assert torch.equal(after[i], before[i].flip(1) if yes else before[i])


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
def test_crop(dtype: torch.dtype) -> None:
    """Pixel (r, c) is pixel (r + top - 4, c + left - 4) of the image, or zero outside; top and left from the draws."""
    x = X.to(dtype)
    out = Crop()(x, rng(0, "crop"))
    corners = rng(0, "crop").integers(0, 9, (2, 60, 1))
    assert out.shape == x.shape and out.dtype == dtype
    assert set(corners.ravel()) == set(range(9))
    for i in range(60):
        top, left = corners[0, i, 0] - 4, corners[1, i, 0] - 4
        for r in range(6):
            for c in range(5):
                inside = 0 <= r + top < 6 and 0 <= c + left < 5
                expected = x[i, :, r + top, c + left] if inside else torch.zeros(2, dtype=dtype)
                assert torch.equal(out[i, :, r, c], expected)


def test_batches_have_the_draws_of_round_and_client() -> None:
    context = RoundContext(2, 0.1, 5)
    out = augment_batches(Flip(), context, 7, X, [20, 40])
    draws = rng(5, "augment", 2, 7)
    assert torch.equal(out, torch.cat([Flip()(X[:20], draws), Flip()(X[20:], draws)]))
    assert not torch.equal(out, augment_batches(Flip(), context, 8, X, [20, 40]))
    assert not torch.equal(out, augment_batches(Flip(), RoundContext(3, 0.1, 5), 7, X, [20, 40]))


@pytest.mark.parametrize("augment", ["flip", "crop", "flip+crop", f"{__name__}:brighter"])
def test_every_trainer_sees_the_same_images(augment: str) -> None:
    fast, slow = (trained(augment=augment, engine={"trainer": t}) for t in ("dense", "reference"))
    torch.testing.assert_close(fast, slow, rtol=2e-4, atol=2e-6)
    assert (fast - trained(augment="none")).abs().max() > 1e-3


def test_root_data_are_augmented_with_draws_of_their_own() -> None:
    """The root update is that of images flipped beforehand, with the draws of ("augment", 0, "root")."""
    made = tables(augment="flip", root={"size": 20}, algorithm={"name": "br_drag"}, engine={"trainer": "reference"})
    fed = dragfl.simulate(dragfl.load(made)).federation
    context, worker = RoundContext(0, 0.1, 0), fed.worker
    update = worker.train_root(fed.initial, context)
    assert worker.root is not None
    rows = torch.from_numpy(context.rng("root").integers(0, 20, (3, 7)).ravel())
    seen = augment_batches(Flip(), context, "root", worker.root.x[rows], [7, 7, 7])
    share = Share(seen, worker.root.y[rows], list(np.arange(21).reshape(3, 7)))
    expected = torch.empty_like(fed.initial)
    worker.local.loop.train(fed.initial, share, 0.1, expected)
    assert torch.equal(update, expected)


def test_evaluation_and_full_gradients_are_not_augmented() -> None:
    """With a rate of zero nothing is learned: accuracy and loss are those without augmentation, and so is Mime's c."""
    records = []
    for augment in ("none", "flip+crop"):
        made = tables(augment, algorithm={"name": "mime"})
        made["clients"]["lr"] = 0.0
        simulation = dragfl.simulate(dragfl.load(made))
        metrics = [{k: r.metrics[k] for k in ("accuracy", "loss")} for r in simulation]
        records.append((metrics, simulation.state.correction.s.tolist()))
    assert records[0] == records[1]


def test_a_function_from_python() -> None:
    named, given = trained(augment=f"{__name__}:brighter"), trained(augment=brighter)
    assert torch.equal(named, given)
    assert dragfl.load(tables(brighter)).tables()["clients"]["augment"] == f"{__name__}:brighter"
    own = dragfl.load(tables(lambda x, rng: x))
    assert own.tables()["clients"]["augment"].startswith("object:")
    assert "'object:" in (why_not_portable(replace(own, dataset="digits"), "use one worker") or "")
    assert torch.equal(trained(augment=lambda x, rng: x), trained(augment="none"))
    chained = dragfl.load(tables(f"flip+{__name__}:brighter"))
    assert isinstance(dragfl.simulate(chained).federation.worker.local.augment, Chain)


def nothing(x: Tensor, rng: np.random.Generator) -> None:
    """An augmentation that forgets to return."""


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        ("flop", r"clients\.augment: unknown name 'flop'; did you mean 'flip'"),
        ("flip+none", r"clients\.augment: 'none' cannot be combined"),
        ("", r"clients\.augment: unknown name ''"),
        (3, r"clients\.augment: 3 is not a function"),
        (Flip, r"clients\.augment: .* is not a function"),
        ("nowhere:function", r"clients\.augment: cannot import 'nowhere'"),
        (f"{__name__}:Y", r"clients\.augment: .*Y is a Tensor; it must be a function"),
        ("object:f", r"clients\.augment: 'object:f' marks a Python object that a spec cannot name"),
    ],
)
def test_a_wrong_value(augment: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        dragfl.load(tables(augment))


@pytest.mark.parametrize(
    ("augment", "message"),
    [
        (lambda x, rng: x[:1], r"returned uint8 \(1, 2, 6, 5\) on cpu for uint8 \(2, 2, 6, 5\)"),
        (lambda x, rng: x.float(), r"returned float32 .*; return the same shape, dtype and device"),
        (lambda x, rng: 1 / 0, r"raised ZeroDivisionError"),
        (lambda x: x, r"raised TypeError"),
        (nothing, r"nothing returned a NoneType; return the augmented tensor"),
    ],
)
def test_a_wrong_function_is_refused_before_the_first_round(augment: Any, message: str) -> None:
    with pytest.raises(PartError, match=r"clients\.augment: .*" + message):
        dragfl.simulate(dragfl.load(tables(augment)))


def test_a_function_that_returns_nan() -> None:
    data = Dataset("floats", X.float(), Y, X.float(), Y, classes=3)
    with pytest.raises(PartError, match=r"clients\.augment: .* is not finite"):
        fit(lambda x, rng: x * float("nan"), data)


@pytest.mark.parametrize("augment", ["flip", "crop", "crop+flip"])
def test_vectors_cannot_be_flipped(toy: Dataset, augment: str) -> None:
    with pytest.raises(SpecError, match=r"clients\.augment: \w+ needs images .* toy has inputs of shape \(6,\)"):
        dragfl.simulate(dragfl.load(tables(augment, data={"dataset": toy})))
