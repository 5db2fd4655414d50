"""SCAFFOLD, Karimireddy et al. 2020: direction = g - c_m + c."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.algorithms.problems import Problem, Quadratic, close, experiment, line, thetas, watch


def test_option_two_by_hand() -> None:
    """Round 1 is FedAvg's, theta = -1/2, and with U eta = 1 c_m = -g_m = (-3, 4), c = 1/2.

    Round 2: client 1 steps along w - 4 + 3 + 1/2 = w - 1/2, from -1/2 to 0 and 1/4, g = 3/4; client 2 along
    2 w + 8 - 4 + 1/2, from -1/2 to -9/4 where it is zero, g = -7/4. theta = -1/2 - 1/2.
    c_1 = -3 - 1/2 - 3/4 = -4.25, c_2 = 4 - 1/2 + 7/4 = 5.25, c = 1/2.
    """
    run = line({"name": "scaffold"})
    assert thetas(run) == pytest.approx([-0.5, -1.0], abs=1e-6)
    close([run.kept(0, "c")[0], run.kept(1, "c")[0], run.server("correction", "c")[0]], [-4.25, 5.25, 0.5])


def test_option_one_by_hand() -> None:
    """c_m is the gradient at theta = 0: (-4, 8), c = 2. Round 2 from -1/2: client 1 along w - 4 + 4 + 2, to -5/4 and
    -13/8; client 2 along 2 w + 8 - 8 + 2, to -1 and -1. theta = -1/2 - (9/8 + 1/2) / 2, near the optimum -4/3.
    """
    assert thetas(line({"name": "scaffold", "option": "I"})) == pytest.approx([-0.5, -1.3125], abs=1e-6)


@pytest.mark.parametrize("option", ["I", "II"])
def test_rounds(problem: Problem, option: str) -> None:
    """The local rate changes every round: option II divides by the one that was applied."""
    run, w = problem.run({"name": "scaffold", "option": option, "server_lr": 0.8}), problem.start
    c, mine = np.zeros_like(w), np.zeros((problem.clients, len(w)))
    for t, cohort in enumerate(run.cohorts):
        sent, change, updates = w, np.zeros_like(w), []
        for m in cohort:
            g = problem.update(t, m, sent, lambda grad, x, m=m, c=c: grad(x) - mine[m] + c)
            new = problem.gradient(m)(sent) if option == "I" else mine[m] - c - g / (3 * problem.lr(t))
            change, mine[m] = change + new - mine[m], new
            updates.append(g)
        c, w = c + change / problem.clients, w + 0.8 * np.mean(updates, axis=0)
        close(run.models[t + 1], w)
    close(run.server("correction", "c"), c)
    close([run.kept(m, "c") for m in range(problem.clients)], mine)


def test_own_number_of_steps() -> None:
    """Clients that make 1 to 4 steps divide by their own number: c_m is the mean of the directions they took, so in
    the first round c_m = -g_m / (U_m eta) with c = c_m = 0.
    """
    problem = Quadratic(history=((0, 1, 2, 3),) * 4)
    run = problem.run({"name": "scaffold"}, clients={"local_steps": [1, 4]})
    steps, w = run.steps(0), problem.start
    assert len(set(steps.values())) > 1
    mine = np.stack([-problem.update(0, m, w, steps=steps[m]) / (steps[m] * problem.lr(0)) for m in range(4)])
    second = [problem.update(1, m, run.models[1], lambda g, x, m=m: g(x) - mine[m] + mine.mean(0), steps[m])
              for m in range(4)]  # fmt: skip
    close(run.models[2], run.models[1] + np.mean(second, axis=0))


CLIENTS = 4
histories = st.lists(
    st.sets(st.integers(0, CLIENTS - 1), min_size=1).map(lambda who: tuple(sorted(who))), min_size=1, max_size=8
)


@given(history=histories, option=st.sampled_from(["I", "II"]), steps=st.sampled_from([1, 3, [1, 4]]))
@settings(max_examples=40, deadline=None)
def test_c_is_the_mean_of_all_c_m(history: list[tuple[int, ...]], option: str, steps: object) -> None:
    """After any history, with clients that were never seen at zero."""
    spec = experiment(
        Quadratic().objectives,
        [3.0, -1.0],
        {"name": "scaffold", "option": option},
        clients={"local_steps": steps, "lr": 0.1},
        rounds=len(history),
    )
    run = watch(spec, history)
    mine = np.stack([run.kept(m, "c") for m in range(CLIENTS)])
    seen = {m for cohort in history for m in cohort}
    assert all(mine[m].any() == (m in seen) for m in range(CLIENTS))
    close(run.server("correction", "c"), mine.mean(0), atol=1e-5 * (1 + np.abs(mine).max()))
