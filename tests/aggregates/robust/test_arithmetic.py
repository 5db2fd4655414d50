"""Dots, distances, blends and order statistics against plain float64 NumPy, and the memory they take."""

from __future__ import annotations

import subprocess
import sys
from itertools import combinations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dragfl import functional as fn
from dragfl.aggregates.robust import mda
from dragfl.aggregates.robust.coordinate_wise import mean_around_median
from dragfl.aggregates.robust.gram import Gram, blend, dots
from dragfl.aggregates.robust.mda import tightest
from dragfl.aggregates.robust.ordering import UNREAD, each_column, network
from dragfl.arithmetic import row_norms
from dragfl.errors import SpecError
from tests.conftest import TIMEOUT_S

QUICK = settings(max_examples=60, deadline=None)


def gram(X: torch.Tensor) -> Gram:
    return Gram(X, row_norms(X))


def squared(X: np.ndarray) -> np.ndarray:
    return ((X[:, None].astype(np.float64) - X[None]) ** 2).sum(2)


@pytest.mark.parametrize("d", [1, 7, 8192, 8193, 20_000])
def test_dots_and_distances(d: int) -> None:
    X = np.random.default_rng(d).normal(size=(6, d)).astype(np.float32)
    np.testing.assert_allclose(dots(torch.from_numpy(X)), X.astype(np.float64) @ X.T.astype(np.float64), rtol=1e-12)
    np.testing.assert_allclose(gram(torch.from_numpy(X)).squared, squared(X), rtol=1e-10)


def test_one_row_of_1e30_does_not_blur_the_distances_between_the_others() -> None:
    X = np.random.default_rng(0).normal(size=(6, 50)).astype(np.float32)
    X[3] = 1e30
    seen = gram(torch.from_numpy(X)).squared.numpy()
    others = [0, 1, 2, 4, 5]
    np.testing.assert_allclose(seen[np.ix_(others, others)], squared(X[others]), rtol=1e-12)


def test_rows_that_nearly_coincide_far_from_zero() -> None:
    """A common part of 1e6 with differences around 1e-3, in float64: measured from one of the rows, not from zero."""
    draws = np.random.default_rng(0)
    X = 1e6 + 1e-3 * draws.normal(size=(5, 30))
    X[4] = X[1]
    seen = gram(torch.from_numpy(X)).squared.numpy()
    np.testing.assert_allclose(seen, squared(X), rtol=1e-6)
    assert seen[4, 1] == seen[1, 4] == 0.0


@QUICK
@given(hnp.arrays(np.float64, (6, 3), elements=st.floats(-100, 100)), st.integers(0, 99))
def test_distances_of_mixed_rows(X: np.ndarray, seed: int) -> None:
    """Of two pre-aggregators one after the other, from the one matrix of dots."""
    draws = np.random.default_rng(seed)
    P, Q = draws.random((6, 6)), draws.random((4, 6))
    P /= P.sum(1, keepdims=True)
    mixed = gram(torch.from_numpy(X)).mixed(torch.from_numpy(P)).mixed(torch.from_numpy(Q))
    Y = Q @ P @ X
    np.testing.assert_allclose(mixed.squared, squared(Y), atol=1e-8)
    assert torch.equal(mixed.squared, mixed.squared.T)
    w = draws.random(4)
    w /= w.sum()
    np.testing.assert_allclose(mixed.distances(torch.from_numpy(w)), np.linalg.norm(Y - w @ Y, axis=1), atol=1e-4)
    np.testing.assert_allclose(mixed.sample(np.array([2, 0])), Y[:, [2, 0]], atol=1e-9)


def test_blend_where_float32_would_fail() -> None:
    X = torch.tensor([[3e38, 1.0], [3e38, 1.0], [1.0, 1e-30]])
    W = torch.tensor([[0.5, 0.5, 0.0], [1e-38, 0.0, 1.0]], dtype=torch.float64)
    torch.testing.assert_close(blend(W, X, 3e38), torch.tensor([[3e38, 1.0], [4.0, 1e-30]]))


@QUICK
@given(st.integers(1, 24), st.data())
def test_networks_put_every_rank_into_its_class(n: int, data: st.DataObject) -> None:
    classes = data.draw(st.lists(st.integers(-1, 3), min_size=n, max_size=n))
    X = np.random.default_rng(n).normal(size=(n, 50)).astype(np.float32)

    def check(xp: object, rows: list[np.ndarray], piece: torch.Tensor) -> np.ndarray:
        ranked = np.sort(piece.numpy(), axis=0)
        for kind in set(classes) - {UNREAD}:
            mine = [i for i in range(n) if classes[i] == kind]
            seen = np.sort(np.stack([rows[i] for i in mine]), axis=0)
            np.testing.assert_array_equal(seen, ranked[mine])
        return np.zeros(piece.shape[1], np.float32)

    each_column(torch.from_numpy(X), classes, check)
    np.testing.assert_array_equal(X, np.random.default_rng(n).normal(size=(n, 50)).astype(np.float32))


def test_unread_values_are_not_computed() -> None:
    full, median = network(tuple(range(40))), network(tuple(0 if i in (19, 20) else UNREAD for i in range(40)))
    assert len(network((0,) * 40)) == 0
    assert sum(low + high for *_, low, high in median) < 0.8 * 2 * len(full)


@QUICK
@given(
    hnp.arrays(np.int64, st.tuples(st.integers(1, 9), st.integers(1, 5)), elements=st.integers(-32, 32)),
    st.data(),
)
def test_order_statistics_against_sorting(eighths: np.ndarray, data: st.DataObject) -> None:
    """Multiples of 1/8: ties are common, and float32 holds every middle of two numbers, so that a tie is one."""
    X = eighths.astype(np.float32) / 8
    n = len(X)
    np.testing.assert_array_equal(fn.median(X), np.median(X, axis=0))
    f = data.draw(st.integers(0, (n - 1) // 2))
    ranked = np.sort(X, axis=0)[f : n - f]
    np.testing.assert_allclose(fn.trimmed_mean(X, f), ranked.mean(0), rtol=1e-5, atol=1e-6)
    keep = data.draw(st.integers(1, n))
    away = np.abs(X.astype(np.float64) - np.median(X.astype(np.float64), axis=0))
    nearest = np.argsort(away, axis=0, kind="stable")[:keep]
    due = np.take_along_axis(X, nearest, 0).mean(0)
    np.testing.assert_allclose(mean_around_median(torch.from_numpy(X), keep), due, rtol=1e-5, atol=1e-6)


@settings(max_examples=80, deadline=None)
@given(st.integers(2, 9), st.integers(1, 3), st.integers(0, 10_000))
def test_tightest_subset_against_all_subsets(n: int, levels: int, seed: int) -> None:
    """Few distinct distances, so that ties are common: of equal diameters the first subset in order."""
    draws = np.random.default_rng(seed)
    D = draws.integers(0, 2**levels, (n, n)).astype(float)
    D = np.triu(D, 1) + np.triu(D, 1).T
    for f in range((n - 1) // 2 + 1):
        subsets = list(combinations(range(n), n - f))
        diameters = [max((D[i, k] for i in s for k in s), default=0.0) for s in subsets]
        assert tuple(tightest(D, f)) == subsets[int(np.argmin(diameters))]


def test_the_search_for_the_tightest_subset_gives_up_with_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mda, "LIMIT", 50)
    X = np.random.default_rng(0).normal(size=(24, 3))
    with pytest.raises(SpecError, match="mda: n=24, f=11 took more than 50 branchings; lower f"):
        fn.mda(X, 11)


def test_forty_updates_and_nineteen_assumed_attackers_are_searched_at_once() -> None:
    X = np.random.default_rng(0).normal(size=(40, 3))
    X[:19] += 50.0
    np.testing.assert_allclose(fn.mda(X, 19), X[19:].mean(0), rtol=1e-9)


PEAK = """
import os, resource, torch
from dragfl import functional as fn
torch.set_num_threads(1)
X = torch.randn(20, 1_000_000)
small = X[:, :9000].clone()
rules = dict(median=fn.median, krum=lambda X: fn.krum(X, 4), mea_med=lambda X: fn.mea_med(X, 4),
    bulyan=lambda X: fn.bulyan(X, 4), geometric_median=fn.geometric_median, nnm=lambda X: fn.nnm(X, 4))
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for name, rule in rules.items():
    if os.fork() == 0:
        rule(small)
        before = peak()
        rule(X)
        print(name, (peak() - before) * 1024 / X.nbytes, flush=True)
        os._exit(0)
    assert os.wait()[1] == 0, name
"""


def test_no_more_extra_memory_than_the_input() -> None:
    """Each rule in its own fork of one process: a peak cannot be reset."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=TIMEOUT_S)
    assert done.returncode == 0, done.stderr
    extra = {name: float(share) for name, share in map(str.split, done.stdout.splitlines())}
    assert extra.keys() == {"median", "krum", "mea_med", "bulyan", "geometric_median", "nnm"}
    assert extra.pop("nnm") <= 1.05  # what NNM makes is itself as large as the input
    assert max(extra.values()) <= 0.5, extra
