"""The dataset class, the embedded digits, and files of the user."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dragfl import data
from dragfl.data.dataset import Dataset, from_tensors
from dragfl.errors import DataError

X, Y = torch.zeros(4, 1, 2, 2, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])


def test_embedded_digits_are_those_of_scikit_learn() -> None:
    from sklearn.datasets import load_digits

    theirs = load_digits()
    ours = data.load("digits")
    test = np.arange(1797) % 5 == 4
    for x, y, part in ((ours.x, ours.y, ~test), (ours.test_x, ours.test_y, test)):
        assert (x[:, 0].numpy() == theirs.images[part]).all() and (y.numpy() == theirs.target[part]).all()
    inputs = ours.inputs(ours.x)
    assert float(inputs.min()) == 0.0 and float(inputs.max()) == 1.0


def test_inputs_by_hand() -> None:
    """255 -> 1 -> (1 - 0.5)/0.25 = 2; 0 -> -2."""
    x = torch.tensor([[[[255]], [[0]]]], dtype=torch.uint8)
    dataset = Dataset("t", x, Y[:1], x, Y[:1], 1, mean=(0.5, 0.5), std=(0.25, 0.25))
    assert dataset.inputs(x).flatten().tolist() == [2.0, -2.0]
    floats = torch.tensor([[0.3]])
    assert Dataset("t", floats, Y[:1], floats, Y[:1], 1).inputs(floats) is floats


def test_repr_is_short() -> None:
    assert repr(data.load("digits")) == "Dataset('digits', 1438 + 359 of (1, 8, 8) uint8, 10 classes)"


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"x": X.long()}, "give uint8 or float32"),
        ({"y": Y.int()}, "int64 label"),
        ({"y": Y[:3]}, "4 inputs"),
        ({"x": X[:0], "y": Y[:0]}, "empty"),
        ({"y": Y + 1}, "number the labels from 0"),
        ({"y": Y - 1}, "number the labels from 0"),
        ({"test_x": torch.zeros(4, 1, 3, 3, dtype=torch.uint8)}, "one shape"),
        ({"x": torch.full((4, 1, 2, 2), torch.nan)}, "NaN"),
        ({"groups": torch.zeros(3, dtype=torch.int64)}, "groups"),
        ({"class_names": ("a",)}, "1 class names for 2 classes"),
    ],
)
def test_bad_data_are_refused(change: dict[str, Any], word: str) -> None:
    with pytest.raises(DataError, match=word):
        Dataset(**{"name": "t", "x": X, "y": Y, "test_x": X, "test_y": Y, "classes": 2, **change})


def test_figures_need_images() -> None:
    flat = torch.zeros(2, 5)
    with pytest.raises(DataError, match="not images"):
        Dataset("t", flat, Y[:2], flat, Y[:2], 2).images(flat)


def test_a_dataset_is_loaded_as_itself() -> None:
    mine = from_tensors(np.zeros((3, 2)), [0, 1, 2], torch.zeros(1, 2), np.array([1], np.uint8))
    assert data.load(mine) is mine and mine.x.dtype == torch.float32 and mine.classes == 3
    with pytest.raises(DataError, match="whole numbers"):
        from_tensors([[0.0]], [0.5], [[0.0]], [0])


def test_npz_with_all_parts(tmp_path: Path) -> None:
    path = tmp_path / "mine.npz"
    x = np.random.default_rng(0).integers(0, 255, (10, 4, 4), np.uint8)
    y = np.arange(10, dtype=np.uint16) % 3
    np.savez(path, x_train=x, y_train=y, x_test=x[:2], y_test=y[:2], groups=np.arange(10), classes=np.array(5))
    mine = data.load(f"npz:{path}")
    assert (mine.name, mine.shape, mine.classes) == ("mine", (1, 4, 4), 5)
    assert mine.y.tolist() == y.tolist() and mine.groups is not None and mine.groups.tolist() == list(range(10))


def test_npz_without_a_test_part_holds_out_every_fifth(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.arange(10.0)[:, None], y=np.arange(10) % 2, groups=np.arange(10))
    mine = data.load(f"npz:{tmp_path / 'a.npz'}")
    assert mine.test_x.flatten().tolist() == [4.0, 9.0] and len(mine.y) == 8
    assert mine.groups is not None and mine.groups.tolist() == [0, 1, 2, 3, 5, 6, 7, 8]


@pytest.mark.parametrize(
    ("arrays", "word"),
    [
        ({"a": np.zeros(3)}, "give x and y"),
        ({"x": np.zeros((3, 1)), "y": np.zeros(2, int)}, "3 inputs and 2 labels"),
        ({"x": np.zeros((3, 1)), "y": np.zeros(3, int), "test_x": np.zeros((3, 1))}, "or neither"),
        ({"x": np.array(["a", "b"]), "y": np.zeros(2, int)}, "give numbers"),
        ({"x": np.zeros((9, 1), np.int32), "y": np.zeros(9, int)}, "give uint8 or float32"),
    ],
)
def test_npz_that_does_not_fit(tmp_path: Path, arrays: dict[str, np.ndarray], word: str) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=word):
        data.load(f"npz:{tmp_path / 'a.npz'}")


def test_idx_folder(tmp_path: Path, idx_bytes: Callable[[np.ndarray], bytes]) -> None:
    x, y = np.arange(48).reshape(3, 4, 4), np.array([0, 1, 2])
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx_bytes(x))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx_bytes(y))
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx_bytes(x[:1])))
    with pytest.raises(DataError, match="labels"):
        data.load(f"idx:{tmp_path}")
    (tmp_path / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx_bytes(y[:1])))
    mine = data.load(f"idx:{tmp_path}")
    assert mine.shape == (1, 4, 4) and mine.y.tolist() == [0, 1, 2] and not mine.transposed
    with pytest.raises(DataError, match="no such folder"):
        data.load("idx:/nowhere")
