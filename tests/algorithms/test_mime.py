"""Mime and MimeLite, Karimireddy et al. 2020: clients step as a centralised optimiser with the server's state."""

from __future__ import annotations

import numpy as np
import pytest

from tests.algorithms.problems import Problem, Quadratic, close, experiment, line, thetas, watch


def test_mime_by_hand() -> None:
    """beta = 1/2. c = mean of (-4, 8) = 2. Client 1 along (w + 2) / 2, to -1/2 and -7/8; client 2 along w + 1, to -1/2
    and -3/4. theta = -13/16, s = 1.

    Round 2: c = mean of (-4.8125, 6.375) = 0.78125. Client 1 along w / 2 + 1.296875, to -1.2578125 and -1.591796875;
    client 2 along w + 1.703125, to -1.2578125 and -1.48046875. theta = -0.8125 - 0.7236328125.
    """
    run = line({"name": "mime", "momentum": 0.5})
    assert thetas(run) == pytest.approx([-0.8125, -1.5361328125], abs=1e-6)
    close(run.server("correction", "s"), [0.5 * 1.0 + 0.5 * 0.78125])


def test_mimelite_by_hand() -> None:
    """beta = 1/2. Client 1 along (w - 4) / 2, to 1 and 7/4; client 2 along w + 4, to -2 and -3. theta = -5/8, s = 1.

    Round 2: client 1 along w / 2 - 1.5, to 0.28125 and 0.9609375; client 2 along w + 4.5, to -2.5625 and -3.53125.
    """
    assert thetas(line({"name": "mimelite", "momentum": 0.5})) == pytest.approx([-0.625, -1.28515625], abs=1e-6)


@pytest.mark.parametrize("name", ["mime", "mimelite"])
@pytest.mark.parametrize("weighting", ["uniform", "samples"])
def test_rounds(problem: Problem, name: str, weighting: str) -> None:
    """Both gradients of a Mime step are of one minibatch; c is over all the data of the cohort."""
    beta = 0.7
    run, w = problem.run({"name": name, "momentum": beta, "weighting": weighting}), problem.start
    s = np.zeros_like(w)
    for t, cohort in enumerate(run.cohorts):
        p = [problem.size(m) if weighting == "samples" else 1 for m in cohort]
        c = np.average([problem.gradient(m)(w) for m in cohort], axis=0, weights=p)

        def direction(grad, x, w=w, s=s, c=c):  # type: ignore[no-untyped-def]
            return beta * s + (1 - beta) * (grad(x) - grad(w) + c if name == "mime" else grad(x))

        w = w + np.average([problem.update(t, m, w, direction) for m in cohort], axis=0, weights=p)
        s = beta * s + (1 - beta) * c
        close(run.models[t + 1], w)
    close(run.server("correction", "s"), s)


def test_mimelite_without_momentum_is_fedavg(problem: Problem) -> None:
    close(problem.run({"name": "mimelite", "momentum": 0.0}).models, problem.run({}).models, atol=0)


def test_full_gradients_without_momentum_reach_the_optimum() -> None:
    """Every client then descends the mean of all objectives at first order, and stands still where c = 0; with
    everybody present that is the optimum. With half of the clients drawn each round it is not.
    """
    problem = Quadratic()

    def end(**clients: int) -> float:
        table = {"local_steps": 8, "lr": 0.1, **clients}
        algorithm = {"name": "mime", "momentum": 0.0}
        run = watch(experiment(problem.objectives, problem.start, algorithm, clients=table, rounds=30))
        return float(np.linalg.norm(run.models[-1] - problem.best))

    assert end() < 1e-4
    assert end(per_round=2) > 1e-2
