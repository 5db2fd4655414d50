"""DRAG as it runs over rounds: the reference, its edge cases, and where the algorithm goes on a known problem."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dragfl.aggregates import Drag
from dragfl.aggregates.drag import DragState
from dragfl.errors import SpecError
from dragfl.schedules import Schedule
from dragfl.types import FederationInfo, RoundContext, RoundInputs
from tests.aggregates.drive import block, run_rule
from tests.strategies import QUICK, seeds


@QUICK
@given(seeds, st.floats(0.05, 1.0), st.sampled_from(["paper", "authors"]))
def test_the_reference_is_an_average_of_past_steps(seed: int, alpha: float, variant: Any) -> None:
    """r^t = (1-alpha)^t r^0 + sum_i alpha (1-alpha)^(t-1-i) Delta^i, the authors' without its first term."""
    draw = np.random.default_rng(seed)
    rule, state, steps = Drag(c=0.25, alpha=alpha, variant=variant), None, []
    first = None
    for t in range(5):
        done = run_rule(rule, draw.normal(size=(4, 3)) + 0.5, state=state, t=t)
        first = done.plan.r.double() if first is None else first
        steps.append(done.step.double())
        state = done.state
        due = sum(alpha * (1 - alpha) ** (t - i) * step for i, step in enumerate(steps))
        if variant == "paper":
            due = due + (1 - alpha) ** (t + 1) * first
        torch.testing.assert_close(state.r.double(), due, rtol=1e-5, atol=1e-5)


def test_alpha_one_makes_the_last_step_the_reference() -> None:
    done = run_rule(Drag(c=0.25, alpha=1.0), [[1.0, 2.0], [3.0, -1.0]])
    assert torch.equal(done.state.r, done.step)


def test_what_is_needed_when() -> None:
    """The mean before there is a reference, unless round 0 is a FedAvg round; then nothing."""
    assert Drag().needs(DragState()) == {"mean"}
    assert Drag(bootstrap="fedavg").needs(DragState()) == frozenset()
    assert Drag().needs(DragState(torch.ones(2))) == frozenset()


def test_fedavg_bootstrap_takes_the_first_step_as_reference() -> None:
    done = run_rule(Drag(c=0.25, bootstrap="fedavg"), [[2.0, 0.0], [0.0, 2.0]])
    assert done.step.tolist() == [1.0, 1.0]
    assert done.state.r.tolist() == [1.0, 1.0]
    assert done.metrics["divergence_mean"] == 0.0


@pytest.mark.parametrize("variant", ["paper", "authors"])
@pytest.mark.parametrize("size", [0.0, 1e-13])
def test_a_vanished_reference_makes_a_fedavg_round_and_is_seeded_anew(variant: Any, size: float) -> None:
    state = DragState(torch.tensor([size, 0.0]))
    done = run_rule(Drag(c=0.5, alpha=0.3, variant=variant), [[2.0, 0.0], [0.0, 4.0]], state=state)
    assert done.step.tolist() == [1.0, 2.0]
    assert done.state.r.tolist() == [1.0, 2.0]
    assert "reference_cosine" not in done.metrics


def test_updates_that_cancel_in_the_first_round_leave_no_reference() -> None:
    """g and -g have mean zero: nothing is dragged, the step is zero, and the next round asks for a mean again."""
    rule = Drag(c=0.25)
    done = run_rule(rule, [[1.0, 2.0], [-1.0, -2.0]])
    assert done.step.tolist() == [0.0, 0.0]
    assert done.state.r is None
    assert rule.needs(done.state) == {"mean"}


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_a_round_without_movement_keeps_the_reference(alpha: float) -> None:
    r = torch.tensor([0.6, -0.8])
    done = run_rule(Drag(c=0.25, alpha=alpha), torch.zeros(3, 2), state=DragState(r))
    assert done.step.tolist() == [0.0, 0.0]
    assert torch.equal(done.state.r, r)


def test_a_zero_step_does_not_erase_the_reference() -> None:
    """c = 1/4 turns the exact reversal into nothing: Delta = 0 from an update that is not, and alpha = 1."""
    r = torch.tensor([1.0, 0.0])
    done = run_rule(Drag(c=0.25, alpha=1.0), [[-5.0, 0.0]], state=DragState(r))
    assert done.step.tolist() == [0.0, 0.0]
    assert torch.equal(done.state.r, r)


def test_a_zero_update_counts_and_does_not_diverge() -> None:
    """S = 2 although one client did not move: Delta = v_1 / 2 with v_1 = 0.75 (0,2) + 0.25 * 2 (1,0) = (0.5, 1.5)."""
    done = run_rule(Drag(c=0.25), [[0.0, 2.0], [0.0, 0.0]], state=DragState(torch.tensor([1.0, 0.0])))
    torch.testing.assert_close(done.step, torch.tensor([0.25, 0.75]))
    assert done.partial.per_client["divergence"].tolist() == [0.25, 0.0]
    assert done.partial.per_client["cosine"].tolist() == [0.0, 1.0]


def test_a_tensor_whose_reference_vanished_is_not_dragged_in_the_authors_form() -> None:
    """r = (1,0 | 0): x = 0 and lambda = 0.25 for g = (0,2 | 4); the last tensor has no direction to be dragged to.

    |g| = sqrt 20; v = 0.75 (0,2 | 4) + 0.25 (|(0,2)| (1,0) | 0) = (0.5, 1.5 | 3).
    """
    state = DragState(torch.tensor([1.0, 0.0, 0.0]))
    done = run_rule(Drag(c=0.25, variant="authors"), [[0.0, 2.0, 4.0]], state=state, segments=(0, 2, 3))
    torch.testing.assert_close(done.step, torch.tensor([0.5, 1.5, 3.0]))


def test_schedules_are_read_at_the_round() -> None:
    """c falls from 0.5 to 0 in 10 rounds and alpha from 1 to 0.5: 0.25 and 0.75 in round 5."""
    rule = Drag(c=Schedule(0.5, "linear", 0.0, 10), alpha=Schedule(1.0, "linear", 0.5, 10))
    info = FederationInfo(2, 1, 1, (0, 2))
    plan = rule.begin(DragState(torch.ones(2)), RoundContext(t=5, lr=0.1, seed=0), RoundInputs(), info)
    assert (plan.c, plan.alpha) == (0.25, 0.75)


def test_metrics_of_a_round() -> None:
    """g = (3,4), (0,2), (-5,0) with r = (1,0), c = 0.5: lambda = 0.2, 0.5, 1 and v = (3.4,3.2), (1,1), (5,0).

    The sum of g is (-2, 6), its cosine with r is -2/sqrt 40. The pairwise cosines of v are
    6.6/(sqrt(21.8) sqrt 2), 3.4/sqrt(21.8) and 1/sqrt 2, with mean 0.8118664.
    """
    done = run_rule(Drag(c=0.5), [[3.0, 4.0], [0.0, 2.0], [-5.0, 0.0]], state=DragState(torch.tensor([1.0, 0.0])))
    pairs = (6.6 / np.sqrt(21.8 * 2), 3.4 / np.sqrt(21.8), 1 / np.sqrt(2))
    assert done.metrics["divergence_mean"] == pytest.approx(1.7 / 3)
    assert done.metrics["divergence_above_1"] == 0.0
    assert done.metrics["reference_cosine"] == pytest.approx(-2 / np.sqrt(40), rel=1e-6)
    assert done.metrics["pairwise_cosine"] == pytest.approx(np.mean(pairs), rel=1e-6)
    assert run_rule(Drag(c=1.0), [[1.0], [-3.0]]).metrics["divergence_above_1"] == 0.5


def quadratic(c: float, alpha: float, start: float, rounds: int) -> float:
    """theta after so many rounds of one local step of size 0.1 on F = (theta -+ 1)^2 / 2."""
    rule, state, theta = Drag(c=c, alpha=alpha), None, start
    for t in range(rounds):
        done = run_rule(rule, block([[-0.1 * (theta - 1.0)], [-0.1 * (theta + 1.0)]]), state=state, t=t)
        theta, state = theta + float(done.step), done.state
    return theta


@pytest.mark.parametrize("alpha", [0.3, 1.0])
@pytest.mark.parametrize(("c", "limit"), [(0.0, 0.0), (0.1, 0.25), (0.2, 2.0 / 3.0), (0.25, 1.0)])
def test_where_drag_settles_between_two_unlike_clients(c: float, limit: float, alpha: float) -> None:
    """Between the optima -1 and 1 and with r > 0, client 2 is reversed: v_2 = (1 - 4c) g_2 while v_1 = g_1.

    The step vanishes where (1 - theta) = (1 - 4c)(1 + theta), theta = 2c/(1 - 2c): not at 0, unless c = 0.
    """
    assert quadratic(c, alpha, -3.0, 250) == pytest.approx(limit, abs=1e-3)
    assert quadratic(c, alpha, 3.0, 250) == pytest.approx(-limit, abs=1e-3)


@pytest.mark.parametrize("alpha", [0.3, 1.0])
def test_drag_runs_away_between_two_unlike_clients_for_c_above_a_quarter(alpha: float) -> None:
    """Beyond theta = 1 both clients pull back, but 1 - 4c < 0 turns each into a push along r that never flips."""
    early, late = quadratic(0.3, alpha, -3.0, 250), quadratic(0.3, alpha, -3.0, 500)
    assert early > 1.0
    assert late > 20.0 * early


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"c": -0.1}, r"drag.c: -0.1 is outside \[0, 1\]"),
        ({"c": 1.5}, r"drag.c: 1.5 is outside \[0, 1\]"),
        ({"c": float("nan")}, r"drag.c: nan is outside \[0, 1\]"),
        ({"c": "0.1"}, r"drag.c: '0.1' is a str; give a number or a schedule"),
        ({"alpha": 0.0}, r"drag.alpha: 0.0 is outside \(0, 1\]"),
        ({"alpha": 1.1}, r"drag.alpha: 1.1 is outside \(0, 1\]"),
        ({"c": Schedule(0.5, "linear", 1.5, 10)}, r"drag.c: .*is outside \[0, 1\]"),
        ({"alpha": Schedule(0.5, "linear", 0.0, 10)}, r"drag.alpha: .*is outside \(0, 1\]"),
        ({"divergence": "lineal"}, r"drag.divergence: 'lineal' is unknown; did you mean 'linear'\?"),
        ({"variant": "author"}, r"drag.variant: 'author' is unknown; did you mean 'authors'\?"),
        ({"bootstrap": "mean"}, r"drag.bootstrap: 'mean' is unknown"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Drag(**settings)


def test_alpha_may_approach_zero_without_reaching_it() -> None:
    Drag(alpha=Schedule(1.0, "inverse_sqrt"))
