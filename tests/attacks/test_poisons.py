"""Poisons by hand, and that nothing is changed in place."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from dragfl.attacks.data_poisoning import POISONS, Backdoor, DynamicLabelFlip, LabelFlip
from dragfl.errors import DataError, SpecError
from dragfl.rng import rng

X = torch.arange(4 * 1 * 5 * 5, dtype=torch.uint8).reshape(4, 1, 5, 5)
Y = torch.tensor([0, 1, 2, 9])


def gen() -> np.random.Generator:
    return rng(0, "poison")


def test_label_flip_by_hand() -> None:
    assert LabelFlip(10).poison(X, Y, None, gen())[1].tolist() == [9, 8, 7, 0]
    assert LabelFlip(10, mode="shift").poison(X, Y, None, gen())[1].tolist() == [1, 2, 3, 0]
    assert LabelFlip(10, mode="shift", shift=-2).poison(X, Y, None, gen())[1].tolist() == [8, 9, 0, 7]
    assert LabelFlip(10, mode="pair", source=2, target=5).poison(X, Y, None, gen())[1].tolist() == [0, 1, 5, 9]
    assert LabelFlip(10, mode="pair", source=0, target=3).poison(X, Y, None, gen())[1].tolist() == [3, 1, 2, 9]


def test_a_share_of_the_labels() -> None:
    y = torch.zeros(100, dtype=torch.int64)
    flipped = LabelFlip(10, sample_fraction=0.3).poison(torch.zeros(100, 1), y, None, gen())[1]
    assert int((flipped == 9).sum()) == 30 and int(y.sum()) == 0
    assert torch.equal(flipped, LabelFlip(10, sample_fraction=0.3).poison(torch.zeros(100, 1), y, None, gen())[1])


def test_dynamic_flip_takes_the_least_likely_class() -> None:
    def predict(x: Tensor) -> Tensor:
        return torch.tensor([[0.2, 0.1, 0.7], [0.0, 0.5, 0.5], [0.4, 0.4, 0.2], [0.3, 0.1, 0.6]])[: len(x)]

    assert DynamicLabelFlip().poison(X, Y, predict, gen())[1].tolist() == [1, 0, 2, 1]
    with pytest.raises(DataError, match="give predict"):
        DynamicLabelFlip().poison(X, Y, None, gen())


@pytest.mark.parametrize(
    ("corner", "rows", "columns"),
    [("top left", (0, 1), (0, 1)), ("bottom right", (3, 4), (3, 4)), ("top right", (0, 1), (3, 4))],
)
def test_the_trigger_is_a_square_in_a_corner(corner: Any, rows: tuple[int, int], columns: tuple[int, int]) -> None:
    stamped = Backdoor(target=7, size=2, value=200, corner=corner).stamp(X)
    changed = (stamped != X).any(0)[0]
    expected = torch.zeros(5, 5, dtype=torch.bool)
    expected[rows[0] : rows[1] + 1, columns[0] : columns[1] + 1] = True
    assert torch.equal(changed, expected) and int(stamped[0, 0, rows[0], columns[0]]) == 200


def test_backdoor_replaces_or_adds() -> None:
    before = X.clone()
    x, y = Backdoor(target=7, sample_fraction=0.5).poison(X, Y, None, gen())
    assert int((y == 7).sum()) == 2 and int((x != X).flatten(1).any(1).sum()) == 2
    assert ((y == 7) == (x != X).flatten(1).any(1)).all()
    x, y = Backdoor(target=7, sample_fraction=0.5, copies=True).poison(X, Y, None, gen())
    assert torch.equal(x[:4], X) and torch.equal(y[:4], Y) and y[4:].tolist() == [7, 7]
    assert torch.equal(X, before)


def test_attack_success_rate_counts_other_classes_only() -> None:
    """Targets 9. Of the three triggered images of classes 0, 1, 2 the model takes two for the target."""
    poison = Backdoor(target=9, size=1, value=255.0)

    def predict(x: Tensor) -> Tensor:
        assert bool((x[:, :, -1, -1] == 255).all()) and len(x) == 3
        return torch.nn.functional.one_hot(torch.tensor([9, 0, 9]), 10)

    assert poison.success_rate(X, Y, predict) == pytest.approx(2 / 3)
    with pytest.raises(DataError, match="every test label"):
        poison.success_rate(X[3:], Y[3:], predict)


@pytest.mark.parametrize(
    "make",
    [
        lambda: LabelFlip(10, mode="twist"),  # type: ignore[arg-type]
        lambda: LabelFlip(10, mode="shift", shift=10),
        lambda: LabelFlip(10, mode="pair", source=1),
        lambda: LabelFlip(10, mode="pair", source=1, target=10),
        lambda: LabelFlip(10, sample_fraction=0),
        lambda: DynamicLabelFlip(sample_fraction=1.5),
        lambda: Backdoor(target=-1),
        lambda: Backdoor(target=1, corner="middle"),  # type: ignore[arg-type]
    ],
)
def test_bad_settings(make: Any) -> None:
    with pytest.raises(SpecError):
        make()


def test_a_trigger_needs_an_image() -> None:
    with pytest.raises(DataError, match="does not fit"):
        Backdoor(target=1, size=6).stamp(X)
    assert set(POISONS) == {"label_flip", "dynamic_label_flip", "backdoor"}
