"""Rounds small enough to be worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dragfl import functional
from dragfl.aggregates import BRDrag, Drag, FLTrust, Mean
from dragfl.aggregates.drag import DragState
from tests.aggregates.drive import block, run_rule

D1 = [[3.0, 4.0], [0.0, 2.0], [-5.0, 0.0]]
D1_REFERENCE = [1.0, 0.0]
B1 = [[3.0, 4.0], [-30.0, -40.0], [0.0, -10.0]]
B1_ROOT = [0.0, 2.0]


def near(seen: Any, due: Any) -> None:
    torch.testing.assert_close(torch.as_tensor(seen).double(), torch.tensor(due).double(), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("c", "lam", "dragged", "step", "reference"),
    [
        (0.10, (0.04, 0.10, 0.20), ((3.08, 3.84), (0.2, 1.8), (-3.0, 0.0)), (0.28 / 3, 5.64 / 3), (0.456, 1.128)),
        (0.25, (0.10, 0.25, 0.50), ((3.2, 3.6), (0.5, 1.5), (0.0, 0.0)), (3.7 / 3, 5.1 / 3), (1.14, 1.02)),
        (0.50, (0.20, 0.50, 1.00), ((3.4, 3.2), (1.0, 1.0), (5.0, 0.0)), (9.4 / 3, 4.2 / 3), (2.28, 0.84)),
    ],
)
def test_three_clients(c: float, lam: Any, dragged: Any, step: Any, reference: Any) -> None:
    """g = (3,4), (0,2), (-5,0) and r = (1,0): cosines 3/5, 0, -1 and norms 5, 2, 5.

    lambda = c (1 - x) = c (0.4, 1, 2). For c = 0.25 that is (0.1, 0.25, 0.5), so
    v_1 = 0.9 (3,4) + 0.1 * 5 (1,0) = (3.2, 3.6), v_2 = 0.75 (0,2) + 0.25 * 2 (1,0) = (0.5, 1.5),
    v_3 = 0.5 (-5,0) + 0.5 * 5 (1,0) = (0, 0); Delta = (3.7, 5.1)/3.
    With alpha = 0.6 the next reference is 0.4 (1,0) + 0.6 Delta = (0.4 + 0.74, 1.02).
    """
    done = run_rule(Drag(c=c, alpha=0.6), D1, state=DragState(torch.tensor(D1_REFERENCE)))
    near(done.partial.per_client["divergence"], lam)
    near(done.partial.per_client["cosine"], (0.6, 0.0, -1.0))
    near(done.partial.per_client["norm"], (5.0, 2.0, 5.0))
    near(done.step, step)
    near(done.state.r, reference)
    near(functional.divergence(torch.tensor(D1), torch.tensor(D1_REFERENCE), c), lam)
    for g, v in zip(D1, dragged, strict=True):
        near(functional.drag(torch.tensor([g]), torch.tensor(D1_REFERENCE), c), v)


@pytest.mark.parametrize(("variant", "reference"), [("paper", 1.0151650429449553), ("authors", 0.5151650429449553)])
def test_first_round(variant: Any, reference: float) -> None:
    """g = (2,0), (0,2): r^0 is their mean (1,1), both cosines are 1/sqrt 2, and the drag is not idle.

    lambda = 0.25 (1 - 1/sqrt 2) = 0.0732233; v_1 = 0.9267767 (2,0) + 0.0732233 * 2 (1,1)/sqrt 2
    = (1.8535534 + 0.1035534, 0.1035534) = (1.9571068, 0.1035534), v_2 mirrors it, Delta^0 = 1.0303301 (1,1).
    With alpha = 0.5: r^1 = 0.5 (1,1) + 0.5 Delta^0 = 1.0151650 (1,1). The authors' average starts at zero and
    leaves r^0 out: r^1 = 0.5 Delta^0 = 0.5151650 (1,1).
    """
    rows = [[2.0, 0.0], [0.0, 2.0]]
    done = run_rule(Drag(c=0.25, alpha=0.5, variant=variant), rows)
    near(done.partial.per_client["divergence"], (0.0732233047, 0.0732233047))
    near(functional.drag(torch.tensor(rows[:1]), torch.ones(2), 0.25), (1.9571067812, 0.1035533906))
    near(done.step, (1.0303300859, 1.0303300859))
    near(done.state.r, (reference, reference))


@pytest.mark.parametrize(
    ("c", "lam", "dragged", "step"),
    [
        (0.10, (0.02, 0.18, 0.20), ((1.176, 1.608), (-0.984, -0.952), (0.0, -1.2)), (0.064, -0.544 / 3)),
        (0.25, (0.05, 0.45, 0.50), ((1.14, 1.62), (-0.66, 0.02), (0.0, 0.0)), (0.16, 1.64 / 3)),
        (0.50, (0.10, 0.90, 1.00), ((1.08, 1.64), (-0.12, 1.64), (0.0, 2.0)), (0.32, 1.76)),
    ],
)
def test_two_liars_of_three(c: float, lam: Any, dragged: Any, step: Any) -> None:
    """r = (0,2) and g = (3,4), -10 (3,4), (0,-10): cosines 0.8, -0.8, -1; every g is first cut to |r| = 2.

    For c = 0.1: v_1 = 0.98 * 2 (0.6, 0.8) + 0.02 (0,2) = (1.176, 1.608), v_2 = 0.82 * 2 (-0.6,-0.8) + 0.18 (0,2)
    = (-0.984, -0.952), v_3 = 0.8 (0,-2) + 0.2 (0,2) = (0,-1.2): the step goes against r. From c = 1/4 on no client
    can pull against r, and at c = 1/2 the exact reversal has become r itself.
    """
    done = run_rule(BRDrag(c=c), B1, root=B1_ROOT)
    near(done.partial.per_client["divergence"], lam)
    near(done.step, step)
    near(functional.br_drag(torch.tensor(B1), torch.tensor(B1_ROOT), c), step)
    for g, v in zip(B1, dragged, strict=True):
        near(functional.br_drag(torch.tensor([g]), torch.tensor(B1_ROOT), c), v)


def test_fltrust_on_two_liars_of_three() -> None:
    """Trust is max(0, cosine) = (0.8, 0, 0), so the step is |r| g_1/|g_1| = 2 (0.6, 0.8)."""
    done = run_rule(FLTrust(), B1, root=B1_ROOT)
    near(done.partial.per_client["trust"], (0.8, 0.0, 0.0))
    near(done.step, (1.2, 1.6))
    near(functional.fltrust(torch.tensor(B1), torch.tensor(B1_ROOT)), (1.2, 1.6))
    assert done.metrics["trust_mean"] == pytest.approx(0.8 / 3)


@pytest.mark.parametrize(
    ("variant", "step", "lam"), [("paper", (3.745, 3.255, -2.45), 0.255), ("authors", (3.99, 3.01, 0.0), 0.255)]
)
def test_whole_vector_and_tensor_by_tensor(variant: Any, step: Any, lam: float) -> None:
    """Tensors {1,2} and {3}, r = (3,4|5), g = (4,3|-5), c = 0.25; |r| = |g| = sqrt 50.

    Whole: x = (12 + 12 - 25)/50 = -0.02, lambda = 0.255, v = 0.745 g + 0.255 r = (3.745, 3.255, -2.45).
    By tensor: x = 24/25 and -1, lambda = 0.01 and 0.5, v = 0.99 (4,3) + 0.01 (3,4) | 0.5 (-5) + 0.5 (5)
    = (3.99, 3.01 | 0). There the mean lambda, (0.01 + 0.5)/2 = 0.255, is logged.
    """
    done = run_rule(BRDrag(c=0.25, variant=variant), [[4.0, 3.0, -5.0]], root=[3.0, 4.0, 5.0], segments=(0, 2, 3))
    near(done.step, step)
    near(done.partial.per_client["divergence"], (lam,))


def test_authors_drag_rescales_tensor_by_tensor() -> None:
    """The same g and r under DRAG's authors: lambda = 0.255 of the whole vector, |g| and |r| of each tensor.

    |g_l| = |r_l| = 5 in both tensors, so v = 0.745 g + 0.255 r again; with g = (8,6|-5) the first tensor has norm
    10 against |r| = 5, x = (24 + 24 - 25)/sqrt(125 * 50) = 23/79.0569, lambda = 0.25 (1 - x) = 0.1772676:
    v = (1 - lambda) g + lambda (10/5 * (3,4) | 5/5 * 5) = (7.6454648, 6.3545352 | -3.2273240).
    """
    state = DragState(torch.tensor([3.0, 4.0, 5.0]))
    same = run_rule(Drag(c=0.25, variant="authors"), [[4.0, 3.0, -5.0]], state=state, segments=(0, 2, 3))
    near(same.step, (3.745, 3.255, -2.45))
    done = run_rule(Drag(c=0.25, variant="authors"), [[8.0, 6.0, -5.0]], state=state, segments=(0, 2, 3))
    near(done.partial.per_client["divergence"], (0.1772676,))
    near(done.step, (7.6454648, 6.3545352, -3.2273240))


def test_mean_weighs_by_samples() -> None:
    """g = 1 and 4 with 30 and 10 samples: (1 + 4)/2 = 2.5, and (30 * 1 + 10 * 4)/40 = 1.75."""
    cohort = block([[1.0], [4.0]], weight=[30.0, 10.0])
    near(run_rule(Mean(), cohort).step, (2.5,))
    near(run_rule(Mean(weighting="samples"), cohort).step, (1.75,))
