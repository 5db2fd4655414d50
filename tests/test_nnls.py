"""Non-negative least squares: equal to SciPy's, for dependent directions too, and row by row."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls as scipy_nnls

from dragfl.nnls import RIDGE, nnls
from tests.strategies import QUICK, seeds

Matrix = NDArray[np.float64]
kinds = st.sampled_from(["random", "near", "duplicated", "opposite", "stationary", "more than rank"])


def directions(kind: str, seed: int, K: int, d: int) -> Matrix:
    """(K, d) unit directions."""
    draws = np.random.default_rng(seed)
    U = draws.normal(size=(K, d))
    if kind == "near":  # at small angles to the first one
        U = U[0] + 1e-4 * U
    elif kind == "duplicated":
        U = np.concatenate([U, 3.0 * U])
    elif kind == "opposite":
        U = np.concatenate([U, -0.5 * U])
    elif kind == "stationary":  # 0 is in their convex hull
        U = np.concatenate([U, -U.sum(0, keepdims=True)])
    elif kind == "more than rank":
        U = U @ draws.normal(size=(d, 2)) @ draws.normal(size=(2, d))
    return U / np.linalg.norm(U, axis=1, keepdims=True)


def raised(G: Matrix) -> float:
    """What is added to the diagonal: the smallest eigenvalue becomes RIDGE, for directions of length 1."""
    return float(max(0.0, RIDGE - np.linalg.eigvalsh(G)[0]))


def expected(U: Matrix, Z: Matrix) -> Matrix:
    """SciPy's argmin |z - U^T a|^2 + lift |a|^2 for each row z."""
    lift = raised(U @ U.T)
    system = np.vstack([U.T, np.sqrt(lift) * np.eye(len(U))])
    return np.stack([scipy_nnls(system, np.concatenate([z, np.zeros(len(U))]))[0] for z in Z])


def solve(U: Matrix, Z: Matrix) -> Matrix:
    return nnls(torch.from_numpy(U @ U.T), torch.from_numpy(Z @ U.T)).numpy()


@QUICK
@given(kinds, seeds, st.integers(1, 12), st.integers(1, 20))
def test_equal_to_scipy(kind: str, seed: int, K: int, d: int) -> None:
    """The projection to 1e-6. So are the coefficients, except along a direction in which they do not matter."""
    U = directions(kind, seed, K, d)
    Z = np.random.default_rng(seed + 1).normal(size=(5, d))
    Z /= np.linalg.norm(Z, axis=1, keepdims=True)
    found, due = solve(U, Z), expected(U, Z)
    assert (found >= 0.0).all()
    np.testing.assert_allclose(found @ U, due @ U, atol=1e-6)
    if np.linalg.eigvalsh(U @ U.T)[0] > 1e-3:
        np.testing.assert_allclose(found, due, atol=1e-6)
        plain = np.stack([scipy_nnls(U.T, z)[0] for z in Z])
        np.testing.assert_allclose(found, plain, atol=1e-6)  # nothing was added to the diagonal


@QUICK
@given(kinds, seeds, st.integers(1, 12), st.integers(1, 20))
def test_the_conditions_of_the_minimum(kind: str, seed: int, K: int, d: int) -> None:
    """a >= 0, y = G a - b >= 0 and a y = 0, for any b, also one that is no product with the directions."""
    U = directions(kind, seed, K, d)
    G = U @ U.T
    b = np.random.default_rng(seed + 2).normal(size=(4, len(U)))
    a = nnls(torch.from_numpy(G), torch.from_numpy(b)).numpy()
    y = a @ (G + raised(G) * np.eye(len(G))) - b
    scale = 1.0 + np.abs(a).max()
    assert (a >= 0.0).all()
    assert (y >= -1e-8 * scale).all()
    assert np.abs(a * y).max() <= 1e-8 * scale**2


@QUICK
@given(kinds, seeds, st.integers(1, 12))
def test_many_right_hand_sides_at_once_equal_one_at_a_time(kind: str, seed: int, K: int) -> None:
    U = directions(kind, seed, K, 7)
    gram = torch.from_numpy(U @ U.T)
    b = torch.from_numpy(np.random.default_rng(seed + 3).normal(size=(9, len(U))))
    torch.testing.assert_close(nnls(gram, b), torch.cat([nnls(gram, row) for row in b.split(1)]), rtol=0.0, atol=1e-9)


@pytest.mark.parametrize("noise", [1e-8, 1e-7])
@pytest.mark.parametrize("kind", ["duplicated", "opposite", "stationary", "more than rank"])
def test_rounding_of_a_singular_matrix_does_no_harm(kind: str, noise: float) -> None:
    """Float32 dots give the matrix small or negative eigenvalues; the length of the projection is right to 1e-3."""
    U = directions(kind, 4, 10, 30)
    draws = np.random.default_rng(5)
    Z = draws.normal(size=(20, 30)) / np.sqrt(30)
    G = U @ U.T
    off = noise * draws.normal(size=G.shape)
    G, b = G + off + off.T, Z @ U.T
    np.fill_diagonal(G, 1.0)
    b += noise * draws.normal(size=b.shape)
    assert np.linalg.eigvalsh(G)[0] < 10.0 * noise
    a = nnls(torch.from_numpy(G), torch.from_numpy(b)).numpy()
    lengths = np.linalg.norm(expected(U, Z) @ U, axis=1)
    np.testing.assert_allclose(np.sqrt(np.maximum((a * b).sum(1), 0.0)), lengths, atol=1e-3)


def test_by_hand() -> None:
    """G = (1 1/2; 1/2 1).

    b = (1, 1): both free, a = (2/3, 2/3). b = (1, 0): free, a_2 = (0 - 1/2)/(3/4) < 0, so a = (1, 0). b = (-1, -2): 0.
    """
    gram = torch.tensor([[1.0, 0.5], [0.5, 1.0]], dtype=torch.float64)
    b = torch.tensor([[1.0, 1.0], [1.0, 0.0], [-1.0, -2.0]], dtype=torch.float64)
    due = torch.tensor([[2 / 3, 2 / 3], [1.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(nnls(gram, b), due)


def test_a_matrix_of_zeros_and_float32_input() -> None:
    assert nnls(torch.zeros(2, 2), torch.zeros(3, 2)).tolist() == [[0.0, 0.0]] * 3
    assert nnls(torch.eye(2), torch.tensor([[0.5, -0.5]])).dtype == torch.float64
