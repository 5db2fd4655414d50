"""The three forms of the degree of divergence."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from dragfl import functional
from dragfl.aggregates import Drag
from dragfl.aggregates.drag import DragState
from dragfl.errors import SpecError
from tests.aggregates.drive import run_rule

X = torch.tensor([-1.0, 0.0, 1.0], dtype=torch.float64)


def degree(cosine: torch.Tensor, c: float, kind: Any) -> torch.Tensor:
    """lambda of unit vectors in the plane at these cosines to r = (1, 0)."""
    rows = torch.stack([cosine, (1.0 - cosine.square()).sqrt()], 1)
    return functional.divergence(rows, torch.tensor([1.0, 0.0], dtype=torch.float64), c, kind)


@pytest.mark.parametrize(
    ("kind", "at_ends"),
    [
        ("linear", (2.0, 1.0, 0.0)),
        ("angle", (2.0, 1.0, 0.0)),
        ("shallow", (1.0 + 2.0 / math.pi, 1.0, 1.0 - 2.0 / math.pi)),
    ],
)
@pytest.mark.parametrize("c", [0.0, 0.25, 1.0])
def test_opposite_orthogonal_and_equal(kind: Any, at_ends: tuple[float, ...], c: float) -> None:
    """All are c at a right angle; linear and angle also agree at both ends, shallow is the tangent at x = 0."""
    torch.testing.assert_close(degree(X, c, kind), c * torch.tensor(at_ends, dtype=torch.float64))


def test_the_forms_between() -> None:
    """At 60 degrees, x = 1/2: 1 - 1/2, (2/pi)(pi/3) = 2/3 and 1 - 1/pi."""
    x = torch.tensor([0.5], dtype=torch.float64)
    kinds: tuple[Any, ...] = ("linear", "angle", "shallow")
    assert [float(degree(x, 1.0, kind)) for kind in kinds] == pytest.approx([0.5, 2 / 3, 1 - 1 / math.pi])


@pytest.mark.parametrize("kind", ["linear", "angle", "shallow"])
def test_no_form_leaves_its_range_and_all_fall_with_the_cosine(kind: Any) -> None:
    lam = degree(torch.linspace(-1.0, 1.0, 101, dtype=torch.float64), 0.25, kind)
    assert 0.0 <= float(lam.min()) <= float(lam.max()) <= 0.5
    assert (lam.diff() < 0).all()


@pytest.mark.parametrize("kind", ["angle", "shallow"])
def test_a_rule_drags_by_the_form_it_is_given(kind: Any) -> None:
    """g = (0,2) and r = (1,0): x = 0, lambda = c in every form. g = (3,4) differs: x = 0.6."""
    lam = {"angle": 0.25 * 2 / math.pi * math.acos(0.6), "shallow": 0.25 * (1 - 1.2 / math.pi)}[kind]
    rows, r = torch.tensor([[3.0, 4.0]]), torch.tensor([1.0, 0.0])
    due = torch.tensor([(1 - lam) * 3 + lam * 5, (1 - lam) * 4])
    torch.testing.assert_close(run_rule(Drag(c=0.25, divergence=kind), rows, state=DragState(r)).step, due)
    torch.testing.assert_close(functional.drag(rows, r, 0.25, kind), due)
    assert float(functional.divergence(rows, r, 0.25, kind)) == pytest.approx(lam, rel=1e-6)


@pytest.mark.parametrize("kind", ["linear", "angle", "shallow"])
def test_a_zero_update_does_not_diverge_in_any_form(kind: Any) -> None:
    """shallow gives 0.36 c even to an update along r; a zero update has no direction and gets 0."""
    assert functional.divergence(torch.zeros(1, 2), torch.ones(2), 0.5, kind).tolist() == [0.0]


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(SpecError, match=r"divergence.kind: 'angel' is unknown; did you mean 'angle'\?"):
        degree(X, 0.25, "angel")
