"""The same rules written by others: agreement on random input and edge shapes, and every intended difference.

Differences, each with its test below:
- Krum and Multi-Krum add up n - f - 2 neighbours as the paper does, ByzFL n - f - 1 (`neighbours` makes them agree);
  they ask for n >= 2f + 3, ByzFL for n > 2f.
- Equal Krum scores: ours go to the lowest index, ByzFL's Multi-Krum leaves it to a partition.
- The number of vectors ARC clips is a whole division here, there a product of floats that can fall short by one.
- ByzFL's ARC writes into its argument; ours does not.
- ByzFL's geometric median leaves out rows with an infinity only and divides as if they were there; ours drops NaN too.
- MeaMed's ties go to the lowest index here; there to whatever a partition leaves first.
- CAF starts from a global generator there and returns None for f = 0: compared by its guarantee.
- MDA enumerates subsets there: compared for n <= 10.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dragfl import functional as fn
from tests.oracle import byzfl

SHAPES = [(3, 1), (4, 2), (5, 3), (7, 50), (10, 1000), (12, 8193), (25, 300), (26, 300), (40, 2000)]
shapes = pytest.mark.parametrize("shape", SHAPES, ids=str)
kinds = pytest.mark.parametrize("kind", ["numpy", "torch"])


def test_the_oracle_is_installed() -> None:
    assert byzfl is not None, "run: pip install --no-deps byzfl==0.0.11 (the Makefile does)"


def cohort(shape: tuple[int, int], kind: str, seed: int = 0) -> np.ndarray | torch.Tensor:
    """Honest updates around a common direction, and a few far from it."""
    draws = np.random.default_rng([seed, *shape])
    X = draws.normal(size=shape) + draws.normal(size=shape[1])
    X[draws.random(shape[0]) < 0.25] *= -5.0
    return X if kind == "numpy" else torch.from_numpy(X.astype(np.float32))


def agree(ours: np.ndarray | torch.Tensor, theirs: np.ndarray | torch.Tensor) -> None:
    assert type(ours) is type(theirs)
    tolerance = 1e-9 if isinstance(ours, np.ndarray) else 2e-4  # ByzFL's distances of torch input are float32
    np.testing.assert_allclose(np.asarray(ours), np.asarray(theirs), rtol=tolerance, atol=tolerance)


def tolerated(shape: tuple[int, int]) -> list[int]:
    return sorted({0, 1, (shape[0] - 1) // 2} & set(range((shape[0] - 1) // 2 + 1)))


@shapes
@kinds
def test_coordinates(shape: tuple[int, int], kind: str) -> None:
    X = cohort(shape, kind)
    agree(fn.median(X), byzfl.Median()(X))
    for f in tolerated(shape):
        agree(fn.trimmed_mean(X, f), byzfl.TrMean(f)(X))
        agree(fn.mea_med(X, f), byzfl.Meamed(f)(X))


@shapes
@kinds
@pytest.mark.parametrize("iterations", [1, 3, 8])
def test_geometric_median(shape: tuple[int, int], kind: str, iterations: int) -> None:
    X = cohort(shape, kind)
    agree(fn.geometric_median(X, 0.1, iterations), byzfl.GeometricMedian(0.1, iterations)(X))


@shapes
@kinds
def test_krum_with_byzfls_number_of_neighbours(shape: tuple[int, int], kind: str) -> None:
    n = shape[0]
    X = cohort(shape, kind)
    for f in range((n - 3) // 2 + 1):
        others = max(1, n - f - 1)
        agree(fn.krum(X, f, neighbours=others), byzfl.Krum(f)(X))
        agree(fn.multi_krum(X, f, neighbours=others), byzfl.MultiKrum(f)(X))


def test_krum_adds_up_one_neighbour_less() -> None:
    """So ByzFL's Krum with f + 1 chooses as ours with f, and with the same f they part now and then."""
    differ = 0
    for seed in range(50):
        Y = cohort((9, 4), "numpy", seed)
        np.testing.assert_array_equal(fn.krum(Y, 2), byzfl.Krum(3)(Y))  # type: ignore[type-var]
        differ += not np.array_equal(fn.krum(Y, 2), byzfl.Krum(2)(Y))  # type: ignore[arg-type, type-var]
    assert 0 < differ < 50


def test_krum_asks_for_more_updates() -> None:
    X = cohort((6, 4), "numpy")
    byzfl.Krum(2)(X)
    with pytest.raises(ValueError, match="krum: f=2 needs at least 7 updates, got 6"):
        fn.krum(X, 2)


@shapes
@kinds
def test_nearest_neighbour_mixing(shape: tuple[int, int], kind: str) -> None:
    X = cohort(shape, kind)
    for f in tolerated(shape):
        agree(fn.nnm(X, f), byzfl.NNM(f)(X))


@shapes
@kinds
def test_arc(shape: tuple[int, int], kind: str) -> None:
    X = cohort(shape, kind)
    for f in tolerated(shape):
        given = X.copy() if isinstance(X, np.ndarray) else X.clone()
        agree(fn.arc(X, f), byzfl.ARC(f)(given))


def test_arc_counts_in_whole_numbers() -> None:
    """2 * 33 * 209 / 242 = 57; as floats 2 * 33 / 242 * 209 is a little less than 57, of which ByzFL keeps 56."""
    X = np.asarray(cohort((242, 3), "numpy"))
    ours, theirs = fn.arc(X, 33), byzfl.ARC(33)(X.copy())
    assert (ours != X).any(1).sum() == 57
    assert (theirs != X).any(1).sum() == 56


def test_arc_leaves_its_argument_alone() -> None:
    X = np.asarray(cohort((10, 3), "numpy"))
    fn.arc(X, 2)
    np.testing.assert_array_equal(X, np.asarray(cohort((10, 3), "numpy")))
    byzfl.ARC(2)(X)
    assert not np.array_equal(X, np.asarray(cohort((10, 3), "numpy")))


@kinds
@pytest.mark.parametrize("shape", [(3, 2), (6, 5), (9, 3), (10, 40)], ids=str)
def test_minimum_diameter_averaging(shape: tuple[int, int], kind: str) -> None:
    X = cohort(shape, kind)
    for f in range((shape[0] - 1) // 2 + 1):
        agree(fn.mda(X, f), byzfl.MDA(f)(X))


@shapes
@kinds
def test_centered_clipping(shape: tuple[int, int], kind: str) -> None:
    X = cohort(shape, kind)
    centre = np.zeros(shape[1])
    zero = centre if kind == "numpy" else torch.from_numpy(centre).float()
    for iterations in (0, 1, 3):
        theirs = byzfl.CenteredClipping(L=iterations, tau=2.0)(X)
        agree(fn.centered_clipping(X, zero, 2.0, iterations), theirs)  # type: ignore[type-var]


@shapes
@kinds
def test_norm_clipping_is_the_mean_of_clipped_updates(shape: tuple[int, int], kind: str) -> None:
    X = cohort(shape, kind)
    given = X.copy() if isinstance(X, np.ndarray) else X.clone()
    agree(fn.norm_clipping(X, 1.5), byzfl.Average()(byzfl.Clipping(1.5)(given)))


@kinds
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_bucketing_has_the_same_buckets_up_to_the_draw(kind: str, size: int) -> None:
    """The rows are shuffled by different generators: the number of rows and their size-weighted sum agree."""
    X = cohort((10, 6), kind)
    ours, theirs = fn.bucketing(X, size, np.random.default_rng(0)), byzfl.Bucketing(size)(X)
    assert ours.shape == theirs.shape
    sizes = np.array([size] * (10 // size) + [10 % size] * bool(10 % size), float)
    for rows in (ours, theirs):
        np.testing.assert_allclose(sizes @ np.asarray(rows), np.asarray(X).sum(0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("f", [1, 2, 4])
def test_caf_by_its_guarantee(f: int) -> None:
    """|CAF - mean of the honest|^2 <= kappa max eigenvalue of their covariance, kappa = 6f/(n-2f) (1 + f/(n-2f))^2."""
    for seed in range(20):
        draws = np.random.default_rng(seed)
        honest = draws.normal(size=(12 - f, 6)) * draws.uniform(0.5, 2.0, 6)
        bad = draws.normal(size=(f, 6)) + draws.choice([0.0, 1.0, 10.0, 1e6]) * draws.normal(size=6)
        kappa = 6 * f / (12 - 2 * f) * (1 + f / (12 - 2 * f)) ** 2
        spread = np.linalg.eigvalsh(np.cov(honest.T, bias=True))[-1]
        step = fn.caf(np.concatenate([honest, bad]), f)
        assert ((step - honest.mean(0)) ** 2).sum() <= kappa * spread + 1e-9


def test_caf_without_malicious_updates_is_the_mean() -> None:
    X = cohort((8, 4), "numpy")
    np.testing.assert_allclose(fn.caf(X, 0), np.asarray(X).mean(0))  # type: ignore[type-var]
    assert byzfl.CAF(0)(X) is None


def test_rows_that_are_not_finite() -> None:
    X = np.asarray(cohort((8, 4), "numpy"))
    spoilt = np.concatenate([X, np.full((1, 4), np.nan)])
    np.testing.assert_allclose(fn.geometric_median(spoilt, 0.1, 3), byzfl.GeometricMedian()(X), rtol=1e-9)
    assert np.isnan(byzfl.GeometricMedian()(spoilt)).all()
