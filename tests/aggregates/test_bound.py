"""BR-DRAG's promise to the operator: for c <= 1/2 the step is never longer than the trusted update."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from dragfl import functional
from dragfl.aggregates import BRDrag
from dragfl.arithmetic import norm
from tests.aggregates.drive import run_rule
from tests.strategies import QUICK, seeds

SLACK = 1.0 + 1e-6
sizes = st.sampled_from([0.0, 1e-38, 1e-30, 1e-12, 1e-6, 1.0, 1e6, 1e19, 1e30, 1e38, 3e38])


def hostile(seed: int, size: list[float], d: int) -> torch.Tensor:
    """Rows whose largest number has the given size, in float32."""
    X = np.random.default_rng(seed).normal(size=(len(size), d))
    X *= np.array(size)[:, None] / np.abs(X).max(1, keepdims=True)
    return torch.from_numpy(X.astype(np.float32))


@QUICK
@given(seeds, st.lists(sizes, min_size=1, max_size=8), st.floats(0.0, 0.5), st.sampled_from([1, 2, 50, 9000]))
@example(0, [3e38, 3e38, 3e38], 0.5, 9000)
@example(0, [1e-38, 0.0], 0.5, 2)
def test_the_step_is_at_most_the_root_update(seed: int, size: list[float], c: float, d: int) -> None:
    """Whatever finite rows are sent; in the functional form, and as a class in both variants."""
    X, r = hostile(seed, size, d), torch.from_numpy(np.random.default_rng(seed + 1).normal(size=d).astype(np.float32))
    assert norm(functional.br_drag(X, r, c)) <= norm(r) * SLACK
    variants: tuple[Literal["paper", "authors"], ...] = ("paper", "authors")
    for variant in variants:
        step = run_rule(BRDrag(c=c, variant=variant), X, root=r, segments=(0, d) if d == 1 else (0, d // 2, d)).step
        assert norm(step) <= norm(r) * SLACK


@pytest.mark.parametrize("c", [0.0, 0.5])
def test_equal_numbers_are_no_way_around_the_bound(c: float) -> None:
    """Their norms carry the largest rounding error; the lengths are compared in float64."""
    d = 20_000
    for value in np.random.default_rng(0).uniform(0.5, 2.0, 30):
        X = torch.full((1, d), float(value))
        step = functional.br_drag(X, X[0] * 3.0, c).double()
        assert float(step.norm()) <= float((X[0] * 3.0).double().norm()) * SLACK


@QUICK
@given(seeds, st.lists(sizes, min_size=1, max_size=6), st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_rows_that_are_not_finite_change_nothing(seed: int, size: list[float], bad: float) -> None:
    X = hostile(seed, size, 20)
    r = torch.ones(20)
    spoilt = torch.cat([X, X[:1]])
    spoilt[-1, seed % 20] = bad
    step = functional.br_drag(spoilt, r, 0.5)
    torch.testing.assert_close(step, functional.br_drag(X, r, 0.5), rtol=1e-5, atol=1e-6)
    assert norm(step) <= norm(r) * SLACK


@pytest.mark.parametrize("c", [0.6, 0.75, 1.0])
def test_above_one_half_a_reversal_gets_longer(c: float) -> None:
    """At x = -1, lambda = 2c and v = (1 - 4c)(-r) with |v| = (4c - 1)|r|: the bound max(1, 4c - 1)|r| is met."""
    r = torch.tensor([3.0, 4.0])
    assert norm(functional.br_drag(-7.0 * r.unsqueeze(0), r, c)) == pytest.approx((4.0 * c - 1.0) * 5.0, rel=1e-6)
