"""The shapes of the paper's networks, by their number of parameters, and that they learn from real inputs."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from dragfl import models
from dragfl.errors import SpecError
from dragfl.models import MODELS, cnn, logistic, mlp


def count(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def test_mlp_on_emnist() -> None:
    """784*500 + 500 + 500*47 + 47."""
    assert count(mlp((1, 28, 28), 47)) == 416_047


def test_cnn_on_cifar() -> None:
    """3*64*25 + 64, 64*64*25 + 64, then 64*5*5 = 1600 inputs: 1600*384 + 384, 384*192 + 192, 192*10 + 10."""
    assert count(cnn((3, 32, 32), 10)) == 797_962


def test_logistic_on_emnist() -> None:
    """784*47 + 47."""
    assert count(logistic((1, 28, 28), 47)) == 36_895


@pytest.mark.parametrize("name", sorted(set(MODELS) - {"gru", "resnet18"}))
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 16, 20)])
def test_every_small_network_accepts_images(name: str, shape: tuple[int, ...]) -> None:
    assert MODELS[name](shape, 10)(torch.zeros(4, *shape)).shape == (4, 10)


def test_vectors_are_accepted() -> None:
    assert mlp((6,), 3, hidden=4)(torch.zeros(2, 6)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: cnn((1, 8, 8), 10), "images of 8x8 are too small"),
        (lambda: cnn((1, 28, 15), 10), "images of 28x15 are too small"),
        (lambda: cnn((64,), 10), r"inputs of shape \(64,\)"),
        (lambda: cnn((1, 28, 28), 10, channels=0), "model.channels: 0"),
        (lambda: mlp((6,), 3, hidden=0), "model.hidden: 0"),
    ],
)
def test_bad_settings(make: object, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        make()  # type: ignore[operator]


def test_the_smallest_image_of_the_cnn() -> None:
    """16 -> 12 -> 6 -> 2 -> 1: one more pixel less and nothing is left."""
    assert cnn((1, 16, 16), 2)(torch.zeros(1, 1, 16, 16)).shape == (1, 2)
    with pytest.raises(SpecError, match="15x16"):
        cnn((1, 15, 16), 2)


def test_public_names_are_functions_also_after_their_first_use() -> None:
    """A submodule of the same name would replace the function when it is imported."""
    for name in ("resnet", "resnet18"):
        MODELS[name]((3, 8, 8), 2)
    MODELS["gru"]((5,), 7)
    assert all(getattr(models, name) is make for name, make in MODELS.items())
