"""Auto momentum: Delta = gbar + (1/kappa - 1) rho r, with kappa and rho measured in every round."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dragfl.aggregates import AutoMomentum
from dragfl.aggregates.auto_momentum import ReferenceState
from dragfl.algorithms import PRESETS
from dragfl.testing import check_aggregate
from tests.aggregates.drive import run_rule
from tests.strategies import QUICK, cohorts, cuts

RULE = AutoMomentum()


def test_contract() -> None:
    check_aggregate(RULE)


def test_by_hand() -> None:
    """Four orthogonal updates (4, 0, 0, 0), ..., (0, 0, 0, 4): gbar = (1, 1, 1, 1), |gbar|^2 = 4, mean |g|^2 = 16.

    kappa = 1/4. The first step is gbar, and r = gbar.
    Then the updates are halved: gbar = (1/2, ...), kappa = 1/4 again, rho = <gbar, r> / |r|^2 = 2/4.
    Delta = 1/2 + (4 - 1) (1/2) 1 = 2 in each place, and r = 1 + (1/2 - 1) / 4 = 7/8.
    """
    X = 4.0 * torch.eye(4)
    first = run_rule(RULE, X)
    assert first.step.tolist() == [1.0] * 4
    assert first.metrics == {"coherence": 0.25, "confirmed": 0.0}
    second = run_rule(RULE, X / 2, state=first.state)
    assert second.step.tolist() == [2.0] * 4
    assert second.state.r.tolist() == [0.875] * 4
    assert second.metrics == {"coherence": 0.25, "confirmed": 0.5}


def test_it_is_fedavgm_while_the_updates_stay_the_same() -> None:
    """Orthogonal updates, the same in every round: kappa = 1/8 and rho = 1, so r = gbar and every later step is 8 gbar.

    8 gbar is the fixed point of m <- beta m + gbar with beta = 1 - kappa = 7/8.
    """
    X, state = torch.eye(8), None
    steps = []
    for t in range(8):
        done = run_rule(RULE, X, state=state, t=t)
        state = done.state
        steps.append(done.step[0].item() * 8)
    assert steps == pytest.approx([1.0] + [8.0] * 7)


def test_opposed_or_orthogonal_reference_leaves_the_mean() -> None:
    """rho is clamped at 0, so Delta = gbar. r moves to gbar, because kappa = 1 for equal updates."""
    X = [[2.0, 0.0], [2.0, 0.0]]
    for r in ([-1.0, 0.0], [0.0, 3.0]):
        done = run_rule(RULE, X, state=ReferenceState(torch.tensor(r)))
        assert done.step.tolist() == [2.0, 0.0]
        assert done.state.r.tolist() == [2.0, 0.0]


def test_equal_updates_are_fedavg() -> None:
    """kappa = 1, so 1/kappa - 1 = 0, whatever the reference."""
    done = run_rule(RULE, [[1.0, 2.0]] * 3, state=ReferenceState(torch.tensor([1.0, 1.0])))
    assert done.step.tolist() == [1.0, 2.0]
    assert done.metrics["coherence"] == pytest.approx(1.0)


def test_one_client_is_fedavg() -> None:
    done = run_rule(RULE, [[3.0, -4.0]], state=ReferenceState(torch.tensor([3.0, -4.0])))
    assert done.step.tolist() == [3.0, -4.0]


def test_coherence_is_at_least_that_of_orthogonal_updates() -> None:
    """g = 5, -4, 1, -1: |gbar|^2 = 1/16, mean |g|^2 = 43/4, a coherence of 1/172. It counts as 1/4.

    With r = 1/4: rho = 1 and Delta = 1/4 + (4 - 1) 1/4 = 1.
    """
    done = run_rule(RULE, [[5.0], [-4.0], [1.0], [-1.0]], state=ReferenceState(torch.tensor([0.25])))
    assert done.metrics == {"coherence": 0.25, "confirmed": 1.0}
    assert done.step.tolist() == [1.0]


@pytest.mark.parametrize("X", [[[0.0, 0.0]] * 3, [[1.0, 2.0], [-1.0, -2.0]]])
def test_zero_mean_keeps_the_reference(X: list[list[float]]) -> None:
    r = torch.tensor([1.0, 1.0])
    done = run_rule(RULE, X, state=ReferenceState(r))
    assert done.step.tolist() == [0.0, 0.0]
    assert done.state.r is r
    assert run_rule(RULE, X).state.r is None, "a first round without a direction sets none"


@QUICK
@given(cohorts(dtype=np.float32))
def test_bounds(pair: tuple[Tensor, Tensor]) -> None:
    """|gbar| <= |Delta| <= S |gbar| and <Delta, gbar> >= |gbar|^2."""
    X, r = pair
    mean = X.double().mean(0)
    step = run_rule(RULE, X, state=ReferenceState(r)).step.double()
    size, slack = float(mean.norm()), 1e-5 * float(X.abs().max())
    assert size - slack <= float(step.norm()) <= len(X) * (size + slack)
    assert float(step @ mean) >= size * (size - slack) - slack * size


@QUICK
@given(cohorts(dtype=np.float32), st.sampled_from([0.125, 4.0, 1024.0]))
def test_scale_equivariance(pair: tuple[Tensor, Tensor], k: float) -> None:
    """Updates and reference times k give a step times k: kappa and rho have no unit."""
    X, r = pair
    once, scaled = (run_rule(RULE, f * X, state=ReferenceState(f * r)) for f in (1.0, k))
    size = float(max(X.abs().max(), r.abs().max()))
    torch.testing.assert_close(scaled.step, k * once.step, rtol=1e-4, atol=1e-5 * k * size)
    torch.testing.assert_close(scaled.state.r, k * once.state.r, rtol=1e-4, atol=1e-5 * k * size)


@QUICK
@given(cohorts(rows=(1, 8), dtype=np.float32), st.data())
def test_any_cut_and_any_order_agree(pair: tuple[Tensor, Tensor], data: st.DataObject) -> None:
    X, r = pair
    order = torch.tensor(data.draw(st.permutations(range(len(X)))))
    once = run_rule(RULE, X, state=ReferenceState(r))
    many = run_rule(RULE, X[order], state=ReferenceState(r), cut=data.draw(cuts(len(X))))
    size = float(max(X.abs().max(), r.abs().max()))
    torch.testing.assert_close(many.step, once.step, rtol=1e-3, atol=1e-4 * size)


def test_preset_has_no_setting_of_its_own() -> None:
    """Only what SCAFFOLD and the plain server step have: the option and the server learning rate."""
    assert set(PRESETS["auto_scaffold"].flat()) == {"option", "server_lr"}
