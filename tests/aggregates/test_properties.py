"""What DRAG and BR-DRAG promise of every dragged update, for any update, reference and c."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragfl import functional
from dragfl.aggregates import BRDrag, Drag
from tests.aggregates.drive import reference_step, run_rule
from tests.strategies import QUICK, cohorts, seeds, strengths

Rule = Callable[[Tensor, Tensor, float], Tensor]
rules = st.sampled_from([functional.drag, functional.br_drag])


def dragged(rule: Rule, g: Tensor, r: Tensor, c: float) -> tuple[np.ndarray, float, float]:
    """(v/s, cosine x, lambda) of one update, s being the size that the rule gives it."""
    size = float(r.norm() if rule is functional.br_drag else g.norm())
    x = float(torch.clamp(g @ r / (g.norm() * r.norm()), -1.0, 1.0))
    return (rule(g.unsqueeze(0), r, c) / size).numpy(), x, c * (1.0 - x)


def unit(v: Tensor) -> np.ndarray:
    return (v / v.norm()).numpy()


@st.composite
def one_update(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    X, r = draw(cohorts(rows=(1, 1)).filter(lambda pair: bool(pair[0].abs().max() > 0)))
    return X[0], r


@QUICK
@given(rules, one_update(), strengths)
def test_dragging_adds_progress_along_the_reference(rule: Rule, pair: tuple[Tensor, Tensor], c: float) -> None:
    """<v, rhat>/s = (1 - lambda) x + lambda = x + c (1 - x)^2 >= x."""
    v, x, _ = dragged(rule, *pair, c)
    along = float(v @ unit(pair[1]))
    assert along == pytest.approx(x + c * (1.0 - x) ** 2, abs=1e-9)
    assert along >= x - 1e-9


@QUICK
@given(rules, one_update(), strengths)
def test_size_of_a_dragged_update(rule: Rule, pair: tuple[Tensor, Tensor], c: float) -> None:
    """|v|^2/s^2 = (1-lambda)^2 + lambda^2 + 2 lambda (1-lambda) x = 1 - 2 lambda (1-lambda)(1-x).

    That is at most 1 exactly where lambda is.
    """
    v, x, lam = dragged(rule, *pair, c)
    assert float(v @ v) == pytest.approx(1.0 - 2.0 * lam * (1.0 - lam) * (1.0 - x), abs=1e-9)
    if lam <= 1.0:
        assert float(v @ v) <= 1.0 + 1e-9
    elif x < 1.0 - 1e-6:
        assert float(v @ v) >= 1.0 - 1e-9


@pytest.mark.parametrize("rule", [functional.drag, functional.br_drag])
@pytest.mark.parametrize(
    ("c", "least", "where"),
    [(0.1, -0.6, -1.0), (0.25, 0.0, -1.0), (0.4, 0.375, -0.25), (0.5, 0.5, 0.0), (1.0, 0.75, 0.5)],
)
def test_least_progress(rule: Rule, c: float, least: float, where: float) -> None:
    """min over x of x + c (1-x)^2: 4c - 1 at x = -1 for c <= 1/4, else 1 - 1/(4c) at x = 1 - 1/(2c).

    So every client helps along r exactly if c >= 1/4; at c = 0.1 a reversed update still costs -0.6.
    """
    angles = torch.linspace(0.0, math.pi, 401, dtype=torch.float64)
    updates = 3.0 * torch.stack([angles.cos(), angles.sin()], 1)
    r = torch.tensor([3.0, 0.0], dtype=torch.float64)
    along = torch.stack([rule(g.unsqueeze(0), r, c)[0] / 3.0 for g in updates])
    assert float(along.min()) == pytest.approx(least, abs=2e-5)
    assert float(angles[along.argmin()].cos()) == pytest.approx(where, abs=1e-2)


@QUICK
@given(rules, one_update(), strengths)
def test_what_is_orthogonal_to_the_reference_shrinks(rule: Rule, pair: tuple[Tensor, Tensor], c: float) -> None:
    """v lies in span(g, r): off r it is (1 - lambda) times what g is."""
    g, r = pair
    v, _, lam = dragged(rule, g, r, c)
    rhat, ghat = unit(r), unit(g)
    off = v - (v @ rhat) * rhat
    np.testing.assert_allclose(off, (1.0 - lam) * (ghat - (ghat @ rhat) * rhat), atol=1e-9)


@QUICK
@given(one_update(), strengths)
def test_the_perturbation_of_drag_is_bounded(pair: tuple[Tensor, Tensor], c: float) -> None:
    """|v - g| = lambda |g| |rhat - ghat| = sqrt 2 c (1-x)^(3/2) |g| <= 4 c |g|."""
    g, r = pair
    v, x, _ = dragged(functional.drag, g, r, c)
    moved = float(np.linalg.norm(v - unit(g)))
    assert moved == pytest.approx(math.sqrt(2.0) * c * max(0.0, 1.0 - x) ** 1.5, abs=1e-7)
    assert moved <= 4.0 * c + 1e-9


@QUICK
@given(cohorts(), strengths, st.floats(1e-3, 1e3))
def test_drag_scales_with_its_updates_and_not_with_its_reference(
    pair: tuple[Tensor, Tensor], c: float, k: float
) -> None:
    X, r = pair
    step = functional.drag(X, r, c)
    size = float(X.abs().max())
    torch.testing.assert_close(functional.drag(k * X, r, c), k * step, rtol=1e-9, atol=1e-9 * k * size)
    torch.testing.assert_close(functional.drag(X, k * r, c), step, rtol=1e-9, atol=1e-9 * size)


@QUICK
@given(cohorts(), strengths, seeds)
def test_br_drag_ignores_the_size_of_each_update(pair: tuple[Tensor, Tensor], c: float, seed: int) -> None:
    X, r = pair
    k = 10.0 ** torch.from_numpy(np.random.default_rng(seed).uniform(-3, 3, (len(X), 1)))
    step = functional.br_drag(X, r, c)
    torch.testing.assert_close(functional.br_drag(k * X, r, c), step, rtol=1e-9, atol=1e-9 * float(r.norm()))


@QUICK
@given(rules, cohorts(), strengths, st.randoms(use_true_random=False))
def test_order_does_not_matter(rule: Rule, pair: tuple[Tensor, Tensor], c: float, random: object) -> None:
    X, r = pair
    order = list(range(len(X)))
    random.shuffle(order)  # type: ignore[attr-defined]
    size = float(max(X.abs().max(), r.abs().max()))
    torch.testing.assert_close(rule(X[order], r, c), rule(X, r, c), rtol=1e-12, atol=1e-12 * size)


@QUICK
@given(rules, cohorts(columns=(2, 6)), strengths, seeds)
def test_a_rotation_of_all_rotates_the_step(rule: Rule, pair: tuple[Tensor, Tensor], c: float, seed: int) -> None:
    X, r = pair
    Q, _ = torch.linalg.qr(torch.from_numpy(np.random.default_rng(seed).normal(size=(len(r), len(r)))))
    size = float(max(X.norm(), r.norm()))
    torch.testing.assert_close(rule(X @ Q, r @ Q, c), rule(X, r, c) @ Q, rtol=1e-9, atol=1e-9 * size)


@pytest.mark.parametrize("rule", [Drag(c=0.25, variant="authors"), BRDrag(c=0.25, variant="authors")], ids=repr)
def test_tensor_by_tensor_is_no_longer_rotation_equivariant(rule: Drag | BRDrag) -> None:
    """A swap of coordinates across the tensor border is a rotation too; there the authors' form changes."""
    X, r = torch.tensor([[4.0, 3.0, -5.0], [1.0, 0.0, 2.0]]), torch.tensor([3.0, 4.0, 5.0])
    swap = torch.tensor([2, 1, 0])

    def step(X: Tensor, r: Tensor, segments: tuple[int, ...]) -> Tensor:
        state = None if isinstance(rule, BRDrag) else type(rule.init(None))(r)  # type: ignore[arg-type]
        return run_rule(rule, X, root=r, state=state, segments=segments).step

    apart = step(X[:, swap], r[swap], (0, 2, 3)) - step(X, r, (0, 2, 3))[swap]
    assert float(apart.abs().max()) > 0.1
    whole = step(X[:, swap], r[swap], (0, 3)) - step(X, r, (0, 3))[swap]
    assert float(whole.abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("S", "c", "factor"), [(40, 0.25, 2.121), (10, 0.25, 1.370), (20, 0.1, 1.270), (5, 0.1, 1.068)]
)
def test_amplification_of_orthogonal_updates(S: int, c: float, factor: float) -> None:
    """S orthogonal updates of one size have cosine 1/sqrt S with their mean r, so lambda = c (1 - 1/sqrt S) and

    Delta = (1 - lambda) gbar + lambda |g| rhat, |g| = sqrt S |gbar|: |Delta|/|gbar| = 1 - lambda + lambda sqrt S
    = 1 + c (sqrt S - 1)^2 / sqrt S.
    """
    done = run_rule(Drag(c=c), 3.0 * torch.eye(S))
    seen = float(done.step.norm() / done.partial.mean.norm())
    assert seen == pytest.approx(1.0 + c * (math.sqrt(S) - 1.0) ** 2 / math.sqrt(S), rel=1e-6)
    assert seen == pytest.approx(factor, abs=6e-4)


@QUICK
@given(rules, cohorts(dtype=np.float32), strengths)
def test_both_rules_are_their_formula(rule: Rule, pair: tuple[Tensor, Tensor], c: float) -> None:
    X, r = pair
    due = reference_step(X, r, c, normalise=rule is functional.br_drag)
    size = float(max(X.norm(), r.norm()))
    np.testing.assert_allclose(rule(X, r, c).numpy(), due, rtol=1e-5, atol=1e-6 * size)


@QUICK
@given(cohorts())
def test_c_zero_is_the_mean(pair: tuple[Tensor, Tensor]) -> None:
    X, r = pair
    torch.testing.assert_close(functional.drag(X, r, 0.0), X.mean(0))
    rows = X.float()
    torch.testing.assert_close(
        run_rule(Drag(c=0.0), rows).step, rows.mean(0), rtol=1e-5, atol=1e-6 * float(rows.abs().max())
    )
