"""The vectorised simulator computes what the library computes."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from examples.quadratic import experiment, path
from hypothesis import given
from hypothesis import strategies as st

from dragfl import functional
from dragfl.aggregates import Drag
from dragfl.corrections import Scaffold
from dragfl.schedules import Schedule
from dragfl.theory.simulation import drag_steps, pull_to, simulate, two_pairs
from dragfl.types import FederationInfo, LocalResult, RoundContext, RoundInputs
from tests.aggregates.drive import run_rule
from tests.strategies import QUICK, seeds, strengths

CENTRES = np.array([[1.0, 0.5], [-2.0, 1.0], [0.5, -3.0]])
START = np.array([[-3.0, -2.0]])


@QUICK
@given(seeds, strengths, st.sampled_from([0.0, 1e-6, 1.0, 1e6]))
def test_a_step_is_that_of_the_functional_form(seed: int, c: float, size: float) -> None:
    """Also with a zero update, a zero reference and any scale."""
    draws = np.random.default_rng(seed)
    X, r = draws.normal(size=(3, 5, 4)), draws.normal(size=(3, 4))
    X[0, 1], X[1], r[2] = 0.0, size * X[1], 0.0
    for updates, reference, step in zip(X, r, drag_steps(X, r, c), strict=True):
        np.testing.assert_allclose(step, functional.drag(updates, reference, c), rtol=1e-9, atol=1e-9 * max(1.0, size))


@pytest.mark.parametrize("correction", ["none", "scaffold"])
@pytest.mark.parametrize("alpha", [1.0, 0.4])
def test_a_run_is_that_of_the_engine(correction: str, alpha: float) -> None:
    """Five local steps a round, with a c and a learning rate that fall; the engine computes in float32."""
    c, lr = Schedule(0.2, "inverse_sqrt", period=10), Schedule(0.1, "inverse_sqrt", period=20)
    tables = {name: {"kind": s.kind, "start": s.start, "period": s.period} for name, s in (("c", c), ("lr", lr))}
    rule = {"correction": correction, "aggregate": {"name": "drag", "c": tables["c"], "alpha": alpha}}
    spec = experiment(
        [(np.eye(2), b) for b in CENTRES], START[0], rule, clients={"local_steps": 5, "lr": tables["lr"]}, rounds=30
    )
    ours = simulate(pull_to(CENTRES), START, 3, 30, c=c, lr=lr, steps=5, alpha=alpha, scaffold=correction == "scaffold")
    np.testing.assert_allclose([START, *ours], path(spec)[:, None], atol=2e-5)


def test_a_noisy_run_is_that_of_scaffold_and_drag() -> None:
    """The parts of the library, driven by hand with the same noise: two local steps, ten rounds."""
    lr, steps, rounds = 0.1, 2, 10
    noise = np.random.default_rng(0).normal(size=(rounds * steps, 3, 2))
    given = iter(noise)
    ours = list(
        simulate(lambda w: w - CENTRES + next(given), START, 3, rounds, c=0.2, lr=lr, steps=steps, scaffold=True)
    )
    info = FederationInfo(dim=2, clients=3, per_round=3, segments=(0, 2))
    scaffold, drag = Scaffold(), Drag(c=0.2)
    server, state = scaffold.init(info), None
    mine = [{"c": torch.zeros(2)} for _ in range(3)]
    model, left = torch.tensor(START[0], dtype=torch.float32), iter(noise)
    for t in range(rounds):
        context = RoundContext(t=t, lr=lr, seed=0)
        sent = scaffold.broadcast(server, context, RoundInputs())
        local = [model.clone() for _ in range(3)]
        for _ in range(steps):
            drawn = torch.tensor(next(left), dtype=torch.float32)
            for m, w in enumerate(local):
                shift = scaffold.affine(mine[m], sent, context).shift
                w -= lr * (w - torch.tensor(CENTRES[m], dtype=torch.float32) + drawn[m] + shift)
        sums = torch.zeros(2)
        for m, w in enumerate(local):
            result = LocalResult(delta=w - model, steps=steps, lr=lr, examples=1, full_gradient=lambda: torch.zeros(2))
            extra, mine[m] = scaffold.client_finish(result, mine[m], sent, context)
            sums += extra["dc"]
        done = run_rule(drag, torch.stack([w - model for w in local]), state=state, t=t)
        _, server = scaffold.server_finish(server, {"dc": sums}, done.step, info, context)
        model, state = model + done.step, done.state
        np.testing.assert_allclose(ours[t][0], model, atol=2e-5)


def test_runs_do_not_touch_each_other_and_diverged_ones_stay() -> None:
    starts = np.array([[3.0, 0.0], [30.0, 0.0]])
    both = list(simulate(pull_to(CENTRES), starts, 3, 5, c=np.array([0.1, 0.2]), lr=0.5, limit=20.0))
    alone = list(simulate(pull_to(CENTRES), starts[:1], 3, 5, c=0.1, lr=0.5))
    np.testing.assert_array_equal(both[-1][:1], alone[-1])
    np.testing.assert_array_equal(both[-1][1], starts[1])


def test_two_pairs_have_their_angle() -> None:
    """At 60 degrees: half of the angle to either side of the first axis, cos 30 = sqrt(3)/2."""
    np.testing.assert_allclose(two_pairs(np.pi / 3)[0], [np.sqrt(3) / 2, 0.5])
    assert two_pairs(1.0).sum() == pytest.approx(0.0)
