"""Numbers that can be checked by hand: four honest points and one far away, X = (1,0), (1,1), (0,1), (1,2), (10,-10).

Squared distances among the first four: 1, 2, 4 / 1, 2 -> (1,1) is 1 from (1,0), (0,1) and (1,2); (1,0)-(0,1) 2;
(1,0)-(1,2) 4; (0,1)-(1,2) 2. Krum's scores with n - f - 2 = 2 neighbours: 1+2, 1+1, 1+2, 1+2, and 181+202 for the
fifth, whose nearest are (1,0) at 9^2 + 10^2 = 181 and (1,1) at 81 + 121 = 202.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dragfl import functional as fn
from dragfl.aggregates.robust import ROBUST
from dragfl.aggregates.robust.flame import cosine_distances
from dragfl.aggregates.robust.gram import Gram
from dragfl.aggregates.robust.krum import krum_scores
from dragfl.algorithms import chain
from dragfl.arithmetic import row_norms
from dragfl.errors import SpecError
from tests.aggregates.drive import run_rule

X = torch.tensor([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [1.0, 2.0], [10.0, -10.0]])


def close(seen: torch.Tensor, due: list[float], tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(seen.numpy(), due, atol=tolerance, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_steps(dtype: torch.dtype) -> None:
    x = X.to(dtype)
    close(fn.mean(x), [2.6, -1.2])
    close(fn.median(x), [1.0, 1.0])
    close(fn.trimmed_mean(x, 1), [1.0, 2.0 / 3.0])
    close(fn.krum(x, 1), [1.0, 1.0])
    close(fn.multi_krum(x, 1, m=4), [0.75, 1.0])
    close(fn.multi_krum(x, 1), [0.75, 1.0])
    close(fn.mda(x, 1), [0.75, 1.0])
    close(fn.geometric_median(x, nu=0.1, iterations=1), [0.887256, 0.587414])
    close(fn.geometric_median(x), [1.0, 1.0], 1e-4)


def test_krum_scores_and_those_of_byzfl() -> None:
    squared = Gram(X, row_norms(X)).squared
    assert krum_scores(squared, 2).tolist() == [3.0, 2.0, 3.0, 3.0, 383.0]
    assert krum_scores(squared, 3).tolist() == [7.0, 3.0, 5.0, 7.0, 604.0]
    assert run_rule(ROBUST["krum"](f=1), X).partial.per_client["suspicion"].tolist() == [3.0, 2.0, 3.0, 3.0, 383.0]


def test_nearest_neighbour_mixing() -> None:
    mixed = fn.nnm(X, 1)
    close(mixed, [[0.75, 1.0]] * 4 + [[3.0, -2.0]])  # type: ignore[list-item]
    close(fn.trimmed_mean(mixed, 1), [0.75, 1.0])
    close(fn.median(mixed), [0.75, 1.0])
    close(run_rule(chain("nnm", "trimmed_mean", f=1), X).step, [0.75, 1.0])
    close(run_rule(chain("nnm", "median", f=1), X).step, [0.75, 1.0])


def test_arc_clips_one_vector_to_the_next_longest() -> None:
    """floor(2 * 1 * 4 / 5) = 1; the next longest is (1, 2) with length sqrt(5)."""
    norms = fn.arc(X, 1).norm(dim=1)
    close(norms, [1.0, 2.0**0.5, 1.0, 5.0**0.5, 2.236068])
    assert torch.equal(fn.arc(X, 1)[:4], X[:4])


def test_mean_around_the_median() -> None:
    """First coordinate: median 1, nearest four are 1, 1, 1, 0. Second: median 1; 1, 1 and, at distance 1, 0 and 2."""
    close(fn.mea_med(X, 1), [0.75, 1.0])


def test_ties_go_to_the_lowest_index() -> None:
    """0..4 with f = 1: median 2, and 0 and 4 are equally far. The one in the earlier row is kept."""
    up = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0]])
    assert fn.mea_med(up, 1).tolist() == [1.5]
    assert fn.mea_med(up.flip(0), 1).tolist() == [2.5]
    assert fn.krum(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), 0).tolist() == [1.0]  # scores 5, 2, 2, 5
    assert fn.mda(torch.tensor([[0.0], [2.0], [1.0], [3.0], [4.0]]), 1).tolist() == [1.5]  # 0..3, not 1..4
    assert fn.multi_krum(torch.tensor([[0.0], [1.0], [2.0], [3.0]]), 0, m=3).tolist() == [1.0]


def test_bulyan_by_hand() -> None:
    """Points 0, 1, 2, 3, 4, 5, 100 on a line, f = 1: theta = 5, and theta - 2f = 3 values are averaged.

    Krum with 7 - 1 - 2 = 4 neighbours: 2 wins (1+1+4+4 = 10, as 3 with 1+1+4+4; the lower index). Left 0, 1, 3, 4, 5,
    100 with 3: 3 (1+4+4 = 9) and 4 (1+1+9 = 11), 1 (1+4+9): 3. Left 0, 1, 4, 5, 100 with 2: 0 (1+16), 1 (1+9 = 10),
    4 (1+9 = 10): 1. Left 0, 4, 5, 100 with 1: 4 and 5 (1): 4. Left 0, 5, 100 with 1: 0 and 5 (25): 0.
    Selected 2, 3, 1, 4, 0; their median is 2, and the three nearest 1, 2, 3.
    """
    line = torch.tensor([[0.0], [1.0], [2.0], [3.0], [4.0], [5.0], [100.0]])
    part = ROBUST["bulyan"](f=1)
    P = part.matrix(Gram(line, row_norms(line)), 1, np.random.default_rng(0))
    assert P.argmax(1).tolist() == [2, 3, 1, 4, 0]
    assert fn.bulyan(line, 1).tolist() == [2.0]
    assert fn.bulyan(line, 1, theta="epfl").tolist() == [2.0]  # selected 2, 3, 1, of which one is kept
    assert fn.bulyan(line, 0).tolist() == [pytest.approx(115.0 / 7.0)]


def test_clipping_by_hand() -> None:
    """(3, 4) to length 1 is (.6, .8); (0, 1) stays; around (0, 1) the first is (3, 3), of length sqrt(18)."""
    updates = torch.tensor([[3.0, 4.0], [0.0, 1.0]])
    close(fn.norm_clipping(updates, 1.0), [0.3, 0.9])
    close(fn.norm_clipping(updates, 0.0), [0.0, 0.0])
    close(fn.norm_clipping(updates), [0.9, 1.7])  # median length 3: (1.8, 2.4) and (0, 1)
    half = 0.5**0.5 / 2.0
    close(fn.centered_clipping(updates, torch.tensor([0.0, 1.0]), 1.0), [half, 1.0 + half])
    close(fn.centered_clipping(updates, torch.tensor([0.0, 1.0]), 1.0, 0), [0.0, 1.0])


def test_robust_learning_rate_by_hand() -> None:
    """Sums of signs 3 - 1 = 2, 0 and, with a zero, 2 - 1 = 1: below 2 the mean is reversed."""
    updates = torch.tensor([[1.0, 2.0, 1.0], [1.0, 2.0, 1.0], [1.0, -1.0, 0.0], [-1.0, -1.0, -1.0]])
    close(fn.rlr(updates, 2.0), [0.5, -0.5, -0.25])
    close(fn.rlr(updates, 0.0), [0.5, 0.5, 0.25])
    close(run_rule(ROBUST["rlr"](f=1), updates).step, [0.5, -0.5, -0.25])


def test_fools_gold_by_hand() -> None:
    """Two Sybils along x and an honest one along y: cosines 1 between the two, so w = (0, 0, 1) -> only the third.

    Three at 60 degrees to each other: v = 1/2 each, nothing to pardon, w = 1/2 each, all 1 after division: the mean.
    """
    close(fn.fools_gold(torch.tensor([[1.0, 0.0], [5.0, 0.0], [0.0, 2.0]])), [0.0, 2.0])
    pairs = torch.tensor([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    close(fn.fools_gold(pairs), [2.0 / 3.0] * 3)
    same = torch.tensor([[1.0, 2.0], [1.0, 2.0]])
    close(fn.fools_gold(same), [1.0, 2.0])
    close(fn.fools_gold(same, on_identical="skip"), [0.0, 0.0])
    close(fn.fools_gold(same, torch.tensor([[1.0, 0.0], [0.0, 1.0]])), [1.0, 2.0])


def test_fools_gold_pardons_by_hand() -> None:
    """Histories at angles 0, 0.1 and 0.8: cosines a = cos .1, b = cos .7 (second, third), e = cos .8 (first, third).

    v = (a, a, b). The third has the smaller v, so its cosines shrink by b/a: b' = b b/a. w = (1-a, 1-a, 1-b')/max.
    """
    angles = torch.tensor([0.0, 0.1, 0.8], dtype=torch.float64)
    H = torch.stack([angles.cos(), angles.sin()], 1)
    a, b = np.cos(0.1), np.cos(0.7)
    w = np.array([1 - a, 1 - a, 1 - b * b / a])
    w = np.minimum(w / w.max(), 0.99)
    w = np.clip(np.log(w / (1 - w)) + 0.5, 0, 1)
    np.testing.assert_allclose(fn.fools_gold(H).numpy(), w @ H.numpy() / w.sum(), rtol=1e-12)


def test_caf_by_hand() -> None:
    """0, 0, 0, 4 on a line, f = 1: mean 1, variance 3, tau = 1, 1, 1, 9, so a = 8/9 three times and 0.

    Their sum 8/3 is above n - 2f = 2; now the mean is 0 and the variance 0, the least so far.
    """
    assert fn.caf(torch.tensor([[0.0], [0.0], [0.0], [4.0]]), 1).tolist() == [0.0]
    played = run_rule(ROBUST["caf"](f=1), torch.tensor([[0.0], [0.0], [0.0], [4.0]]))
    assert played.partial.per_client["suspicion"].tolist() == [0.0, 0.0, 0.0, 4.0]


def test_caf_takes_the_maximum_over_active_rows_by_hand() -> None:
    """0 five times, 2 and 5 on a line, f = 2: mean 1, tau = 1 six times and 16, so a = 15/16 six times and 0.

    Now the mean is 1/3 and tau = 1/9 five times, 25/9, and 196/9 for the row of weight zero. The maximum over active
    rows is 25/9: a = 15/16 * 24/25 = 0.9 five times, 0 and 0, with sum 4.5 > n - 2f = 3, and the mean is 0. With the
    maximum over all rows, 196/9, the row at 2 would keep 171/196 of its weight.
    """
    line = torch.tensor([[0.0]] * 5 + [[2.0], [5.0]])
    assert fn.caf(line, 2).tolist() == [0.0]
    assert run_rule(ROBUST["caf"](f=2), line).step.tolist() == [0.0]


def test_fools_gold_step_is_a_weighted_mean_by_hand() -> None:
    """At right angles every w is 1: the step is the mean (1, 1), where the sum of w g of the paper would be (2, 2).

    With a third client along x, of history (1, 0), the first two share one vote: w = (0, 1, 0), the step is (0, 2).
    """
    close(fn.fools_gold(torch.tensor([[2.0, 0.0], [0.0, 2.0]])), [1.0, 1.0])
    close(run_rule(ROBUST["fools_gold"](), [[2.0, 0.0], [0.0, 2.0], [1.0, 0.0]]).step, [0.0, 2.0])


SIGNS = torch.tensor(
    [[1.0] * 60 + [-1.0] * 40] * 2 + [[1.0] * 60 + [-1.0] * 38 + [0.0] * 2] + [[1.0] * 40 + [-1.0] * 58 + [0.0] * 2] * 2
)


def test_sign_guard_features_by_hand() -> None:
    """Shares (+, 0, -): a, a = (.60, 0, .40), c = (.60, .02, .38), d, d = (.40, .02, .58), in 100 coordinates.

    Shares: |a - c| = .028, |c - d| = .283, so the largest cluster is a, a, c. Divided by the largest, (.60, .02, .58),
    c is (1, 1, .66), a (1, 0, .69), d (.67, 1, 1): |a - c| = 1.0, |c - d| = .48, so it is c, d, d. Lengths are 10 for a
    and sqrt(98) for the others, the median: a is multiplied by sqrt(.98).
    """
    clip = 0.98**0.5
    rule = ROBUST["sign_guard"]
    for features, due in (
        ("shares", [(2 * clip + 1) / 3, (2 * clip + 1) / 3, -2 * clip / 3]),
        ("scaled", [1.0, -1 / 3, 0.0]),
    ):
        settings = {"fraction": 1.0, "cluster": "k_means", "features": features}
        for step in (fn.sign_guard(SIGNS, **settings), run_rule(rule(**settings), SIGNS).step):
            close(step[[0, 50, 99]], due)
        np.testing.assert_allclose(fn.sign_guard(SIGNS.numpy(), **settings)[[0, 50, 99]], due, atol=1e-6)


def test_scaled_features_without_zeros_are_finite() -> None:
    """No update has a zero: that share is 0 for all, and stays 0."""
    step = fn.sign_guard(SIGNS[:2], fraction=1.0, features="scaled")
    close(step[[0, 99]], [1.0, -1.0])


LINE = torch.tensor([[0.0, 0.5], [0.0, 2.0], [0.0, 2.0], [0.0, 3.0], [0.0, 30.0]])
MODEL = torch.tensor([10.0, 0.0])


def test_flame_of_updates_and_of_local_models_by_hand() -> None:
    """Five updates in one direction: all are admitted, and clipped to the median 2: (.5 + 4 * 2) / 5 = 1.7.

    The local models (10, g) have angles arctan(g / 10) = .05, .20, .20, .29, 1.25. HDBSCAN with clusters of 3 keeps
    the densest three, the middle ones: (2 + 2 + 2) / 3 = 2.
    """
    inf = float("inf")
    for space, due in (("update", [0.0, 1.7]), ("weights", [0.0, 2.0])):
        settings = {"epsilon": inf, "space": space}
        close(fn.flame(LINE, model=MODEL, **settings), due)
        close(fn.flame(LINE.double(), model=MODEL.double(), **settings), due)
        np.testing.assert_allclose(fn.flame(LINE.numpy(), model=MODEL.numpy(), **settings), due, atol=1e-6)
        close(fn.aggregate("flame", LINE, model=MODEL, **settings), due)
        close(run_rule(ROBUST["flame"](**settings), LINE, model=MODEL).step, due)


def test_distances_of_local_models_by_hand() -> None:
    """w = (1, 0), updates (0, 1), (0, -1): opposite, at distance 2. The models (1, 1), (1, -1) are at right angles.

    Of the rows 2 g_1 and (g_1 + g_2) / 2 = 0 the models are (1, 2) and (1, 0): the dots are 5, 1 and 1.
    """
    rows = torch.tensor([[0.0, 1.0], [0.0, -1.0]])
    gram = Gram(rows, row_norms(rows), model=torch.tensor([1.0, 0.0]))
    assert cosine_distances(gram.dots).tolist() == [[0.0, 2.0], [2.0, 0.0]]
    assert gram.model_dots.tolist() == [[2.0, 0.0], [0.0, 2.0]]
    assert cosine_distances(gram.model_dots).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    mixed = gram.mixed(torch.tensor([[2.0, 0.0], [0.5, 0.5]]).double())
    assert mixed.model_dots.tolist() == [[5.0, 1.0], [1.0, 1.0]]


def test_flame_of_local_models_after_mixing() -> None:
    """In a chain the local models are w plus the mixed rows."""
    draws = torch.Generator().manual_seed(0)
    rows, w = torch.randn(9, 6, generator=draws), torch.randn(6, generator=draws)
    flame = ROBUST["flame"](epsilon=float("inf"), space="weights")
    seen = run_rule(chain("nnm", flame, f=2), rows, model=w).step
    close(seen, fn.flame(fn.nnm(rows, 2), epsilon=float("inf"), space="weights", model=w).tolist())


def test_flame_of_local_models_needs_the_model() -> None:
    for call in (fn.flame, lambda X, space: fn.aggregate("flame", X, space=space)):
        with pytest.raises(SpecError, match=r"needs the model that was sent out; give model"):
            call(LINE, space="weights")
    with pytest.raises(SpecError, match=r"flame.space: 'model' is unknown"):
        fn.flame(LINE, space="model")  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=r"sign_guard.features: 'max' is unknown"):
        fn.sign_guard(LINE, features="max")  # type: ignore[arg-type]


def test_divide_and_conquer_leaves_out_what_sticks_out() -> None:
    close(fn.dnc(X, 1), [0.75, 1.0])
    close(fn.dnc(X, 0), [2.6, -1.2])
