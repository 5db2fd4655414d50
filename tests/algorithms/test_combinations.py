"""Any correction runs with any aggregate and any server step, unless a robust aggregate could not guard it."""

from __future__ import annotations

import numpy as np
import pytest
from examples.quadratic import experiment

from dragfl.algorithms import PARTS
from dragfl.errors import SpecError
from dragfl.types import RefusesAggregates, Robust
from tests.algorithms.problems import STEPS, Problem, close, watch

EIGHT = [([[1.0 + m / 8, 0.0], [0.0, 2.0 - m / 8]], [np.cos(m), np.sin(m)]) for m in range(8)]
ROOT = ([[1.0, 0.0], [0.0, 1.0]], [0.2, 0.1])


def refused(correction: str, aggregate: str) -> bool:
    """Whether the spec check refuses the combination; see docs/robust.md."""
    rule, sender = PARTS["aggregate"][aggregate](), PARTS["correction"][correction]()
    unguarded = correction == "mime" or bool(sender.sends and not getattr(rule, "aggregates_extras", True))
    unsafe = isinstance(sender, RefusesAggregates) and aggregate in sender.unsafe_with
    return isinstance(rule, Robust) and (unguarded or unsafe)


# Not rules that compare classes of the root data: a quadratic problem has one. See engine/test_simulator_directions.py.
@pytest.mark.parametrize("aggregate", [name for name in PARTS["aggregate"] if name not in ("cone_drag", "boba")])
@pytest.mark.parametrize("correction", PARTS["correction"])
def test_two_rounds(correction: str, aggregate: str) -> None:
    if refused(correction, aggregate):
        with pytest.raises(SpecError, match="correction"):
            experiment(EIGHT, [1.5, -1.0], {"correction": correction, "aggregate": aggregate}, ROOT)
        return
    ends = {}
    for server in PARTS["server"]:
        parts = {"correction": correction, "aggregate": aggregate, "server": server}
        clients = {"local_steps": [1, 4], "lr": 0.1, "per_round": 7}
        run = watch(experiment(EIGHT, [1.5, -1.0], parts, ROOT, clients=clients, rounds=2))
        assert [record.metrics["used"] for record in run.records] == [7, 7], server
        assert "skipped" not in run.records[-1].metrics, server
        assert np.isfinite(run.models[-1]).all(), server
        assert (np.abs(np.diff(run.models, axis=0)).max(1) > 1e-4).all(), f"{server}: it does not move"
        ends[server] = tuple(run.models[-1])
    assert len(set(ends.values())) >= len(ends) - 1


@pytest.mark.parametrize("correction", PARTS["correction"])
def test_a_local_rate_that_ends_at_zero(correction: str) -> None:
    """Clients that stand still are used and counted as any others, and what they keep stays finite."""
    lr = {"kind": "linear", "start": 0.1, "end": 0.0, "rounds": 2}
    spec = experiment(EIGHT, [1.5, -1.0], {"correction": correction}, clients={"local_steps": 2, "lr": lr}, rounds=4)
    run = watch(spec)
    assert [record.metrics["used"] for record in run.records] == [8] * 4
    assert np.isfinite(run.models).all()
    kept = run.simulation.federation.store.read(0)
    assert all(bool(value.isfinite().all()) for value in kept.values())


def test_scaffold_under_drag_with_momentum(problem: Problem) -> None:
    """Three papers at once, spelled out: corrected local steps, dragged updates, heavy-ball server."""
    drag = {"name": "drag", "c": 0.2, "alpha": 0.5}
    parts = {"correction": "scaffold", "aggregate": drag, "server": {"name": "momentum", "beta": 0.5}}
    run, w = problem.run(parts), problem.start
    c, mine, r, momentum = np.zeros_like(w), np.zeros((problem.clients, len(w))), None, np.zeros_like(w)
    for t, cohort in enumerate(run.cohorts):
        g = np.array([problem.update(t, m, w, lambda grad, x, m=m, c=c: grad(x) - mine[m] + c) for m in cohort])
        new = mine[cohort] - c - g / (STEPS * problem.lr(t))
        c, mine[cohort] = c + (new - mine[cohort]).sum(0) / problem.clients, new
        r = g.mean(0) if r is None else r
        size = np.linalg.norm(g, axis=1)
        lam = 0.2 * (1 - g @ r / (size * np.linalg.norm(r)))
        step = ((1 - lam)[:, None] * g + (lam * size)[:, None] * r / np.linalg.norm(r)).mean(0)
        r, momentum = 0.5 * r + 0.5 * step, 0.5 * momentum + step
        w = w + momentum
        close(run.models[t + 1], w, atol=3e-5)
