"""FLTrust's edge cases."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given

from dragfl import functional
from dragfl.aggregates import FLTrust
from dragfl.arithmetic import norm
from dragfl.types import FederationInfo, NoState, RoundContext, RoundInputs
from tests.aggregates.drive import run_rule
from tests.strategies import QUICK, cohorts


def test_the_root_update_is_needed() -> None:
    rule = FLTrust()
    assert rule.needs(NoState()) == {"root"}
    with pytest.raises(ValueError, match="fltrust needs the root update"):
        rule.begin(NoState(), RoundContext(0, 0.1, 0), RoundInputs(), FederationInfo(2, 1, 1, (0, 2)))


def test_without_trust_the_round_is_skipped_or_follows_the_root() -> None:
    rows, root = [[-1.0, 0.0], [0.0, 3.0], [0.0, 0.0]], [2.0, 0.0]
    skipped, followed = (run_rule(FLTrust(on_no_trust=what), rows, root=root) for what in ("skip", "root"))
    assert skipped.step.tolist() == [0.0, 0.0]
    assert followed.step.tolist() == [2.0, 0.0]
    assert skipped.metrics["trust_mean"] == 0.0
    assert functional.fltrust(torch.tensor(rows), torch.tensor(root)).tolist() == [0.0, 0.0]


def test_a_zero_update_has_no_trust() -> None:
    """It is no opinion, not agreement: the step is that of the other client, |r| g/|g| = 2 (0.6, 0.8)."""
    done = run_rule(FLTrust(), [[0.0, 0.0], [3.0, 4.0]], root=[0.0, 2.0])
    assert done.partial.per_client["trust"].tolist() == pytest.approx([0.0, 0.8])
    torch.testing.assert_close(done.step, torch.tensor([1.2, 1.6]))


@pytest.mark.parametrize("size", [0.0, 1e-13])
def test_a_zero_root_update_trusts_no_client(size: float) -> None:
    done = run_rule(FLTrust(), [[3.0, 4.0]], root=[size, 0.0])
    assert done.step.tolist() == [0.0, 0.0]
    assert done.partial.per_client["trust"].tolist() == [0.0]


@QUICK
@given(cohorts(dtype=np.float32))
def test_fltrust_is_its_formula_and_never_longer_than_the_root(pair: tuple[torch.Tensor, torch.Tensor]) -> None:
    X, r = pair
    g, root = X.double().numpy(), r.double().numpy()
    size = np.linalg.norm(g, axis=1)
    moved = size > 0
    unit = g[moved] / size[moved, None]
    trust = np.clip(unit @ root / np.linalg.norm(root), 0.0, 1.0)
    step = functional.fltrust(X, r)
    assert norm(step) <= norm(r) * (1 + 1e-6)
    if trust.sum() > 1e-6:
        due = np.linalg.norm(root) * (trust @ unit) / trust.sum()
        np.testing.assert_allclose(step.numpy(), due, rtol=1e-3, atol=1e-4 * np.linalg.norm(root))
        torch.testing.assert_close(run_rule(FLTrust(), X, root=r).step, step, rtol=1e-4, atol=1e-5 * norm(r))
