"""A cohort folded in blocks is the cohort folded at once, and both are the one-shot form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragfl import functional
from dragfl.aggregates import BRDrag, Drag, FLTrust, Mean
from dragfl.aggregates.drag import DragState
from tests.aggregates.drive import run_rule
from tests.strategies import QUICK, cohorts, cuts, strengths

RULES = [
    Mean(),
    Mean(weighting="samples"),
    Drag(c=0.25, alpha=0.6),
    Drag(c=1.0, variant="authors", divergence="angle"),
    BRDrag(c=0.5),
    BRDrag(c=0.25, variant="authors"),
    FLTrust(on_no_trust="root"),
]


def close(a: Any, b: Any, size: float) -> None:
    torch.testing.assert_close(torch.as_tensor(a).double(), torch.as_tensor(b).double(), rtol=1e-4, atol=1e-5 * size)


@QUICK
@given(st.sampled_from(RULES), cohorts(rows=(1, 8), columns=(2, 6), dtype=np.float32), st.data())
def test_any_cut_of_a_cohort_agrees(rule: Any, pair: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    X, r = pair
    cut = data.draw(cuts(len(X)))
    d = len(r)
    state = DragState(r) if isinstance(rule, Drag) else None
    once, many = (run_rule(rule, X, state=state, root=r, segments=(0, 1, d), cut=c) for c in ([slice(None)], cut))
    size = float(max(X.abs().max(), r.abs().max()))
    assert many.partial.count == len(X)
    close(many.step, once.step, size)
    close(many.partial.mean, once.partial.mean, size)
    for name, column in once.partial.per_client.items():
        torch.testing.assert_close(many.partial.per_client[name], column, rtol=1e-5, atol=1e-6, msg=name)
    for name in ("divergence_mean", "divergence_above_1", "trust_mean"):
        assert many.metrics.get(name) == pytest.approx(once.metrics.get(name), abs=1e-6)
    if state is not None:
        close(many.state.r, once.state.r, size)


def test_blocks_add_in_float64() -> None:
    """1 + 2^-30 is more than float32 holds: the sum of two blocks keeps it, a step is float32 again."""
    rule = Mean()
    done = run_rule(rule, [[1.0], [2.0**-30]], cut=[slice(0, 1), slice(1, 2)])
    assert done.partial.total.dtype == torch.float64
    assert float(done.partial.total) == 1.0 + 2.0**-30
    assert done.step.dtype == torch.float32


def test_many_blocks_do_not_lose_what_float32_would() -> None:
    """2^24 + 1 + 1 + ... stays at 2^24 in float32."""
    rows = torch.ones(65, 1)
    rows[0] = 2.0**24
    done = run_rule(Mean(), rows, cut=[slice(i, i + 1) for i in range(65)])
    assert float(done.partial.total) == 2.0**24 + 64


@QUICK
@given(cohorts(dtype=np.float32), strengths, st.sampled_from(["linear", "angle", "shallow"]))
def test_the_classes_are_the_functions(pair: tuple[Tensor, Tensor], c: float, kind: Any) -> None:
    """The arccos of the angle form turns a last digit of a cosine near 1 or -1, 1e-7, into its root, 3e-4."""
    X, r = pair
    size = float(max(X.abs().max(), r.abs().max())) * (100.0 if kind == "angle" else 1.0)
    close(run_rule(Mean(), X).step, functional.mean(X), size)
    drag = run_rule(Drag(c=c, divergence=kind), X, state=DragState(r))
    close(drag.step, functional.drag(X, r, c, kind), size)
    close(drag.partial.per_client["divergence"], functional.divergence(X, r, c, kind), 1.0)
    close(run_rule(BRDrag(c=c, divergence=kind), X, root=r).step, functional.br_drag(X, r, c, kind), size)
    for dtype in (torch.float32, torch.float64):
        wide, reference = X.to(dtype), r.to(dtype)
        assert functional.drag(wide, reference, c, kind).dtype == dtype
        close(functional.drag(wide, reference, c, kind), drag.step, size)
        close(functional.drag(wide.numpy(), reference.numpy(), c, kind), drag.step, size)
