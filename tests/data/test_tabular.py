"""The tables of scikit-learn: sizes, a stratified split, standardisation without the test data."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from sklearn import datasets

import dragfl
from dragfl import data
from dragfl.cli import main
from dragfl.data.sources import TABULAR
from dragfl.errors import SpecError


@pytest.mark.parametrize("name", TABULAR)
def test_sizes_and_split(name: str) -> None:
    """A fifth of each class is test data: breast_cancer has 212 and 357, so 42 + 71 = 113."""
    table, dataset = getattr(datasets, f"load_{name}")(), data.load(name)
    test = np.round(0.2 * np.bincount(table.target)).astype(int)
    assert np.bincount(dataset.test_y).tolist() == test.tolist()
    assert np.bincount(dataset.y).tolist() == (np.bincount(table.target) - test).tolist()
    assert dataset.class_names == tuple(table.target_names) and dataset.shape == table.data.shape[1:]
    about = f"{len(dataset.y)} + {len(dataset.test_y)}"
    assert about in data.DATASETS[name] and f"{dataset.shape[0]} features" in data.DATASETS[name]


@pytest.mark.parametrize("name", TABULAR)
def test_standardised_with_training_statistics_only(name: str) -> None:
    """Training columns have mean 0 and standard deviation 1, test columns only nearly so.

    A linear map changes nothing else: standardised together, the rows are those of the table.
    """
    dataset, raw = data.load(name), getattr(datasets, f"load_{name}")().data
    np.testing.assert_allclose(dataset.x.mean(0), 0, atol=1e-5)
    np.testing.assert_allclose(dataset.x.std(0, correction=0), 1, atol=1e-5)
    assert np.abs(dataset.test_x.mean(0).numpy()).max() > 0.01
    both = np.concatenate([dataset.x, dataset.test_x]).astype(np.float64)
    ours, theirs = (np.sort((x - x.mean(0)) / x.std(0), axis=0) for x in (both, raw))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_it_is_the_same_every_time() -> None:
    assert data.load("wine").x.equal(data.load("wine").x)


@pytest.mark.parametrize("model", [{"name": "logistic"}, {"name": "mlp", "hidden": 16}])
def test_models_learn_on_dirichlet_clients(model: dict[str, object]) -> None:
    spec = {
        "rounds": 20,
        "data": {"dataset": "breast_cancer", "partition": {"kind": "dirichlet_class", "a": 0.3}},
        "clients": {"total": 5},
        "model": model,
        "evaluation": {"every": 20},
    }
    *_, last = dragfl.simulate(dragfl.load(spec))
    assert last.metrics["accuracy"] > 0.9
    assert len(last.metrics["class_accuracy"]) == 2


def test_without_scikit_learn(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setitem(sys.modules, "sklearn.datasets", None)
    with pytest.raises(SpecError, match=r"dataset iris needs scikit-learn, .* pip install 'dragfl\[robust\]'"):
        data.load("iris")
    assert main(["data", "get", "iris"]) == 2
    assert "scikit-learn" in capsys.readouterr().err


def test_show(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "show", "iris", "--clients", "3", "--out", str(tmp_path)]) == 0
    assert "setosa" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["data-iris-iid.png"]


def test_a_backdoor_needs_images() -> None:
    spec = {"data": {"dataset": "iris"}, "clients": {"total": 4}, "model": {"name": "logistic"}}
    attack = {"name": "backdoor", "attackers": 1}
    with pytest.raises(dragfl.errors.DataError, match=r"does not fit inputs of shape \(4,\); lower it, or use images"):
        dragfl.simulate(dragfl.load({**spec, "attack": attack}))
    *_, last = dragfl.simulate(dragfl.load({**spec, "rounds": 2, "attack": {"name": "label_flip", "attackers": 1}}))
    assert last.metrics["attackers"] == 1
