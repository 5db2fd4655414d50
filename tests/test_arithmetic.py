"""Norms, dots and weighted sums against float64, for numbers of any size and rows of any length."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from dragfl.arithmetic import (
    PIECE,
    combine,
    cosines,
    cross_dots,
    dot,
    finite_rows,
    norm,
    row_dots,
    row_norms,
    unit,
)
from tests.strategies import QUICK, seeds

widths = st.sampled_from([1, 2, 7, PIECE - 1, PIECE, PIECE + 1, 20000])
sizes = st.sampled_from([0.0, 1e-6, 1e-3, 1.0, 1e3, 1e18, 1e20, 1e30, 1e38, 3e38])
FEWER = settings(max_examples=30, deadline=None)


def rows(seed: int, size: list[float], d: int, dtype: type = np.float32) -> Tensor:
    """Rows whose largest number has the given size."""
    X = np.random.default_rng(seed).normal(size=(len(size), d))
    X *= np.array(size)[:, None] / np.abs(X).max(1, keepdims=True)
    return torch.from_numpy(X.astype(dtype))


def true_norms(X: Tensor) -> NDArray[np.float64]:
    """Norms in float64, scaled so that no square overflows."""
    wide = X.double().numpy()
    top = np.maximum(np.abs(wide).max(1, keepdims=True), 1e-300)
    return np.asarray(top[:, 0] * np.sqrt(np.square(wide / top).sum(1)))


@FEWER
@given(seeds, st.lists(sizes, min_size=1, max_size=4), widths)
def test_norms_and_dots_against_float64(seed: int, size: list[float], d: int) -> None:
    X, v = rows(seed, size, d), rows(seed + 1, [1.0], d)[0]
    dots, expected = row_dots(X, v), true_norms(X)
    np.testing.assert_allclose(row_norms(X).numpy(), expected, rtol=1e-6)
    slack = 2e-6 * expected * norm(v) + 1e-30
    assert dots.dtype == torch.float64
    assert (np.abs(dots.numpy() - X.double().numpy() @ v.double().numpy()) <= slack).all()


@FEWER
@given(seeds, st.lists(sizes, min_size=1, max_size=4), st.lists(sizes, min_size=1, max_size=3), widths)
def test_cross_dots_against_float64(seed: int, size: list[float], other: list[float], d: int) -> None:
    """Rows of 1e30 on both sides overflow float32, and are right to the same relative error."""
    X, Y = rows(seed, size, d), rows(seed + 1, other, d)
    seen = cross_dots(X, Y)
    assert seen.dtype == torch.float64
    assert seen.shape == (len(X), len(Y))
    slack = 2e-6 * np.outer(true_norms(X), true_norms(Y)) + 1e-30
    assert (np.abs(seen.numpy() - X.double().numpy() @ Y.double().numpy().T) <= slack).all()
    for j, v in enumerate(Y):
        assert (np.abs(seen[:, j].numpy() - row_dots(X, v).numpy()) <= 2 * slack[:, j]).all()


def test_cross_dots_by_hand_with_rows_that_overflow_and_rows_that_are_not_finite() -> None:
    """(3e38, 3e38) . (2, 1) = 9e38 is beyond float32. A NaN stays in its own row and column."""
    big = float(np.float32(3e38))
    X = torch.tensor([[1.0, 2.0], [3e38, 3e38], [math.nan, 0.0]])
    seen = cross_dots(X, torch.tensor([[2.0, 1.0], [1.0, -1.0], [0.0, math.nan]]))
    assert seen[:2, :2].tolist() == [[4.0, -1.0], [3.0 * big, 0.0]]
    assert torch.isnan(seen[2]).all()
    assert torch.isnan(seen[:, 2]).all()


@FEWER
@given(seeds, st.lists(st.sampled_from([0.0, 1.0, 1e100, 1e160, 1e300]), min_size=1, max_size=4), widths)
def test_norms_of_float64_rows(seed: int, size: list[float], d: int) -> None:
    X = rows(seed, size, d, np.float64)
    np.testing.assert_allclose(row_norms(X).numpy(), true_norms(X), rtol=1e-12)


@QUICK
@given(
    seeds,
    st.lists(sizes, min_size=1, max_size=4),
    widths,
    st.lists(st.sampled_from([math.nan, math.inf, -math.inf, None]), min_size=4, max_size=4),
)
def test_a_norm_is_finite_exactly_where_its_row_is(
    seed: int, size: list[float], d: int, bad: list[float | None]
) -> None:
    X = rows(seed, size, d)
    for m, value in enumerate(bad[: len(X)]):
        if value is not None:
            X[m, seed % d] = value
    expected = torch.isfinite(X).all(1)
    assert torch.equal(finite_rows(row_norms(X)), expected)


@pytest.mark.parametrize("value", [1e308, 1.7e308])
def test_the_largest_float64_rows_are_finite(value: float) -> None:
    """Their norm may overflow float64; it is then the largest number, and not infinite."""
    X = torch.full((1, 9), value, dtype=torch.float64)
    assert finite_rows(row_norms(X)).tolist() == [True]
    X[0, 3] = math.inf
    assert finite_rows(row_norms(X)).tolist() == [False]


@pytest.mark.parametrize("d", [PIECE, 200_000])
def test_rounding_errors_do_not_accumulate(d: int) -> None:
    """Equal numbers are the worst case, since every addition rounds the same way: norm |a| sqrt d and dot a d.

    Updates are divided by their norm, so an attacker gains at most its error in length. A dot sums 8192 columns in
    float32; a kernel with 8 lanes makes 1024 additions in each, so the relative error is at most 1024 * 2^-24 = 6.1e-5
    (measured: 2.5e-5 with AVX2, below 1e-5 with AVX-512).
    """
    values = torch.from_numpy(np.random.default_rng(0).uniform(0.5, 2.0, 50).astype(np.float32))
    X = values.unsqueeze(1).repeat(1, d)
    torch.testing.assert_close(row_norms(X), values.double() * math.sqrt(d), rtol=8e-7, atol=0.0)
    torch.testing.assert_close(row_dots(X, torch.ones(d)), values.double() * d, rtol=6.2e-5, atol=0.0)
    assert norm(X[0]) == pytest.approx(float(values[0]) * math.sqrt(d), rel=8e-7)


@FEWER
@given(seeds, st.lists(sizes, min_size=1, max_size=5), st.integers(1, 3), st.sampled_from([1, 5, PIECE + 1]))
def test_combine_is_the_weighted_sum(seed: int, size: list[float], j: int, d: int) -> None:
    """Weights from 1e-3 to 1e3, and 1/|g| as the rules that normalise use it: 1e-38 against rows of 1e38."""
    X = rows(seed, size, d)
    draw = np.random.default_rng(seed + 2)
    weights = draw.normal(size=(j, len(X))) * 10.0 ** draw.uniform(-3, 0, (j, len(X)))
    weights /= np.maximum(true_norms(X), 1.0) if seed % 2 else np.maximum(np.array(size), 1e3)
    seen = combine(torch.from_numpy(weights), X)
    wide = X.double().numpy()
    assert seen.dtype == torch.float32
    assert seen.shape == (j, d)
    slack = 1e-6 * (np.abs(weights) @ np.abs(wide)) + 1e-37
    assert (np.abs(seen.double().numpy() - weights @ wide) <= slack).all()


def test_combine_keeps_the_dtype_and_digits_of_float64() -> None:
    X = torch.tensor([[1.0, 1e-14], [1e200, 0.0]], dtype=torch.float64)
    weights = torch.tensor([[1.0, 1e-200]], dtype=torch.float64)
    assert combine(weights, X).tolist() == [[2.0, 1e-14]]


def test_one_extreme_weight_does_not_change_the_other_rows() -> None:
    X = torch.tensor([[3e38, -3e38], [1.0, 2.0]])
    weights = torch.tensor([[1e-38, 1.0], [0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(combine(weights, X), torch.tensor([[4.0, -1.0], [1.0, 2.0]]))


def test_combine_does_not_change_its_arguments() -> None:
    X = torch.tensor([[3e38, 1.0], [0.0, 2.0]])
    weights = torch.tensor([[1e-38, 0.0]], dtype=torch.float64)
    copies = X.clone(), weights.clone()
    combine(weights, X)
    assert torch.equal(X, copies[0])
    assert torch.equal(weights, copies[1])


def test_unit_vectors_of_large_small_and_zero_vectors() -> None:
    """(3,4)/5; the directions of very large and of small vectors; None for a zero or non-finite vector."""
    torch.testing.assert_close(unit(torch.tensor([3.0, 4.0])), torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(unit(torch.tensor([3e38, -3e38])), torch.tensor([0.5**0.5, -(0.5**0.5)]))
    torch.testing.assert_close(unit(torch.tensor([1e-10])), torch.tensor([1.0]))
    for values in ([0.0], [1e-13], [math.nan], [math.inf, 1.0]):
        assert unit(torch.tensor(values)) is None


def test_cosines_are_clamped_and_a_zero_row_has_cosine_one() -> None:
    norms, dots = torch.tensor([2.0, 1.0, 1.0, 0.0, 1e-13]), torch.tensor([1.0, 1.0000001, -1.0000001, 0.0, 1e-14])
    assert cosines(norms.double(), dots.double()).tolist() == [0.5, 1.0, -1.0, 1.0, 1.0]


def test_norm_and_dot_of_one_vector() -> None:
    assert norm(torch.tensor([3.0, 4.0])) == 5.0
    assert dot(torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])) == 11.0
