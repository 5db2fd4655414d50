"""Options of the `[root]` table: bias, label noise, filter and disjointness."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragfl
from dragfl import data
from dragfl.data import root as root_data
from dragfl.errors import DataError, Interrupted, SpecError
from dragfl.rng import rng
from dragfl.runs.simulation import Simulation
from tests.conftest import Load, kept_bytes


def rooted(experiment: Load, dataset: str = "digits", **root: Any) -> Simulation:
    spec = experiment(algorithm={"name": "br_drag"}, root={"size": 200, **root}, data={"dataset": dataset}, rounds=2)
    return dragfl.simulate(spec)


def labels(simulation: Simulation) -> torch.Tensor:
    return simulation.federation.worker.root.y


def client_samples(simulation: Simulation) -> np.ndarray:
    return np.concatenate([simulation.federation.worker.split.samples_of(m) for m in range(6)])


def chosen(size: int = 200) -> torch.Tensor:
    """The rows that a plain root takes of the digits."""
    return torch.from_numpy(np.sort(rng(3, "root").choice(1438, size, replace=False)))


@pytest.mark.parametrize(("bias", "biased_class", "count"), [(0.3, 4, 60), (0.0, 0, 0), (1.0, 9, 100)])
def test_bias(experiment: Load, bias: float, biased_class: int, count: int) -> None:
    simulation = rooted(experiment, bias=bias, biased_class=biased_class, size=100 if bias == 1.0 else 200)
    assert int((labels(simulation) == biased_class).sum()) == count
    others = len(set(labels(simulation).tolist()) - {biased_class})
    assert others == (0 if bias == 1.0 else 9)


def test_biased_root_data_are_training_samples_that_no_client_has(experiment: Load) -> None:
    simulation = rooted(experiment, bias=0.5, biased_class=2)
    digits = data.load("digits")
    rows = torch.from_numpy(np.setdiff1d(np.arange(1438), client_samples(simulation)))
    assert len(rows) == 200
    assert torch.equal(simulation.federation.worker.root.x, digits.x[rows])
    assert torch.equal(labels(simulation), digits.y[rows])


def test_noise_changes_that_fraction_of_the_labels(experiment: Load) -> None:
    digits = data.load("digits")
    simulation = rooted(experiment, noise=0.35)
    assert torch.equal(simulation.federation.worker.root.x, digits.x[chosen()]), "the inputs are unchanged"
    assert int((labels(simulation) != digits.y[chosen()]).sum()) == 70
    assert torch.equal(digits.y, data.load("digits").y)
    assert torch.equal(labels(rooted(experiment, noise=0.0)), digits.y[chosen()])


@pytest.mark.parametrize("source", ["train", "test"])
def test_noise_changes_neither_client_data_nor_test_data(experiment: Load, source: str) -> None:
    simulation = rooted(experiment, noise=1.0, source=source)
    digits, kept = data.load("digits"), simulation.federation.worker.dataset
    assert torch.equal(kept.y, digits.y)
    assert torch.equal(kept.test_y, digits.test_y)
    assert not set(labels(simulation).tolist()) - set(range(10))


def test_the_filter_removes_mostly_wrong_labels(experiment: Load) -> None:
    """Of 800 labels a quarter are wrong: most of these are removed, and few of the others."""
    digits = data.load("digits")
    noisy = rooted(experiment, size=800, noise=0.25)
    clean = rooted(experiment, size=800, noise=0.25, filter="confident")
    truth = digits.y[chosen(800)]
    keep = root_data.confident_samples(digits.inputs(digits.x[chosen(800)]), labels(noisy), 10, rng(3, "root clean"))
    assert torch.equal(labels(clean), labels(noisy)[keep])
    assert torch.equal(clean.federation.worker.root.x, digits.x[chosen(800)][keep])
    wrong = labels(noisy) != truth
    assert int(wrong.sum()) == 200
    assert (~keep[wrong]).double().mean() > 0.75
    assert (~keep[~wrong]).double().mean() < 0.1


def test_the_filter_keeps_correct_labels(experiment: Load) -> None:
    assert len(labels(rooted(experiment, size=800, filter="confident"))) > 740


def test_filtered_samples_do_not_return_to_the_clients(experiment: Load) -> None:
    """Disjoint refers to all samples drawn for the root."""
    simulation = rooted(experiment, size=300, noise=0.5, filter="confident")
    assert len(labels(simulation)) < 300
    assert not set(chosen(300).tolist()) & set(client_samples(simulation).tolist())
    assert len(client_samples(simulation)) == 1438 - 300


@pytest.mark.parametrize(
    ("root", "shared"), [({"disjoint": False}, 1438), ({"disjoint": True}, 1238), ({"source": "test"}, 1438)]
)
def test_disjoint(experiment: Load, root: dict[str, Any], shared: int) -> None:
    simulation = rooted(experiment, **root)
    assert len(client_samples(simulation)) == len(set(client_samples(simulation).tolist())) == shared


def test_missing_classes(experiment: Load) -> None:
    """Two of the ten digits have no root sample; their samples stay with the clients."""
    simulation = rooted(experiment, missing_classes=2, size=200)
    worker = simulation.federation.worker
    present = set(labels(simulation).tolist())
    assert len(present) == 8 and len(labels(simulation)) == 200
    held = np.concatenate([worker.split.samples_of(m) for m in range(worker.split.clients)])
    assert len(held) == len(worker.dataset.y) - 200 == len(set(held.tolist()))
    assert set(worker.dataset.y[held].tolist()) == set(range(10))


def test_too_many_missing_classes(experiment: Load) -> None:
    with pytest.raises(DataError, match=r"root.missing_classes: 10 of 10 classes; leave at least one"):
        rooted(experiment, missing_classes=10)


OPTIONS = {"noise": 0.3, "filter": "confident", "bias": 0.2, "biased_class": 5}


def test_the_root_depends_on_the_seed_alone(experiment: Load) -> None:
    one, again = rooted(experiment, **OPTIONS), rooted(experiment, **OPTIONS)
    assert torch.equal(labels(one), labels(again))
    assert torch.equal(one.federation.worker.root.x, again.federation.worker.root.x)
    assert (client_samples(one) == client_samples(again)).all()
    other = experiment(algorithm={"name": "br_drag"}, root={"size": 200, **OPTIONS}, data={"dataset": "digits"}, seed=4)
    assert not torch.equal(labels(dragfl.simulate(other))[:20], labels(one)[:20])


def test_noise_does_not_change_the_drawn_samples(experiment: Load) -> None:
    """Neither those of the root nor those of the clients."""
    plain, noisy = rooted(experiment), rooted(experiment, noise=0.3)
    assert torch.equal(plain.federation.worker.root.x, noisy.federation.worker.root.x)
    assert (client_samples(plain) == client_samples(noisy)).all()


def test_a_resumed_run_has_the_same_bits(experiment: Load, tmp_path: Path) -> None:
    spec = experiment(
        algorithm={"name": "br_drag"}, root={"size": 200, **OPTIONS}, data={"dataset": "digits"}, rounds=4
    )
    whole = dragfl.run(spec, tmp_path / "whole")
    stop = iter([False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(stop))
    assert kept_bytes(dragfl.resume(tmp_path / "cut").path) == kept_bytes(whole.path)
    table = whole.spec["root"]
    assert {key: table[key] for key in OPTIONS} == OPTIONS


def test_label_noise_changes_the_root_gradient_and_the_filter_reduces_the_change(experiment: Load) -> None:
    """How far the gradient of the root data is from that of the same samples with their true labels."""

    def gradient(**root: Any) -> torch.Tensor:
        simulation = rooted(experiment, size=800, **root)
        x, y = simulation.federation.worker.root.x, simulation.federation.worker.root.y
        inputs, start = simulation.federation.worker.dataset.inputs(x), simulation.federation.initial
        W, b = (part.clone().requires_grad_() for part in simulation.federation.model.views(start))
        loss = torch.nn.functional.cross_entropy(inputs.flatten(1) @ W.T + b, y)
        return torch.cat([g.flatten() for g in torch.autograd.grad(loss, [W, b])])

    truth, noisy, clean = gradient(), gradient(noise=0.4), gradient(noise=0.4, filter="confident")

    def distance(g: torch.Tensor) -> float:
        return float((g - truth).norm() / truth.norm())

    assert distance(noisy) > 0.4
    assert distance(clean) < 0.7 * distance(noisy)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        ({"noise": 1.5}, r"root\.noise: 1\.5"),
        ({"noise": -0.1}, r"root\.noise: -0\.1"),
        ({"bias": 2.0}, r"root\.bias: 2\.0"),
        ({"filter": "confidant"}, "did you mean 'confident'"),
        ({"size": 0}, r"root\.size: 0 is below 1"),
        ({"biased_clas": 3}, r"root\.biased_clas: unknown key 'biased_clas'; did you mean 'biased_class'"),
        ({"source": "trian"}, r"root\.source: .*did you mean 'train'"),
    ],
)
def test_invalid_settings(experiment: Load, root: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        experiment(root=root)


@pytest.mark.parametrize(
    ("root", "message"),
    [
        (
            {"bias": 1.0, "biased_class": 3},
            r"needs 200 of class 3 and 0 others, there are \d+ and \d+; lower root.size",
        ),
        ({"bias": 0.5, "biased_class": 12}, r"needs 100 of class 12 and 100 others, there are 0 and 1438"),
        ({"size": 4, "filter": "confident"}, "4 root samples are fewer than 5 folds; raise root.size or do not clean"),
        ({"size": 1438}, "1438 of the 1438 train samples; choose a smaller root"),
    ],
)
def test_settings_that_do_not_fit_the_data(experiment: Load, root: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        rooted(experiment, **root)
