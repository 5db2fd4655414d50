"""|grad f|^2, sigma_L and sigma_G from a subsample, against closed forms on logistic regression."""

from __future__ import annotations

import numpy as np
import pytest
from torch import nn

from dragfl.data.dataset import Dataset, from_tensors
from dragfl.data.partitions.split import Split
from dragfl.theory.gradients import BATCHES, MOST_CLIENTS, MOST_SAMPLES, draw_subsample, estimate_gradients
from dragfl.training.loop import Loop
from dragfl.vector import FlatModel

CLASSES, FEATURES = 3, 4


def problem(clients: int, held: int, seed: int = 0) -> tuple[Dataset, Split]:
    """Client m holds `held` samples around a mean of its own, mostly of one class."""
    draws = np.random.default_rng(seed)
    x = draws.normal(size=(clients, held, FEATURES)) + draws.normal(size=(clients, 1, FEATURES))
    y = np.where(draws.random((clients, held)) < 0.7, np.arange(clients)[:, None] % CLASSES, 0)
    flat = (x.reshape(-1, FEATURES), y.reshape(-1))
    split = Split.from_parts([np.arange(held * m, held * (m + 1)) for m in range(clients)])
    return from_tensors(*flat, *(part[:5] for part in flat), classes=CLASSES), split


def zero_model() -> FlatModel:
    module = nn.Linear(FEATURES, CLASSES, bias=False)
    nn.init.zeros_(module.weight)
    return FlatModel(module)


def exact(dataset: Dataset, split: Split) -> tuple[float, np.ndarray, np.ndarray]:
    """(|grad f|^2, sigma_L^2, |grad F_m - grad f|^2) at W = 0: there a sample's gradient is (1/K - e_y) x^T."""
    x, y = dataset.x.double().numpy(), dataset.y.numpy()
    g = (1 / CLASSES - np.eye(CLASSES)[y])[:, :, None] * x[:, None, :]
    mine = [g[split.samples_of(m)].reshape(-1, CLASSES * FEATURES) for m in range(split.clients)]
    means = np.array([client.mean(0) for client in mine])
    noise = np.array([((c - m) ** 2).sum(1).mean() for c, m in zip(mine, means, strict=True)])
    return float((means.mean(0) ** 2).sum()), noise, ((means - means.mean(0)) ** 2).sum(1)


def test_one_sample_a_batch_is_exact() -> None:
    """With at most 10 samples every batch is one sample and every sample is used: nothing is estimated."""
    dataset, split = problem(clients=5, held=8)
    squared, noise, apart = exact(dataset, split)
    subsample = draw_subsample(split, FEATURES * CLASSES, seed=0)
    found = estimate_gradients(Loop(zero_model(), dataset), subsample, lambda: None)
    assert found.squared_gradient == pytest.approx(squared, rel=1e-5)
    assert np.square(found.noise) == pytest.approx(noise[list(subsample.clients)], rel=1e-5)
    assert np.square(found.heterogeneity) == pytest.approx(apart[list(subsample.clients)], rel=1e-4, abs=1e-6)
    assert found.loss == pytest.approx(np.log(CLASSES), rel=1e-6)


def test_a_subsample_is_unbiased() -> None:
    """800 samples each, 200 of them drawn: the mean over 60 draws is within three standard errors."""
    dataset, split = problem(clients=4, held=800)
    squared, noise, apart = exact(dataset, split)
    loop, rows = Loop(zero_model(), dataset), []
    for seed in range(60):
        subsample = draw_subsample(split, FEATURES * CLASSES, seed)
        found = estimate_gradients(loop, subsample, lambda: None)
        place = np.argsort(subsample.clients)
        values = np.square(found.noise)[place], np.square(found.heterogeneity)[place]
        rows.append([found.squared_gradient, *values[0], *values[1]])
    error = np.std(rows, axis=0, ddof=1) / np.sqrt(len(rows))
    assert (np.abs(np.mean(rows, axis=0) - [squared, *noise, *apart]) < 3.5 * error).all()


def test_the_correction_removes_the_noise_of_the_subsample() -> None:
    """All clients hold the same IID data with random labels: |grad f|^2 and sigma_G are near 0, sigma_L is not.

    Without the correction sigma_G^2 would be sigma_L^2 / 200.
    """
    draws = np.random.default_rng(0)
    x, y = draws.normal(size=(8000, FEATURES)), draws.integers(0, CLASSES, 8000)
    dataset = from_tensors(x, y, x[:5], y[:5], classes=CLASSES)
    split = Split.from_parts(np.split(np.arange(8000), 4))
    found = estimate_gradients(Loop(zero_model(), dataset), draw_subsample(split, 12, 0), lambda: None)
    assert np.square(found.noise) == pytest.approx(4 * 2 / 3, rel=0.35)  # |x|^2 (1/9 + 1/9 + 4/9)
    assert np.mean(np.square(found.heterogeneity)) < 0.5 * np.mean(np.square(found.noise)) / 200


def test_the_subsample() -> None:
    sizes = [0, 1, 7, 25, 4000]
    split = Split.from_parts(np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1]))
    found = draw_subsample(split, dim=10, seed=3)
    assert sorted(found.clients) == [1, 2, 3, 4] and found.population == 4
    shapes = {m: (len(b), len(b[0])) for m, b in zip(found.clients, found.batches, strict=True)}
    assert shapes == {1: (1, 1), 2: (7, 1), 3: (12, 2), 4: (BATCHES, MOST_SAMPLES // BATCHES)}
    assert found.samples == 1 + 7 + 24 + 200
    for i, m in enumerate(found.clients):
        rows = found.rows(i)
        assert len(set(rows.tolist())) == len(rows) and set(rows.tolist()) <= set(split.samples_of(m).tolist())


def test_one_client_with_one_sample_has_no_spread() -> None:
    dataset, split = problem(clients=1, held=1)
    found = estimate_gradients(Loop(zero_model(), dataset), draw_subsample(split, 12, 0), lambda: None)
    assert found.noise == (0.0,) and found.heterogeneity == (0.0,) and found.squared_gradient > 0


def test_fewer_clients_of_a_large_model_and_of_many() -> None:
    _, split = problem(clients=60, held=2)
    assert len(draw_subsample(split, dim=10, seed=0).clients) == MOST_CLIENTS
    assert len(draw_subsample(split, dim=20_000_000, seed=0).clients) == 6
    assert draw_subsample(split, 10, 0).clients != draw_subsample(split, 10, 1).clients
