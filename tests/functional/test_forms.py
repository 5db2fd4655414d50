"""The one-shot forms of mean, DRAG, BR-DRAG, Cone DRAG and FLTrust: kinds and dtypes, rows that are not finite, and
arguments that cannot be. The robust rules are tried in `test_robust_forms.py`.
"""

from __future__ import annotations

import doctest
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from dragfl import functional
from dragfl.errors import SpecError
from tests.functional.robust_forms import FORMS as ROBUST_FORMS

X = [[3.0, 4.0], [0.0, 2.0], [-5.0, 0.0]]
R = [1.0, 0.0]
D = [[1.0, 1.0], [2.0, -1.0]]
FORMS: dict[str, Callable[[Any, Any], Any]] = {
    "mean": lambda X, r: functional.mean(X),
    "drag": lambda X, r: functional.drag(X, r, 0.25),
    "br_drag": lambda X, r: functional.br_drag(X, r, 0.25),
    "cone_drag": lambda X, r: functional.cone_drag(X, np.array(D) if isinstance(X, np.ndarray) else torch.tensor(D), r),
    "fltrust": functional.fltrust,
    "divergence": lambda X, r: functional.divergence(X, r, 0.25),
}
STEPS = [name for name in FORMS if name != "divergence"]
REFERENCED = [name for name in FORMS if name != "mean"]


def test_examples_of_the_documentation() -> None:
    seen = doctest.testmod(functional)
    assert seen.attempted > 0
    assert seen.failed == 0


def test_every_public_name_is_tested() -> None:
    assert set(functional.__all__) == {*FORMS, *ROBUST_FORMS, "aggregate"}


def test_any_rule_by_its_name() -> None:
    rows, root = np.array(X, "float32"), np.array(R, "float32")
    np.testing.assert_allclose(functional.aggregate("median", rows), functional.median(rows), rtol=1e-6)
    step = functional.aggregate("br_drag", rows, root=root, c=0.1)
    np.testing.assert_allclose(step, functional.br_drag(rows, root, 0.1), rtol=1e-5)
    mean = torch.from_numpy(rows).mean(0)
    torch.testing.assert_close(
        functional.aggregate("drag", torch.from_numpy(rows)), functional.drag(torch.from_numpy(rows), mean, 0.25)
    )
    with pytest.raises(SpecError, match="unknown rule 'medain'; did you mean 'median'"):
        functional.aggregate("medain", rows)
    with pytest.raises(SpecError, match="give root"):
        functional.aggregate("fltrust", rows)
    with pytest.raises(SpecError, match="Boba needs the update of each class of the root data; give directions"):
        functional.aggregate("boba", rows)
    with pytest.raises(SpecError, match=r"directions are \(1, 3\) .* give \(K, 2\) with one row"):
        functional.aggregate("boba", rows, directions=np.ones((1, 3), "float32"))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_same_kind_and_dtype_come_out(name: str, dtype: str) -> None:
    arrays = np.array(X, dtype), np.array(R, dtype)
    tensors = [torch.from_numpy(a) for a in arrays]
    array, tensor = FORMS[name](*arrays), FORMS[name](*tensors)
    assert isinstance(array, np.ndarray)
    assert isinstance(tensor, torch.Tensor)
    assert array.dtype == dtype
    assert str(tensor.dtype) == f"torch.{dtype}"
    assert array.shape == tuple(tensor.shape) == ((3,) if name == "divergence" else (2,))
    np.testing.assert_array_equal(array, tensor.numpy())


@pytest.mark.parametrize("name", FORMS)
def test_arguments_are_not_changed_and_not_returned(name: str) -> None:
    updates, reference = torch.tensor(X[:1]), torch.tensor(R)
    out = FORMS[name](updates, reference)
    out += 1.0
    assert updates.tolist() == X[:1]
    assert reference.tolist() == R


@pytest.mark.parametrize("name", FORMS)
def test_views_and_gradients_are_no_obstacle(name: str) -> None:
    due = FORMS[name](torch.tensor(X), torch.tensor(R))
    turned = torch.tensor(X).t().contiguous().t().requires_grad_()
    seen = FORMS[name](turned, torch.tensor(R).requires_grad_())
    assert not seen.requires_grad
    torch.testing.assert_close(seen, due)
    wide = np.zeros((3, 4), np.float32)
    wide[:, ::2] = X
    np.testing.assert_allclose(FORMS[name](wide[:, ::2], np.array(R, np.float32)), due.numpy(), rtol=1e-6)


def test_a_reference_of_another_kind_or_dtype_is_taken() -> None:
    due = functional.drag(torch.tensor(X), torch.tensor(R), 0.25)
    assert torch.equal(functional.drag(torch.tensor(X), np.array(R), 0.25), due)  # type: ignore[type-var]
    assert torch.equal(functional.drag(torch.tensor(X), torch.tensor(R, dtype=torch.float64), 0.25), due)


@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_rows_that_are_not_finite_are_left_out(name: str, bad: float) -> None:
    spoilt = torch.tensor([*X[:1], [1.0, bad], *X[1:]])
    torch.testing.assert_close(FORMS[name](spoilt, torch.tensor(R)), FORMS[name](torch.tensor(X), torch.tensor(R)))


@pytest.mark.parametrize("name", STEPS)
def test_without_a_finite_row_the_step_is_zero(name: str) -> None:
    assert FORMS[name](torch.full((2, 2), torch.nan), torch.tensor(R)).tolist() == [0.0, 0.0]


def test_divergence_of_a_row_that_is_not_finite_is_nan() -> None:
    lam = functional.divergence(torch.tensor([[3.0, 4.0], [torch.inf, 0.0]]), torch.tensor(R), 0.25)
    assert float(lam[0]) == pytest.approx(0.1)
    assert torch.isnan(lam[1])


@pytest.mark.parametrize("name", STEPS)
def test_zero_updates_count_and_do_no_harm(name: str) -> None:
    """Each divides by all three; FLTrust and Cone DRAG have no trust in a zero update and divide by trust."""
    updates, r = torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 0.0]]), torch.tensor(R)
    alone = FORMS[name](torch.tensor([[3.0, 4.0]]), r)
    torch.testing.assert_close(FORMS[name](updates, r), alone if name in ("fltrust", "cone_drag") else alone / 3.0)


def test_a_vanished_reference() -> None:
    """DRAG drags nothing; rules that trust the reference do not move; a divergence from nothing is an error."""
    updates, nothing = torch.tensor(X), torch.tensor([1e-13, 0.0])
    torch.testing.assert_close(functional.drag(updates, nothing, 0.5), updates.mean(0))
    assert functional.br_drag(updates, nothing, 0.5).tolist() == [0.0, 0.0]
    assert functional.fltrust(updates, nothing).tolist() == [0.0, 0.0]
    assert functional.cone_drag(updates, torch.tensor(D), nothing).tolist() == [0.0, 0.0]
    with pytest.raises(SpecError, match="divergence: the reference is the zero vector"):
        functional.divergence(updates, nothing, 0.5)


@pytest.mark.parametrize("d", [2, 10_000])
def test_rows_near_the_end_of_float32(d: int) -> None:
    """Sums of |g| leave float32 long before a mean of g does."""
    updates = torch.full((3, d), 3e38)
    updates[1] *= -1.0
    r = torch.ones(d)
    torch.testing.assert_close(functional.mean(updates), torch.full((d,), 1e38))
    torch.testing.assert_close(functional.drag(updates, r, 0.25), torch.full((d,), 2e38))
    torch.testing.assert_close(functional.br_drag(updates, r, 0.25), torch.full((d,), 2.0 / 3.0))
    torch.testing.assert_close(functional.fltrust(updates, r), r)


def test_float64_rows_beyond_the_square_root_of_its_range_are_finite() -> None:
    updates, r = torch.tensor([[3e200, 4e200]], dtype=torch.float64), torch.tensor([0.0, 2.0], dtype=torch.float64)
    torch.testing.assert_close(functional.mean(updates), updates[0])
    torch.testing.assert_close(functional.fltrust(updates, r), torch.tensor([1.2, 1.6], dtype=torch.float64))


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("updates", "message"),
    [
        (X, r"{name}: updates are a list; give an \(n, d\) torch tensor or numpy array"),
        (None, r"{name}: updates are a NoneType"),
        (torch.ones(3), r"{name}: updates have shape \(3,\); give \(n, d\)"),
        (torch.ones(1, 2, 3), r"{name}: updates have shape \(1, 2, 3\)"),
        (torch.ones(0, 2), r"{name}: updates have shape \(0, 2\)"),
        (np.ones((2, 0)), r"{name}: updates have shape \(2, 0\)"),
        (torch.ones(3, 2, dtype=torch.int64), r"{name}: updates are torch.int64; convert them to float32 or float64"),
        (np.ones((3, 2), np.float16), r"{name}: updates are torch.float16"),
    ],
)
def test_updates_that_cannot_be_are_refused(name: str, updates: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message.format(name=name)):
        FORMS[name](updates, torch.tensor(R))


@pytest.mark.parametrize("name", REFERENCED)
@pytest.mark.parametrize(
    ("reference", "message"),
    [
        (torch.ones(3), r"{name}: (reference|root) is \(3,\) and the updates are \(3, 2\); give a \(2,\) vector"),
        (torch.ones(1, 2), r"{name}: (reference|root) is \(1, 2\)"),
        (R, r"{name}: (reference|root) is list"),
        (torch.tensor([torch.nan, 1.0]), r"{name}: (reference|root) holds a NaN or an infinity"),
        (np.array([np.inf, 1.0]), r"{name}: (reference|root) holds a NaN or an infinity"),
    ],
)
def test_references_that_cannot_be_are_refused(name: str, reference: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message.format(name=name)):
        FORMS[name](torch.tensor(X), reference)


@pytest.mark.parametrize("name", ["drag", "br_drag", "divergence"])
@pytest.mark.parametrize("c", [-0.01, 1.01, float("nan"), float("inf"), "0.25", None])
def test_c_outside_its_range_is_refused(name: str, c: Any) -> None:
    with pytest.raises(SpecError, match=rf"^{name}\.c: {c!r} is "):
        getattr(functional, name)(torch.tensor(X), torch.tensor(R), c)


@pytest.mark.parametrize("name", ["drag", "br_drag", "divergence"])
def test_an_unknown_form_of_divergence_is_refused(name: str) -> None:
    with pytest.raises(SpecError, match="kind: 'cosine' is unknown"):
        getattr(functional, name)(torch.tensor(X), torch.tensor(R), 0.25, "cosine")


@pytest.mark.parametrize("c", [0, 1, np.float32(0.25), 0.5])
def test_any_number_in_range_is_a_c(c: Any) -> None:
    assert torch.isfinite(functional.drag(torch.tensor(X), torch.tensor(R), c)).all()


@pytest.mark.parametrize("settings", [{}, {"turn": False}, {"balance": False}, {"turn": False, "balance": False}])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_cone_drag_is_the_rule_of_that_name(settings: dict[str, bool], dtype: torch.dtype) -> None:
    draws = torch.Generator().manual_seed(1)
    updates, directions = (torch.randn(n, 30, generator=draws, dtype=dtype) for n in (9, 4))
    updates[:4] += 9.0 * directions
    updates[4] = 9.0 * directions[1] - updates[4]
    updates[5] = torch.nan
    root = directions.mean(0)
    step = functional.cone_drag(updates, directions, root, **settings)
    assert torch.equal(step, functional.aggregate("cone_drag", updates, directions=directions, root=root, **settings))
    named = functional.aggregate("cone_drag", updates.numpy(), directions=directions.numpy(), root=root.numpy())
    if not settings:
        np.testing.assert_array_equal(named, step.numpy())
    finite = updates[[0, 1, 2, 3, 4, 6, 7, 8]]
    torch.testing.assert_close(functional.cone_drag(finite, directions, root, **settings), step)


def test_cone_drag_keeps_the_digits_of_float64() -> None:
    """One direction, along r and the update: Delta = r."""
    r = torch.tensor([1.0, 1e-12], dtype=torch.float64)
    torch.testing.assert_close(functional.cone_drag(3.0 * r[None], r[None], r), r, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("d", [2, 10_000])
def test_cone_drag_of_rows_near_the_end_of_float32(d: int) -> None:
    """All are on the ray of r, one of them reversed."""
    updates, r = torch.full((3, d), 3e38), torch.ones(d)
    updates[1] *= -1.0
    torch.testing.assert_close(functional.cone_drag(updates, r[None], r), r)


@pytest.mark.parametrize(
    ("directions", "message"),
    [
        (torch.ones(2), r"cone_drag: directions are \(2,\) and the updates are \(3, 2\); give \(K, 2\) with one row"),
        (torch.ones(4, 3), r"cone_drag: directions are \(4, 3\) and the updates are \(3, 2\)"),
        (np.ones((0, 2)), r"cone_drag: directions are \(0, 2\)"),
        (D, r"cone_drag: directions are a list and the updates are \(3, 2\)"),
        (np.array([["a", "b"]]), r"cone_drag: directions are numpy <U1"),
    ],
)
def test_directions_that_cannot_be_are_refused(directions: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        functional.cone_drag(torch.tensor(X), directions, torch.tensor(R))


def test_a_rule_without_its_directions_is_refused() -> None:
    with pytest.raises(SpecError, match=r"aggregate: ConeDrag needs the update of each class .*; give directions"):
        functional.aggregate("cone_drag", torch.tensor(X), root=torch.tensor(R))
