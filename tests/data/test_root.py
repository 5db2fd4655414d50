"""The root data: choice, noise, and cleaning by confident learning."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dragfl import data
from dragfl.data.root import (
    add_label_noise,
    confident_samples,
    likely_mislabeled,
    out_of_fold_probabilities,
    principal_components,
    sample_root,
)
from dragfl.errors import DataError, SpecError
from dragfl.rng import rng

LABELS = np.arange(1000) % 10


def test_sample_root_is_uniform_or_biased() -> None:
    plain = sample_root(LABELS, 300, rng(0, "root"))
    assert len(set(plain)) == 300 and (np.diff(plain) > 0).all()
    biased = LABELS[sample_root(LABELS, 100, rng(0, "root"), bias=0.6, biased_class=3)]
    assert (biased == 3).sum() == 60
    with pytest.raises(DataError, match=r"root.size: 2000"):
        sample_root(LABELS, 2000, rng(0, "root"))
    with pytest.raises(DataError, match="needs 300 of class 3"):
        sample_root(LABELS, 300, rng(0, "root"), bias=1.0, biased_class=3)
    with pytest.raises(SpecError, match=r"root.bias: 2"):
        sample_root(LABELS, 10, rng(0, "root"), bias=2)


def test_label_noise_changes_the_given_fraction() -> None:
    y = torch.from_numpy(LABELS)
    noisy = add_label_noise(y, 10, 0.25, rng(0, "noise"))
    assert int((noisy != y).sum()) == 250 and int(noisy.min()) >= 0 and int(noisy.max()) <= 9
    assert torch.equal(add_label_noise(y, 10, 0.0, rng(0, "noise")), y)
    with pytest.raises(SpecError):
        add_label_noise(y, 10, 1.5, rng(0, "noise"))


def test_likely_mislabeled_by_hand() -> None:
    """Labels 0 0 1 1; p(1) = .1 .8 .7 .9. Thresholds: class 0 mean of .9 and .2 = .55, class 1 mean of .7 and .9 = .8.

    Sample 0 reaches 0 only: fine. Sample 1 (labelled 0) reaches 1 only: likely mislabeled. Sample 2 reaches none: kept.
    Sample 3 reaches 1: fine.
    """
    p1 = torch.tensor([0.1, 0.8, 0.7, 0.9], dtype=torch.float64)
    probability = torch.stack([1 - p1, p1], 1)
    assert likely_mislabeled(probability, torch.tensor([0, 0, 1, 1])).tolist() == [False, True, False, False]


def test_likely_mislabeled_ignores_an_absent_class() -> None:
    probability = torch.tensor([[0.4, 0.6], [0.3, 0.7]])
    assert likely_mislabeled(probability, torch.tensor([0, 0])).tolist() == [False, False]


def test_filtering_the_digits() -> None:
    """A fifth of the labels wrong: cleaning leaves under a tenth, and loses few of the good."""
    digits = data.load("digits")
    rows = torch.from_numpy(sample_root(digits.y.numpy(), 1000, rng(0, "root")))
    x, y = digits.inputs(digits.x[rows]), digits.y[rows]
    noisy = add_label_noise(y, 10, 0.2, rng(0, "noise"))
    keep = confident_samples(x, noisy, 10, rng(0, "clean"))
    wrong = noisy != y
    assert float(wrong[keep].double().mean()) < 0.1
    assert float((~keep)[~wrong].double().mean()) < 0.1
    assert torch.equal(keep, confident_samples(x, noisy, 10, rng(0, "clean")))
    clean = confident_samples(x, y, 10, rng(0, "clean"))
    assert float(clean.double().mean()) > 0.93


def test_filtering_never_removes_a_class() -> None:
    x = torch.cat([torch.zeros(20, 2), torch.ones(20, 2)])
    y = torch.tensor([0] * 20 + [1] * 19 + [2])
    keep = confident_samples(x, y, 3, rng(0, "clean"))
    assert set(y[keep].tolist()) == {0, 1, 2}
    with pytest.raises(DataError, match="fewer than 5 folds"):
        confident_samples(x[:3], y[:3], 3, rng(0, "clean"))


def test_probabilities_sum_to_one_and_no_global_generator_is_used() -> None:
    digits = data.load("digits")
    state = torch.get_rng_state()
    found = out_of_fold_probabilities(digits.inputs(digits.x[:200]), digits.y[:200], 10, rng(0, "clean"))
    assert torch.equal(state, torch.get_rng_state())
    assert torch.allclose(found.sum(1), torch.ones(200)) and bool((found >= 0).all())


def test_principal_components_find_the_main_direction() -> None:
    """Points along (3, 4)/5 with a little noise: the first component is the position along it, up to its sign."""
    t = torch.linspace(-1, 1, 101)
    x = t[:, None] * torch.tensor([0.6, 0.8]) + 0.001 * torch.sin(37 * t)[:, None] * torch.tensor([-0.8, 0.6])
    first = principal_components(x, rng(0, "clean"), components=1)[:, 0]
    assert float(first.std()) == pytest.approx(3.0, rel=1e-4)
    correlation = torch.corrcoef(torch.stack([first, t]))[0, 1]
    assert abs(float(correlation)) > 0.9999
