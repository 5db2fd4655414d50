"""m <- beta m + Delta, theta <- theta + lr m."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dragfl.errors import SpecError
from dragfl.server_steps import SGD, Momentum
from dragfl.server_steps.momentum import MomentumState
from dragfl.types import FederationInfo, NoState, RoundContext

SETTING = FederationInfo(1, 1, 1, (0, 1))


def run(rule: Momentum, steps: list[float]) -> tuple[list[float], Any]:
    """The model after each step, from 0; and the last state."""
    w, state, seen = torch.zeros(1), rule.init(SETTING), []
    for t, step in enumerate(steps):
        w, state = rule.update(state, torch.tensor([step]), w, RoundContext(t, 0.1, 0))
        seen.append(float(w))
    return seen, state


def test_three_steps() -> None:
    """Steps 1, 1, -1 with beta = 0.5: m = 1, 1.5, -0.25 and theta = 1, 2.5, 2.25; half of it with lr = 0.5."""
    seen, state = run(Momentum(beta=0.5), [1.0, 1.0, -1.0])
    assert seen == [1.0, 2.5, 2.25]
    assert state.m.tolist() == [-0.25]
    assert run(Momentum(lr=0.5, beta=0.5), [1.0, 1.0, -1.0])[0] == [0.5, 1.25, 1.125]


def test_a_constant_step_is_lengthened_by_one_over_one_minus_beta() -> None:
    seen, _ = run(Momentum(beta=0.9), [1.0] * 200)
    assert seen[-1] - seen[-2] == pytest.approx(10.0, rel=1e-4)


def test_without_beta_it_is_the_plain_step() -> None:
    w, step, context = torch.tensor([1.0, 2.0]), torch.tensor([0.5, -1.0]), RoundContext(0, 0.1, 0)
    state = MomentumState(torch.tensor([9.0, 9.0]))
    plain = SGD().update(NoState(), step, w, context)[0]
    assert torch.equal(Momentum(beta=0.0).update(state, step, w, context)[0], plain)


def test_arguments_are_not_changed() -> None:
    w, step, state = torch.tensor([1.0]), torch.tensor([2.0]), MomentumState(torch.tensor([3.0]))
    Momentum().update(state, step, w, RoundContext(0, 0.1, 0))
    assert (w.tolist(), step.tolist(), state.m.tolist()) == ([1.0], [2.0], [3.0])  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 1.0}, r"momentum.beta: 1.0 is outside \[0, 1\)"),
        ({"beta": -0.1}, r"momentum.beta: -0.1 is outside \[0, 1\)"),
        ({"beta": float("nan")}, "momentum.beta: nan"),
        ({"lr": -1.0}, "momentum.lr: -1.0 is outside"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Momentum(**settings)
