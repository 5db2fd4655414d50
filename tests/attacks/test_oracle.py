"""Attacks against ByzFL's, over random inputs and edge shapes; each intended difference is written down and tested.

| ByzFL | here | difference |
|---|---|---|
| all | | ByzFL returns one (d,) vector; here (f, d), a row for each attacker. It takes tensors as float32 |
| SignFlipping | sign_flip | -mean(honest), which an attacker would have to know; here each reverses its own update |
| InnerProductManipulation(tau) | ipm(epsilon) | tau = 2 by default, and must be a float; 0.1 and any number here |
| ALittleIsEnough(tau) | alie(z, side="above") | mu + tau sigma, tau = 1.5; here mu - z sigma, z by the formula |
| Optimal_* | aggregate=... | expansion without limit from 0, then upwards only; here factors up to 1024, both ways |
| Mimic(epsilon) | mimic(row) | copies a row by its number; the object here learns whom to copy |
| Inf | non_finite("inf") | float64 whatever comes in; here the dtype that comes in |
| Gaussian | gaussian | draws from numpy's global generator; here from the one that is given |
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from dragfl import attacks
from dragfl.rng import rng
from tests.oracle import byzfl

pytestmark = pytest.mark.skipif(byzfl is None, reason="pip install --no-deps byzfl==0.0.11")
SHAPES = [(1, 1), (1, 7), (2, 1), (3, 5), (17, 40)]


def honest(shape: tuple[int, int], seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return scale * (rng(seed, "oracle", *shape).normal(size=shape) + 0.2)


def same(found: Any, expected: Any, scale: float) -> None:
    """Two rows, each what ByzFL gives; it takes tensors as float32."""
    assert found.shape == (2, len(expected)) and type(found) is type(expected)
    atol = 1e-6 * scale if isinstance(found, torch.Tensor) else 1e-12 * scale
    for row in np.asarray(found):
        np.testing.assert_allclose(row, np.asarray(expected), rtol=0, atol=atol)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_same_updates_are_sent(shape: tuple[int, int], kind: Any, scale: float) -> None:
    """Given the same (h, d), as arrays and as tensors, small and large."""
    theirs = byzfl
    H = kind(honest(shape, scale=scale))
    mean = kind(np.tile(np.asarray(H).mean(0), (2, 1)))
    same(attacks.sign_flip(mean), theirs.SignFlipping()(H), scale)
    for tau in (0.1, 2.0, 10.0):
        same(attacks.ipm(H, 2, tau), theirs.InnerProductManipulation(tau)(H), 10 * scale)
    for row in range(len(H)):
        same(attacks.mimic(H, 2, row=row), theirs.Mimic(row)(H), scale)
    for tau in (0.0, 1.5) if len(H) > 1 else ():  # of one update: test_alie_of_one
        same(attacks.alie(H, 2, tau, side="above"), theirs.ALittleIsEnough(tau)(H), 10 * scale)


@pytest.mark.parametrize("shape", SHAPES)
def test_infinities(shape: tuple[int, int]) -> None:
    for H in (honest(shape), torch.from_numpy(honest(shape))):
        assert (attacks.non_finite(H, "inf")[0] == byzfl.Inf()(H)).all()


@pytest.mark.filterwarnings("ignore")
def test_alie_of_one() -> None:
    H = honest((1, 4))
    assert np.isnan(byzfl.ALittleIsEnough()(H)).all()
    assert (attacks.alie(H, 2, 1.5) == H).all()


def test_the_sign_of_alie_is_the_other_one() -> None:
    H = honest((6, 4))
    theirs, ours = byzfl.ALittleIsEnough(1.5)(H), attacks.alie(H, 1, 1.5)[0]
    np.testing.assert_allclose(theirs + ours, 2 * H.mean(0))


def test_sign_flip_needs_no_knowledge_here() -> None:
    H = honest((3, 4))
    assert (attacks.sign_flip(H) == -H).all()


def test_inf_keeps_its_dtype_here() -> None:
    H = honest((2, 3)).astype(np.float32)
    assert byzfl.Inf()(H).dtype == np.float64
    assert attacks.non_finite(H, "inf").dtype == np.float32


def test_gaussian_has_the_same_law() -> None:
    """20,000 numbers of each: means within 4 standard errors of 0, deviations within 4 of 3."""
    H = np.zeros((1, 20_000))
    for found in (byzfl.Gaussian(0.0, 3.0)(H), attacks.gaussian(H, 3.0, rng(0, "g"))[0]):
        assert abs(found.mean()) < 4 * 3 / 20_000**0.5
        assert abs(found.std() - 3.0) < 4 * 3 / 40_000**0.5


@pytest.mark.parametrize("rule", ["TrMean", "Median", "Krum", "GeometricMedian"])
@pytest.mark.parametrize("name", ["ipm", "alie"])
@pytest.mark.parametrize("seed", range(3))
def test_searched_factors_do_at_least_the_same_damage(rule: str, name: str, seed: int) -> None:
    """Against ByzFL's own rules, with as many evaluations: |step - mu| is at least what its search finds, within 1 %.

    Where the damage still grows beyond 1024 (no rule here) its search would go on for ever and ours would not.
    """
    H, f = honest((11, 8), seed), 3
    rules = byzfl
    agg = {"TrMean": lambda: rules.TrMean(f), "Median": rules.Median, "Krum": lambda: rules.Krum(f)}.get(
        rule, rules.GeometricMedian
    )()

    def step(sent: np.ndarray) -> np.ndarray:
        found: np.ndarray = agg(np.concatenate([H, sent]))
        return found

    theirs = {"ipm": "Optimal_InnerProductManipulation", "alie": "Optimal_ALittleIsEnough"}[name]
    best = getattr(byzfl, theirs)(agg=agg, pre_agg_list=[], f=f, evals=24)(H)
    ours = attacks.ipm(H, f, aggregate=step) if name == "ipm" else attacks.alie(H, f, side="above", aggregate=step)

    def damage(sent: np.ndarray) -> float:
        return float(np.linalg.norm(step(sent) - H.mean(0)))

    assert damage(ours) >= 0.99 * damage(np.tile(best, (f, 1)))
