"""Pipelines of robust rules: what the last rule sees, and which client a suspicion belongs to."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import dragfl
from dragfl.algorithms import chain
from dragfl.engine.aggregation import Sums
from dragfl.types import FederationInfo, RoundContext, RoundInputs, Updates


def updates(rows: list[list[float]]) -> Updates:
    delta = torch.tensor(rows)
    return Updates(delta, torch.ones(len(rows), dtype=torch.float64), torch.arange(len(rows)))


def test_drag_after_nnm_starts_from_the_mean_of_the_mixed_rows() -> None:
    """Four updates near (1, 0) and one of (-1000, 0). After NNM with f = 1 the four are the mean of themselves and the
    fifth a mean of itself and three of them; DRAG's first reference is the mean of those rows. Median-of-means or not,
    what counts is that it is not (-199, 0), the mean of what was sent, times anything.
    """
    rule = chain("nnm", "drag", f=1)
    info = FederationInfo(2, 5, 5, (0, 2))
    sent = updates([[1.0, 0.0], [1.0, 0.1], [1.0, -0.1], [1.0, 0.0], [-1000.0, 0.0]])
    state = rule.init(info)
    assert "mean" not in rule.needs(state)
    plan = rule.begin(state, RoundContext(0, 0.1, 0), RoundInputs(), info)
    _, after, _ = rule.finish(state, plan, rule.fold(plan, sent))
    rows = dragfl.functional.nnm(sent.delta, f=1)
    step = dragfl.functional.drag(rows, rows.mean(0), c=0.25)
    torch.testing.assert_close(after.r, step, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["drag", "nnm+drag"])
def test_drag_takes_updates_of_both_dtypes_and_sums_in_float64(name: str, dtype: torch.dtype) -> None:
    """Sums across blocks are float64, and so is the mean of the rows that a chain passes on."""
    X = torch.tensor([[1.0, 0.0], [1.0, 0.5], [0.5, -0.5]], dtype=dtype)
    settings = {"f": 0} if "+" in name else {}
    rows = dragfl.functional.nnm(X, f=0) if "+" in name else X
    step = dragfl.functional.aggregate(name, X, **settings)
    torch.testing.assert_close(step, dragfl.functional.drag(rows, rows.mean(0), c=0.25), rtol=1e-5, atol=1e-6)
    rule, info = chain("nnm", "drag", f=0), FederationInfo(2, 3, 3, (0, 2))
    state = rule.init(info)
    plan = rule.begin(state, RoundContext(0, 0.1, 0), RoundInputs(), info)
    wide = Sums([rule.fold(plan, updates(X.float().tolist()))]).partial
    assert wide is not None and rule.finish(state, plan, wide)[1].r.dtype == torch.float32


@pytest.mark.parametrize(
    "parts", [({"name": "bucketing", "size": 1}, "krum"), ({"name": "bucketing", "size": 1}, "nnm", "krum")]
)
def test_suspicion_is_of_the_client_and_not_of_the_shuffled_row(parts: tuple[Any, ...]) -> None:
    rule = chain(*parts, f=1)
    info = FederationInfo(2, 9, 9, (0, 2))
    sent = updates([[1.0, 0.01 * i] for i in range(9)])
    sent.delta[3] = torch.tensor([-500.0, 0.0])
    state = rule.init(info)
    plan = rule.begin(state, RoundContext(0, 0.1, 0), RoundInputs(), info)
    assert int(rule.fold(plan, sent).per_client["suspicion"].argmax()) == 3
