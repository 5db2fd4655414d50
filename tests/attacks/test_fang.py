"""The attacks on Krum and on the trimmed mean, by hand and by brute force."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from dragfl import attacks, functional
from dragfl.attacks.fang_krum import krum_scores
from dragfl.attacks.fang_trim import partial_interval, trim_interval
from dragfl.attacks.min_max import squared_distances
from dragfl.errors import SpecError
from dragfl.rng import rng

X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0], [10.0, -10.0]])


def test_krum_scores_by_hand() -> None:
    """n = 5, f = 1: the 2 nearest others. (1,1) has 1 + 1; (10,-10) is far from all."""
    assert krum_scores(squared_distances(X), 2).tolist() == pytest.approx([3.0, 2.0, 3.0, 3.0, 383.0])
    assert krum_scores(squared_distances(X), 3).tolist() == pytest.approx([7.0, 3.0, 5.0, 7.0, 604.0])


def krum(rows: np.ndarray, f: int) -> int:
    """Krum in plain loops: which row has the least sum of squared distances to its n - f - 2 nearest."""
    scores = []
    for i, row in enumerate(rows):
        distances = sorted(float(((row - other) ** 2).sum()) for j, other in enumerate(rows) if j != i)
        scores.append(sum(distances[: len(rows) - f - 2]))
    return int(np.argmin(scores))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("f", [2, 4])
def test_krum_selects_the_forged_update(seed: int, f: int) -> None:
    honest = rng(seed, "h").normal(size=(12, 20)) + 0.3
    sent = attacks.fang_krum(honest, f)
    assert (sent == sent[0]).all() and krum(np.vstack([honest, sent]), f) >= 12
    assert (functional.krum(np.vstack([honest, sent]), f) == sent[0]).all()
    lam = np.abs(sent[0]).max()
    mean = attacks.fang_krum(honest, f, direction="mean")
    assert (np.sign(mean[0]) == -np.sign(honest.mean(0))).all()
    picked = honest[krum(honest, f)]
    assert (np.sign(sent[0]) == -np.sign(picked)).all() and lam > 0.0


def test_lambda_is_halved_until_krum_selects_the_update() -> None:
    """Start and halving as in the paper, with Krum in plain loops."""
    honest, f = rng(8, "h").normal(size=(9, 6)) + 0.5, 3
    n, d = 12, 6
    s = np.sign(honest[krum(honest, f)])
    distances = np.linalg.norm(honest[:, None] - honest, axis=2)
    nearest = np.sort(distances, axis=1)[:, 1 : n - f - 1].sum(1).min()
    lam = nearest / ((n - 2 * f - 1) * d**0.5) + np.linalg.norm(honest, axis=1).max() / d**0.5
    while lam >= 1e-5 and krum(np.vstack([honest, *[-lam * s] * f]), f) < 9:
        lam /= 2
    np.testing.assert_allclose(attacks.fang_krum(honest, f), np.tile(-lam * s, (f, 1)))


def test_partial_knowledge_of_krum() -> None:
    """Attackers go by their own clean updates and the sign of their mean, adding copies until one is picked."""
    own = rng(3, "o").normal(size=(5, 8)) + 1.0
    sent = attacks.fang_krum(own, 5, "partial")
    assert sent.shape == (5, 8) and (np.sign(sent) == -np.sign(own.mean(0))).all()
    one = attacks.fang_krum(own[:1], 1, "partial")
    np.testing.assert_allclose(one[0], -np.linalg.norm(own[0]) / 8**0.5 * np.sign(own[0]))


@pytest.mark.parametrize(("h", "f"), [(1, 1), (1, 3), (2, 1), (3, 3)])
def test_fang_krum_with_few_updates(h: int, f: int) -> None:
    honest = rng(0, "h").normal(size=(h, 4))
    for knows in ("full", "partial"):
        assert np.isfinite(attacks.fang_krum(honest, f, knows)).all()
    assert (attacks.fang_krum(np.zeros((h, 4)), f) == 0.0).all()


def test_trim_intervals_by_hand() -> None:
    """beta = 2. Columns: s < 0 with hi = 2 -> [2, 4]; s < 0 with hi = -1 -> [-1, -.5]; s > 0 with lo = 1 -> [.5, 1];
    s > 0 with lo = -1 -> [-2, -1]; s = 0 -> mu; s < 0 with hi = 0 -> {0}."""
    H = torch.tensor([[2.0, -1.0, 1.0, -1.0, 3.0, 0.0], [-5.0, -3.0, 2.0, 4.0, 1.0, -6.0]])
    s = torch.tensor([-1.0, -1.0, 1.0, 1.0, 0.0, -1.0])
    low, high = trim_interval(H, s, 2.0)
    assert low.tolist() == [2.0, -1.0, 0.5, -2.0, 2.0, 0.0]
    assert high.tolist() == [4.0, -0.5, 1.0, -1.0, 2.0, 0.0]


def test_partial_intervals_by_hand() -> None:
    """mu = (1, -1, 0), sigma = (sqrt 2, 0, 2 sqrt 2): against s by 3 to 4 sigma; sigma = 0 stays at mu."""
    own = torch.tensor([[2.0, -1.0, 2.0], [0.0, -1.0, -2.0]], dtype=torch.float64)
    low, high = partial_interval(own, torch.tensor([1.0, -1.0, 0.0]))
    torch.testing.assert_close(low, torch.tensor([1 - 4 * 2**0.5, -1.0, 0.0], dtype=torch.float64))
    torch.testing.assert_close(high, torch.tensor([1 - 3 * 2**0.5, -1.0, 0.0], dtype=torch.float64))


def between(sent: Tensor, low: Tensor, high: Tensor) -> bool:
    return bool(((sent >= low - 1e-6) & (sent <= high + 1e-6)).all())


def test_every_attacker_draws_its_own_values() -> None:
    honest = torch.from_numpy(rng(1, "h").normal(size=(6, 50)))
    sent = attacks.fang_trim(honest, 3, rng(0, "a"))
    assert between(sent, *trim_interval(honest, torch.sign(honest.sum(0)), 2.0))
    assert len({row[0] for row in sent.tolist()}) == 3
    outside = (sent >= honest.amax(0)) | (sent <= honest.amin(0))
    inside = (honest.amin(0) > 0) | (honest.amax(0) < 0)  # there beta shrinks towards zero, beyond the honest too
    assert bool((outside | inside).all())


def test_the_attackers_own_updates_turn_the_direction() -> None:
    honest, own = torch.tensor([[1.0], [2.0]]), torch.tensor([[-9.0]])
    assert float(attacks.fang_trim(honest, 1, rng(0, "a"))) <= 1.0
    assert float(attacks.fang_trim(honest, 1, rng(0, "a"), own=own)) >= 2.0


def test_weights_are_another_space() -> None:
    """Weights theta + g around 10: intervals scale with 10, not with g. The partial form does not move."""
    honest = torch.tensor([[0.1, -0.1], [0.2, -0.3]])
    w = torch.tensor([10.0, -10.0])
    sent = attacks.fang_trim(honest, 4, rng(0, "a"), space="weights", w=w)
    low, high = trim_interval(honest + w, torch.tensor([1.0, -1.0]), 2.0)
    assert between(sent, low - w, high - w) and float(sent[:, 0].min()) < -1.0
    partial = [
        attacks.fang_trim(honest, 4, rng(0, "a"), "partial", space=space, w=w) for space in ("update", "weights")
    ]
    assert torch.equal(*partial)
    with pytest.raises(SpecError, match="give w"):
        attacks.fang_trim(honest, 4, rng(0, "a"), space="weights")
