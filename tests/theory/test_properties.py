"""The exact properties P1 to P8 and P10 of the rules, against `dragfl.functional`."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dragfl import functional, theory

COSINE = st.floats(-1.0, 1.0)
C = st.floats(0.0, 1.0)
SIZE = st.floats(1e-3, 1e3)
SEED = st.integers(0, 2**32 - 1)


def update(x: float, size: float) -> tuple[np.ndarray, np.ndarray]:
    """(g with |g| = size at cosine x to r, r)."""
    return size * np.array([[x, np.sqrt(1 - x * x)]]), np.array([2.5, 0.0])


@given(COSINE, C, SIZE)
def test_the_formulas_are_those_of_drag(x: float, c: float, size: float) -> None:
    """P1, P2, P4 and the perturbation: the mean of one dragged update is that update."""
    g, r = update(x, size)
    v = functional.drag(g, r, c) / size
    close = {"abs": 2e-6}
    assert v[0] == pytest.approx(theory.progress(x, c), **close)
    assert np.linalg.norm(v) == pytest.approx(theory.length(x, c), **close)
    assert v[1] == pytest.approx(theory.sideways(x, c), **close)
    assert np.linalg.norm(v - g[0] / size) == pytest.approx(theory.perturbation(x, c), **close)


@given(COSINE, C, SIZE)
def test_the_formulas_are_those_of_br_drag(x: float, c: float, size: float) -> None:
    """The same with s = |r|, whatever |g|."""
    g, r = update(x, size)
    v = functional.br_drag(g, r, c) / 2.5
    assert v == pytest.approx([theory.progress(x, c), theory.sideways(x, c)], abs=2e-6)


@given(COSINE, C)
def test_progress_length_and_perturbation(x: float, c: float) -> None:
    assert theory.progress(x, c) >= x - 1e-12
    assert theory.length(x, c) <= 1 + 1e-12 if theory.divergence(x, c) <= 1 else theory.length(x, c) >= 1 - 1e-12
    assert theory.perturbation(x, c) <= 4 * c + 1e-12
    assert theory.progress(x, c) ** 2 + theory.sideways(x, c) ** 2 == pytest.approx(theory.length(x, c) ** 2)


def test_the_perturbation_of_a_reversed_update() -> None:
    """g = (-5, 0), r = (1, 0), c = 1/4: v = 0, so |v - g| = 5 = sqrt(2) c 2^(3/2) 5."""
    g, r = np.array([[-5.0, 0.0]]), np.array([1.0, 0.0])
    assert functional.drag(g, r, 0.25) == pytest.approx([0.0, 0.0])
    assert theory.perturbation(-1.0, 0.25) * 5 == pytest.approx(5.0)


@given(C)
def test_the_least_progress_is_the_minimum(c: float) -> None:
    """P3: by a grid over x, and attained at `worst_cosine`."""
    grid = min(theory.progress(x, c) for x in np.linspace(-1, 1, 2001).tolist())
    assert theory.least_progress(c) == pytest.approx(grid, abs=1e-6)
    assert theory.progress(theory.worst_cosine(c), c) == pytest.approx(theory.least_progress(c))


def test_a_quarter_is_where_nothing_pulls_back() -> None:
    """A reversed update is sent to 4c - 1: -0.6 at the paper's c = 0.1, 0 at 1/4, and exactly r at 1/2."""
    assert theory.least_progress(0.1) == pytest.approx(-0.6)
    assert theory.least_progress(0.2499) < 0 == theory.least_progress(0.25) < theory.least_progress(0.2501)
    assert (theory.progress(-1.0, 0.5), theory.sideways(-1.0, 0.5)) == (1.0, 0.0)
    assert theory.divergence(-1.0, 0.5) == 1.0  # so 1 - lambda < 0 needs c > 1/2


@given(SEED, C, SIZE)
def test_scaling_permuting_and_rotating_the_updates(seed: int, c: float, k: float) -> None:
    """P5, P6, P7: Delta(k g) = k Delta(g); BR-DRAG ignores lengths; order does not matter; Delta(Qg, Qr) = Q Delta."""
    draws = np.random.default_rng(seed)
    g, r, scales = draws.normal(size=(6, 5)), draws.normal(size=5), draws.uniform(0.1, 10, (6, 1))
    Q = np.linalg.qr(draws.normal(size=(5, 5)))[0]
    close = {"rtol": 1e-4, "atol": 1e-5}
    step = functional.drag(g, r, c)
    np.testing.assert_allclose(functional.drag(k * g, r, c), k * step, rtol=1e-4, atol=1e-5 * k)
    np.testing.assert_allclose(functional.drag(draws.permutation(g), 3 * r, c), step, **close)
    np.testing.assert_allclose(functional.drag(g @ Q.T, Q @ r, c), Q @ step, **close)
    np.testing.assert_allclose(functional.br_drag(scales * g, r, c), functional.br_drag(g, r, c), **close)


@pytest.mark.parametrize(
    ("clients", "c", "ratio"), [(40, 0.25, 2.121), (10, 0.25, 1.370), (20, 0.1, 1.270), (5, 0.1, 1.068)]
)
def test_orthogonal_updates_make_a_longer_step(clients: int, c: float, ratio: float) -> None:
    """P8 with g_m = e_m and r their mean."""
    g = np.eye(clients)
    step = functional.drag(g, g.mean(0), c)
    assert theory.step_amplification(clients, c) == pytest.approx(ratio, abs=5e-4)
    assert np.linalg.norm(step) / np.linalg.norm(g.mean(0)) == pytest.approx(ratio, abs=5e-4)


@given(SEED, C)
def test_the_step_where_the_updates_sum_to_zero(seed: int, c: float) -> None:
    """P10: <Delta, rhat> = c mean(|g| (1 - x)^2). By Jensen at least c mean |g|, as mean(|g| x) = 0."""
    draws = np.random.default_rng(seed)
    g, r = draws.normal(size=(6, 4)), draws.normal(size=4)
    g -= g.mean(0)
    norms, rhat = np.linalg.norm(g, axis=1), r / np.linalg.norm(r)
    expected = theory.residual_step(c, norms.tolist(), (g @ rhat / norms).tolist())
    assert functional.drag(g, r, c) @ rhat == pytest.approx(expected, abs=1e-5)
    assert expected >= c * norms.mean() - 1e-9
