"""The one-shot forms of the robust rules: kinds, dtypes, layouts, rows that are not finite, and refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dragfl import functional as fn
from dragfl.errors import SpecError
from tests.functional.robust_forms import FORMS, ROWS, STEPS

every = pytest.mark.parametrize("name", FORMS)
each_step = pytest.mark.parametrize("name", STEPS)


def cohort(n: int = 7, d: int = 5, dtype: str = "float32") -> np.ndarray:
    draws = np.random.default_rng(3)
    return (draws.normal(size=(n, d)) + draws.normal(size=d)).astype(dtype)


@every
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_kind_and_dtype_come_out(name: str, dtype: str) -> None:
    array = cohort(dtype=dtype)
    out, other = FORMS[name](array), FORMS[name](torch.from_numpy(array))
    assert isinstance(out, np.ndarray)
    assert isinstance(other, torch.Tensor)
    assert out.dtype == dtype
    assert str(other.dtype) == f"torch.{dtype}"
    assert out.shape[-1] == 5
    assert out.ndim == (2 if name in ROWS else 1)
    np.testing.assert_array_equal(out, other.numpy())


@every
def test_float32_agrees_with_float64(name: str) -> None:
    np.testing.assert_allclose(FORMS[name](cohort()), FORMS[name](cohort().astype(np.float64)), rtol=1e-5, atol=1e-6)


@every
def test_arguments_are_not_changed_and_not_returned(name: str) -> None:
    updates = torch.from_numpy(cohort())
    out = FORMS[name](updates)
    out += 1.0
    np.testing.assert_array_equal(updates.numpy(), cohort())


@every
def test_any_layout_of_memory_gives_the_same(name: str) -> None:
    """Rows or columns backwards, other byte order, read-only, column by column, with gaps, with a gradient."""
    array, due = cohort(), FORMS[name](cohort())
    wide = np.zeros((7, 10), np.float32)
    wide[:, ::2] = array
    locked = array.copy()
    locked.flags.writeable = False
    layouts = {
        "rows backwards": np.ascontiguousarray(array[::-1])[::-1],
        "columns backwards": np.ascontiguousarray(array[:, ::-1])[:, ::-1],
        "big endian": array.astype(">f4"),
        "read-only": locked,
        "by columns": np.asfortranarray(array),
        "strided": wide[:, ::2],
    }
    for layout, given in layouts.items():
        np.testing.assert_allclose(FORMS[name](given), due, rtol=1e-6, atol=1e-7, err_msg=layout)
    learnt = torch.from_numpy(array).t().contiguous().t().requires_grad_()
    if name != "centered_clipping":  # whose centre the form above makes with numpy
        np.testing.assert_allclose(FORMS[name](learnt).numpy(), due, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (
            np.array([[1.0, None]], dtype=object),
            r"median: updates are numpy object; convert them to float32 or float64",
        ),
        (np.array([["a", "b"]]), r"median: updates are numpy <U1"),
        (np.ones((2, 2), np.complex64), r"median: updates are numpy complex64"),
        (np.ones((2, 2), np.longdouble), r"median: updates are (numpy|torch)"),
        (np.ones((2, 2), bool), r"median: updates are torch.bool"),
        (np.ones((2, 2), ">i4"), r"median: updates are torch.int32"),
        (np.array("2020-01-01", dtype="datetime64[D]"), r"median: updates are numpy datetime64"),
    ],
)
def test_arrays_that_hold_no_floats_are_refused(updates: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        fn.median(updates)


def test_a_center_may_lie_in_memory_in_any_way() -> None:
    due = fn.centered_clipping(cohort(), np.arange(5, dtype=np.float32), 1.0)
    backwards = np.arange(5, dtype=">f8")[::-1].copy()[::-1]
    np.testing.assert_allclose(fn.centered_clipping(cohort(), backwards, 1.0), due, rtol=1e-6)
    with pytest.raises(SpecError, match="centered_clipping: center are numpy object"):
        fn.centered_clipping(cohort(), np.array([None] * 5), 1.0)


@every
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_rows_that_are_not_finite_are_left_out(name: str, bad: float) -> None:
    """Seven good rows and one bad one; f is lowered by one, so the seven are taken with f = 0."""
    with_f_zero: dict[str, Callable[[Any], Any]] = {
        "trimmed_mean": lambda X: fn.trimmed_mean(X, 0),
        "mea_med": lambda X: fn.mea_med(X, 0),
        "krum": lambda X: fn.krum(X, 0),
        "multi_krum": lambda X: fn.multi_krum(X, 0),
        "bulyan": lambda X: fn.bulyan(X, 0),
        "mda": lambda X: fn.mda(X, 0),
        "caf": lambda X: fn.caf(X, 0),
        "dnc": lambda X: fn.dnc(X, 0, np.random.default_rng(1)),
        "nnm": lambda X: fn.nnm(X, 0),
        "arc": lambda X: fn.arc(X, 0),
    }
    spoilt = np.insert(cohort(), 2, 1.0, axis=0)
    spoilt[2, 3] = bad
    due = with_f_zero.get(name, FORMS[name])(cohort())
    np.testing.assert_allclose(FORMS[name](spoilt), due, rtol=1e-6, atol=1e-7)


@each_step
def test_without_a_finite_row_the_step_is_zero(name: str) -> None:
    assert FORMS[name](np.full((7, 2), np.nan)).tolist() == [0.0, 0.0]


@pytest.mark.parametrize("name", ROWS)
def test_without_a_finite_row_there_are_no_rows(name: str) -> None:
    assert FORMS[name](np.full((7, 2), np.nan)).shape == (0, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda X: fn.krum(X, 4), r"krum: f=4 needs at least 11 updates, got 10; lower f or give more updates"),
        (lambda X: fn.multi_krum(X, 4), r"multi_krum: f=4 needs at least 11 updates, got 10"),
        (lambda X: fn.bulyan(X, 2), r"bulyan: f=2 needs at least 11 updates, got 10"),
        (lambda X: fn.trimmed_mean(X, 5), r"trimmed_mean: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.mea_med(X, 5), r"mea_med: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.mda(X, 5), r"mda: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.caf(X, 5), r"caf: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.dnc(X, 5), r"dnc: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.nnm(X, 5), r"nnm: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.arc(X, 5), r"arc: f=5 needs at least 11 updates, got 10"),
        (lambda X: fn.krum(X[:2], 0), r"krum: f=0 needs at least 3 updates, got 2"),
        (lambda X: fn.krum(X, -1), r"krum.f: -1; give a whole number of at least 0"),
        (lambda X: fn.krum(X, 1.5), r"krum.f: 1.5; give a whole number"),
        (lambda X: fn.krum(X, True), r"krum.f: True; give a whole number"),
        (lambda X: fn.krum(X, None), r"krum: f is None; give the number of updates assumed to be malicious"),
        (lambda X: fn.multi_krum(X, 1, m=0), r"multi_krum.m: 0; give a whole number of at least 1"),
        (lambda X: fn.bucketing(X, 0), r"bucketing.size: 0; give a whole number of at least 1"),
        (lambda X: fn.norm_clipping(X, -1.0), r"norm_clipping.radius: -1.0 is outside"),
        (lambda X: fn.centered_clipping(X, X[0], 1.0, -1), r"centered_clipping.iterations: -1"),
        (lambda X: fn.centered_clipping(X, X[0, :1], 1.0), r"centered_clipping: center is \(1,\)"),
        (lambda X: fn.geometric_median(X, nu=0.0), r"geometric_median.nu: 0.0 is outside"),
        (lambda X: fn.bulyan(X, 1, "own"), r"bulyan.theta: 'own' is unknown"),
        (lambda X: fn.fools_gold(X, X[:3]), r"fools_gold: history is \(3, 5\) and the updates are \(10, 5\)"),
        (lambda X: fn.flame(X, epsilon=0.0), r"flame.epsilon: 0.0; give a number above 0, or inf"),
    ],
)
def test_what_cannot_be_is_refused_with_the_numbers(call: Callable[[Any], Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        call(cohort(10))


def test_too_few_rows_after_those_that_are_not_finite() -> None:
    """Ten of eleven are finite: f = 4 becomes 3, for which nine are enough; of five with f = 1, two are too few."""
    spoilt = cohort(11)
    spoilt[0] = np.nan
    np.testing.assert_allclose(fn.krum(spoilt, 4), fn.krum(spoilt[1:], 3))
    few = cohort(5)
    few[:3] = np.inf
    with pytest.raises(SpecError, match=r"krum: f=0 needs at least 3 updates, got 2 \(3 more could not be used\)"):
        fn.krum(few, 1)


def test_draws_are_those_of_the_generator() -> None:
    X = cohort(20, 400)
    for form in (
        lambda rng: fn.bucketing(X, 3, rng),
        lambda rng: fn.flame(X, rng),
        lambda rng: fn.dnc(X, 3, rng, coordinates=5, iterations=1),
    ):
        same = [form(np.random.default_rng(1)) for _ in range(2)]
        np.testing.assert_array_equal(*same)
        assert not np.array_equal(form(np.random.default_rng(2)), same[0])
        np.testing.assert_array_equal(form(None), form(None))
