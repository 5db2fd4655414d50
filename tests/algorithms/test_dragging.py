"""DRAG and BR-DRAG, Zhu et al. 2023, and FLTrust, Cao et al. 2021, on which BR-DRAG's root data rest."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Array, Problem, close, line, thetas


def cosine(a: Array, b: Array) -> float:
    return float(a @ b / np.linalg.norm(a) / np.linalg.norm(b))


def test_drag_by_hand() -> None:
    """c = 1/4, alpha = 1. r = mean g = -1/2 < 0: client 2 agrees, v_2 = -4; client 1 is opposed, lambda = 1/2 and
    v_1 = 3/2 - 3/2 = 0. theta = -2. Again r < 0: v = (0, -2), theta = -3, on the way to client 2's own optimum.
    """
    assert thetas(line({"name": "drag", "c": 0.25})) == pytest.approx([-2.0, -3.0], abs=1e-6)


def test_br_drag_by_hand() -> None:
    """c = 1/4, root update r = 3/4 (2 - theta) = 3/2. Client 1 agrees, v_1 = r; client 2 is opposed, v_2 = 0.

    theta = 3/4; then r = 15/16 and theta = 3/4 + 15/32.
    """
    assert thetas(line({"name": "br_drag", "c": 0.25})) == pytest.approx([0.75, 1.21875], abs=1e-6)


def test_fltrust_by_hand() -> None:
    """Only client 1 is trusted and is cut to the root's length: theta = 3/2, then 3/2 + 3/8."""
    assert thetas(line({"name": "fltrust"})) == pytest.approx([1.5, 1.875], abs=1e-6)


def test_drag(problem: Problem) -> None:
    c, alpha = 0.2, 0.6
    run, w = problem.run({"name": "drag", "c": c, "alpha": alpha}), problem.start
    r = None
    for t, cohort in enumerate(run.cohorts):
        g = np.array([problem.update(t, m, w) for m in cohort])
        r = g.mean(0) if r is None else r
        lam = np.array([c * (1 - cosine(row, r)) for row in g])
        size = np.linalg.norm(g, axis=1)
        step = ((1 - lam)[:, None] * g + (lam * size)[:, None] * r / np.linalg.norm(r)).mean(0)
        w, r = w + step, (1 - alpha) * r + alpha * step
        close(run.models[t + 1], w)
        close(run.records[t].clients["divergence"], lam, atol=1e-4)
    close(run.server("aggregate", "r"), r)


def test_br_drag(problem: Problem) -> None:
    c = 0.3
    run, w = problem.run({"name": "br_drag", "c": c}), problem.start
    for t, cohort in enumerate(run.cohorts):
        r = problem.root_update(t, w)
        v = []
        for g in [problem.update(t, m, w) for m in cohort]:
            lam = c * (1 - cosine(g, r))
            v.append((1 - lam) * np.linalg.norm(r) / np.linalg.norm(g) * g + lam * r)
        w = w + np.mean(v, axis=0)
        close(run.models[t + 1], w)


def test_fltrust(problem: Problem) -> None:
    run, w = problem.run({"name": "fltrust"}), problem.start
    for t, cohort in enumerate(run.cohorts):
        r = problem.root_update(t, w)
        g = [problem.update(t, m, w) for m in cohort]
        trust = [max(0.0, cosine(row, r)) for row in g]
        scaled = [ts * np.linalg.norm(r) / np.linalg.norm(row) * row for ts, row in zip(trust, g, strict=True)]
        w = w + np.sum(scaled, axis=0) / sum(trust)
        close(run.models[t + 1], w)


def test_without_pull_drag_is_fedavg(problem: Problem) -> None:
    close(problem.run({"name": "drag", "c": 0.0}).models, problem.run({}).models, atol=1e-6)
