"""Attacks by hand. H = (1,0), (1,1), (0,1), (1,2) honest: mu = (.75, 1), sum of squares around it (.75, 2), so
sigma = (sqrt(.75/3), sqrt(2/3)) = (.5, .816497) with n - 1 in the denominator."""

from __future__ import annotations

from itertools import product
from statistics import NormalDist

import numpy as np
import pytest
import torch
from torch import Tensor

from dragfl import attacks, functional
from dragfl.attacks.min_max import Bound, Direction, squared_distances
from dragfl.rng import rng

H = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0]], dtype=torch.float64)
MU = torch.tensor([0.75, 1.0], dtype=torch.float64)
SIGMA = torch.tensor([0.5, (2 / 3) ** 0.5], dtype=torch.float64)


def close(found: Tensor, expected: list[float] | Tensor, atol: float = 1e-6) -> None:
    for row in found:
        torch.testing.assert_close(row, torch.as_tensor(expected, dtype=row.dtype), atol=atol, rtol=0)


def test_ipm() -> None:
    close(attacks.ipm(H, 1, 0.1), [-0.075, -0.1])
    close(attacks.ipm(H, 3, 100.0), [-75.0, -100.0])
    assert attacks.ipm(H, 3).shape == (3, 2)
    close(attacks.sign_flip(H.mean(0, keepdim=True)), [-0.75, -1.0])


def test_alie() -> None:
    """mu - 1.5 sigma = (.75 - .75, 1 - 1.224745); above and against the sign of mu, which is positive, likewise."""
    close(attacks.alie(H, 1, 1.5), [0.0, -0.224745])
    close(attacks.alie(H, 1, 1.5, side="above"), [1.5, 2.224745])
    close(attacks.alie(H, 1, 1.5, side="against"), [0.0, -0.224745])
    close(attacks.alie(-H, 1, 1.5, side="against"), [0.0, 0.224745])


@pytest.mark.parametrize(("n", "f", "z"), [(10, 4, 0.4307), (20, 4, 0.1573), (20, 8, 0.6745), (10, 1, 0.0)])
def test_alie_z(n: int, f: int, z: float) -> None:
    """(20, 8): s = 11 - 8 = 3, Phi^-1(9/12) = .6745. (10, 1): s = 5, Phi^-1(4/9) = -.1397 -> 0."""
    assert attacks.alie_z(n, f) == pytest.approx(z, abs=5e-5)
    honest = torch.from_numpy(rng(0, "h").normal(size=(n - f, 3)))
    close(attacks.alie(honest, f), honest.mean(0) - attacks.alie_z(n, f) * honest.std(0))


def test_alie_z_at_the_edges() -> None:
    assert NormalDist().inv_cdf(4 / 9) == pytest.approx(-0.1397, abs=5e-5)
    assert [attacks.alie_z(n, f) for n, f in ((1, 0), (1, 1), (2, 1), (3, 1), (5, 5))] == [0.0] * 5
    assert all(0.0 <= attacks.alie_z(n, f) < 5.0 for n in range(1, 40) for f in range(n + 1))


def test_min_max() -> None:
    """unit: largest squared distance |(1,0)-(1,2)|^2 = 4 -> gamma 1.009592."""
    assert float(squared_distances(H).max()) == pytest.approx(4.0)
    close(attacks.min_max(H, 1), [0.144245, 0.192327])
    gamma = float(torch.linalg.vector_norm(attacks.min_max(H, 1)[0] - MU))
    assert gamma == pytest.approx(1.009592, abs=1e-6)


def test_min_sum() -> None:
    """Sums of squared distances are 7, 3, 5, 7; around mu 2.75: gamma^2 = (7 - 2.75)/4, or (3 - 2.75)/4."""
    assert squared_distances(H).sum(1).tolist() == pytest.approx([7.0, 3.0, 5.0, 7.0])
    close(attacks.min_sum(H, 1), MU * (1 - (4.25 / 4) ** 0.5 / 1.25))
    close(attacks.min_sum(H, 1, bound="min"), MU * (1 - (0.25 / 4) ** 0.5 / 1.25))


def searched(honest: Tensor, direction: Direction, fits: object) -> Tensor:
    """The same by bisection on gamma, as the papers do."""
    mu, sigma = honest.mean(0), honest.std(0)
    p = {"unit": -mu / mu.norm(), "sign": -torch.sign(mu), "std": -sigma}[direction]
    low, high = 0.0, 1e3
    for _ in range(80):
        gamma = (low + high) / 2
        low, high = (gamma, high) if fits(mu + gamma * p) else (low, gamma)  # type: ignore[operator]
    return mu + low * p


@pytest.mark.parametrize(("direction", "seed"), list(product(["unit", "sign", "std"], range(3))))
def test_closed_forms_agree_with_a_bisection(direction: Direction, seed: int) -> None:
    X = torch.from_numpy(rng(seed, "h").normal(size=(6, 9)) + 0.5)
    pairs = torch.cdist(X, X)

    def within_max(b: Tensor) -> bool:
        return bool((b - X).norm(dim=1).max() <= pairs.max())

    close(attacks.min_max(X, 1, direction), searched(X, direction, within_max))
    bounds: dict[Bound, Tensor] = {"max": pairs.square().sum(1).max(), "min": pairs.square().sum(1).min()}
    for bound, limit in bounds.items():
        found = searched(X, direction, lambda b, limit=limit: (b - X).square().sum() <= limit)
        close(attacks.min_sum(X, 1, direction, bound), found)


@pytest.mark.parametrize("attack", [attacks.min_max, attacks.min_sum])
def test_a_mean_of_zero_falls_back_to_std(attack: object) -> None:
    X = torch.tensor([[1.0, 2.0, 0.0], [-1.0, -2.0, 0.0]])
    for direction in ("unit", "sign"):
        assert torch.equal(attack(X, 2, direction), attack(X, 2, "std"))  # type: ignore[operator]
    found = attack(X, 2)[0]  # type: ignore[operator]
    assert found[2] == 0.0 and found.norm() > 1.0  # a coordinate with sigma = 0 stays at mu


@pytest.mark.parametrize("attack", [attacks.min_max, attacks.min_sum, attacks.alie])
@pytest.mark.parametrize("rows", [1, 4])
def test_identical_honest_updates_are_sent_unchanged(attack: object, rows: int) -> None:
    X = torch.tensor([[1.0, -2.0]]).repeat(rows, 1)
    close(attack(X, 2), X[0])  # type: ignore[operator]


def test_gaussian() -> None:
    """20,000 draws of standard deviation 2: standard errors .014 of the mean and .01 of the deviation."""
    own = np.full((20_000, 1), 5.0)
    noise = attacks.gaussian(own, 2.0, rng(0, "g"))
    assert noise.mean() == pytest.approx(0.0, abs=0.06) and noise.std() == pytest.approx(2.0, abs=0.04)
    assert np.allclose(attacks.gaussian(own, 2.0, rng(0, "g"), mode="add"), own + noise)
    assert (attacks.gaussian(own, 0.0, rng(0, "g"), mode="add") == own).all()


def test_free_rider() -> None:
    own = torch.ones(2, 3)
    assert attacks.free_rider(own).tolist() == [[0.0] * 3] * 2
    change = torch.tensor([1.0, 2.0, 3.0])
    assert attacks.free_rider(own, "replay", change=change).tolist() == [[1.0, 2.0, 3.0]] * 2
    assert attacks.free_rider(own, "replay").tolist() == [[0.0] * 3] * 2
    first, fourth = (attacks.free_rider(own, "disguised", std=2.0, round=t, rng=rng(0, "r")) for t in (1, 4))
    torch.testing.assert_close(first, fourth * 4)
    slower = attacks.free_rider(own, "disguised", std=2.0, decay=0.5, round=4, rng=rng(0, "r"))
    torch.testing.assert_close(first, slower * 2)


def test_non_finite() -> None:
    own = torch.ones(2, 5)
    assert attacks.non_finite(own).isnan().all()
    assert attacks.non_finite(own, "-inf").eq(-torch.inf).all()
    one = attacks.non_finite(own, "inf", "one")
    assert one.isinf().sum(1).tolist() == [1, 1] and own.isfinite().all()


def test_backdoor_scale() -> None:
    assert attacks.backdoor_scale(np.array([[1.0, -2.0]]), 10.0).tolist() == [[10.0, -20.0]]


def test_search_against_the_mean_takes_the_largest_factor() -> None:
    """|mean - mu| = f/n |b - mu| grows with the factor, so the search ends at its largest, 1024."""

    def defence(sent: Tensor) -> Tensor:
        return functional.mean(torch.cat([H, sent]))

    close(attacks.ipm(H, 1, aggregate=defence), -1024.0 * MU)
    close(attacks.alie(H, 1, aggregate=defence), MU - 1024.0 * SIGMA)
    assert torch.equal(attacks.ipm(H, 1, 0.1, aggregate=defence), attacks.ipm(H, 1, 0.1))


@pytest.mark.parametrize("limit", [0.3, 2.0, 7.0, 300.0])
def test_search_finds_the_largest_factor_that_the_defence_accepts(limit: float) -> None:
    """A defence that ignores updates longer than `limit` |mu|: the best epsilon is `limit`, found to 1/8 octave."""

    def defence(sent: np.ndarray) -> np.ndarray:
        far = np.linalg.norm(sent[0]) > limit * 1.25
        return np.asarray(MU) if far else sent.mean(0)

    sent = attacks.ipm(np.asarray(H), 2, aggregate=defence)
    assert sent.shape == (2, 2)
    assert 2 ** (-1 / 8) * limit <= np.linalg.norm(sent[0]) / 1.25 <= limit
