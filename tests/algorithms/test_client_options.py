"""Every algorithm with every option of local training: it runs in its paper's form, or is refused with a reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.arithmetic import effective_steps
from dragfl.errors import SpecError
from tests.algorithms.problems import Array, Direction, Gradient, Problem, Quadratic, close, line, plain, thetas

OPTIONS: dict[str, Any] = {
    "momentum": 0.5,
    "weight_decay": 0.01,
    "clip_norm": 0.5,
    "augment": "flip+crop",
    "availability": 0.7,
}
REFUSED = {  # option -> preset -> a word of the reason
    "momentum": {"mime": "server's momentum", "mimelite": "server's momentum", "fedcm": "already have a momentum"},
    "clip_norm": {
        "scaffold": "control variate",
        "auto_scaffold": "control variate",
        "feddc": "mean of clipped gradients",
        "mime": "not clipped",
        "mimelite": "not clipped",
        "fednova": "weights a_m",
    },
}
TABLES: dict[str, Any] = {
    "rounds": 2,
    "seed": 1,
    "data": {"dataset": "digits", "partition": {"kind": "dirichlet_class", "a": 1.0}},
    "root": {"size": 30},
    "model": {"name": "logistic"},
    "evaluation": {"every": 5},
}


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_runs_or_is_refused(name: str) -> None:
    clients = {"total": 12, "local_steps": 2, "batch_size": 8, "lr": 0.05}
    ends = {}
    for option, value in [("none", None), *OPTIONS.items()]:
        made = {**TABLES, "algorithm": {"name": name}, "clients": clients | ({option: value} if value else {})}
        if word := REFUSED.get(option, {}).get(name):
            with pytest.raises(SpecError, match=rf"clients\.{option}: {value} .*algorithm\.\w+ = '\w+': .*{word}"):
                dragfl.load(made)
            continue
        simulation = dragfl.simulate(dragfl.load(made))
        records = list(simulation)
        assert [r.metrics["used"] + r.metrics.get("missing", 0) for r in records] == [12, 12]
        assert all("skipped" not in r.metrics for r in records), option
        assert bool(simulation.state.w.isfinite().all())
        ends[option] = simulation.state.w.numpy().tobytes()
    if name == "root_only":  # no client changes its model
        assert ends.pop("availability") == ends["none"]
    assert len(set(ends.values())) == len(ends), "every option changes the model"


def heavy_ball(momentum: float, direction: Direction = plain) -> Direction:
    """v <- momentum v + direction; a new one for every client and round."""
    v: Any = 0.0

    def step(grad: Gradient, x: Array) -> Array:
        nonlocal v
        v = momentum * v + direction(grad, x)
        return np.asarray(v)

    return step


def weights(momentum: float, steps: int) -> list[float]:
    """The weight of the gradient of each step in the update: 1 + momentum + ... over the steps that follow it."""
    return [sum(momentum**i for i in range(steps - k)) for k in range(steps)]


def test_scaffold_with_momentum_by_hand() -> None:
    """Momentum 1/2, two steps of 1/2: |a|_1 = 3/2 + 1, divisor 5/4.

    Client 1, gradient w - 4: to 2, v = -4; then d = -2, v = -4, to 4: g = 4. Client 2, gradient 2 w + 8: to -4, v = 8;
    then d = 0, v = 4, to -6: g = -6. c_1 = -4 / 1.25 = -3.2 = -(1.5 * 4 + 1 * 2) / 2.5, the weighted mean of its
    gradients; c_2 = 6 / 1.25 = 4.8, c = 0.8, theta = -1.
    """
    run = line({"name": "scaffold"}, clients={"momentum": 0.5}, rounds=1)
    assert thetas(run) == pytest.approx([-1.0], abs=1e-6)
    close([run.kept(0, "c")[0], run.kept(1, "c")[0], run.server("correction", "c")[0]], [-3.2, 4.8, 0.8])


@pytest.mark.parametrize(("name", "option"), [("scaffold", "I"), ("scaffold", "II"), ("feddc", None)])
def test_control_variates_with_momentum(problem: Problem, name: str, option: str | None) -> None:
    """c_m is the mean of the client's gradients, each with its weight in the update."""
    rho, alpha = 0.6, 0.05
    settings = {"strength": alpha} if option is None else {"option": option}
    run, w = problem.run({"name": name, **settings}, clients={"momentum": rho}), problem.start
    c, h, mine, drift = np.zeros_like(w), np.zeros_like(w), *np.zeros((2, problem.clients, len(w)))
    for t, cohort in enumerate(run.cohorts):
        sent, change, updates = w, np.zeros_like(w), []
        for m in cohort:
            seen: list[Array] = []

            def direction(
                grad: Gradient, x: Array, m: int = m, c: Array = c, w: Array = sent, seen: Any = seen
            ) -> Array:
                pull = alpha * (x - w + drift[m]) if option is None else 0.0
                seen.append(grad(x) + pull)
                return np.asarray(seen[-1] - mine[m] + c)

            updates.append(problem.update(t, m, sent, heavy_ball(rho, direction)))
            a = weights(rho, len(seen))
            mean = sum(weight * g for weight, g in zip(a, seen, strict=True)) / sum(a)
            new = problem.gradient(m)(sent) if option == "I" else mean
            change, mine[m] = change + new - mine[m], new
            drift[m] += updates[-1]
        h = h + sum(updates) / problem.clients if option is None else h
        c, w = c + change / problem.clients, w + np.mean(updates, axis=0) + h
        close(run.models[t + 1], w)


@pytest.mark.parametrize("prox", [0.0, 0.5])
def test_fednova_with_momentum(problem: Problem, prox: float) -> None:
    """|a_m|_1 from the definition: what an impulse in each step adds to the update, summed."""
    rho = 0.6
    parts = {
        "correction": {"name": "prox", "mu": prox},
        "aggregate": {"name": "fednova", "prox": prox, "weighting": "uniform"},
    }
    run, w = problem.run(parts, clients={"local_steps": [1, 8], "momentum": rho}), problem.start
    assert len({steps for t in range(len(run.cohorts)) for steps in run.steps(t).values()}) > 1
    for t, cohort in enumerate(run.cohorts):
        tau, sent, lr = run.steps(t), w, problem.lr(t)
        pull: Callable[..., Any] = lambda grad, x, w=sent: grad(x) + prox * (x - w)  # noqa: E731
        g = {m: problem.update(t, m, w, heavy_ball(rho, pull), tau[m]) for m in cohort}
        a = {m: sum(impulse(k, tau[m], lr, rho, prox) for k in range(tau[m])) for m in cohort}
        tau_eff = np.mean([sum(weights(rho, tau[m])) for m in cohort])
        w = w + tau_eff * np.mean([g[m] / a[m] for m in cohort], axis=0)
        close(run.models[t + 1], w)
        assert run.records[t].metrics["effective_steps"] == pytest.approx(tau_eff)


def impulse(at: int, steps: int, lr: float, rho: float, prox: float) -> float:
    """How far a gradient of 1 in step `at` alone moves the model, in units of lr."""
    x = v = 0.0
    for k in range(steps):
        v = rho * v + (1.0 if k == at else 0.0) + prox * x
        x -= lr * v
    return -x / lr


def test_fednova_with_equal_steps_and_momentum_is_fedavg(problem: Problem) -> None:
    nova, fedavg = ({"name": name, "weighting": "uniform"} for name in ("fednova", "fedavg"))
    close(*(problem.run(a, clients={"momentum": 0.6}).models for a in (nova, fedavg)), atol=2e-6)
    assert effective_steps(3, 0.6) == pytest.approx(sum(weights(0.6, 3)))


@pytest.mark.parametrize("name", [name for name in PRESETS if name not in ("cone_drag", "boba")])  # one class
def test_weight_decay_is_a_term_of_every_objective(name: str) -> None:
    """A decay of k adds k/2 |w|^2 to F_m = (w - b)' A (w - b) / 2: up to a constant the same as A + k I around
    (A + k I)^-1 A b. Every algorithm gives the same models, so every gradient in its formulas has the term.
    """
    k, given = 0.3, Quadratic()

    def regularised(objective: Any) -> Any:
        A, b = map(np.asarray, objective)
        bigger = A + k * np.eye(2)
        return bigger, np.linalg.solve(bigger, A @ b)

    changed = Quadratic(tuple(map(regularised, given.objectives)), regularised(given.root))
    settings = (
        {"f": 0} if name in ("krum", "multi_krum", "bulyan", "trimmed_mean", "mea_med", "mda", "caf", "dnc") else {}
    )
    algorithm = {"name": name, **settings}
    decayed, plainly = given.run(algorithm, clients={"weight_decay": k}), changed.run(algorithm)
    close(decayed.models, plainly.models, atol=2e-5)
    if name == "fedavg":
        assert np.abs(decayed.models[-1] - given.run(algorithm).models[-1]).max() > 1e-3


def test_momentum_reaches_parts_through_the_context(problem: Problem) -> None:
    run = problem.run({}, clients={"momentum": 0.6})
    w = problem.start
    for t, cohort in enumerate(run.cohorts):
        w = w + np.mean([problem.update(t, m, w, heavy_ball(0.6)) for m in cohort], axis=0)
        close(run.models[t + 1], w)


@pytest.mark.parametrize(("last", "refused"), [("fednova", True), ("mean", False)])
def test_the_parts_of_a_chain_are_asked_too(last: str, refused: bool) -> None:
    made = {**TABLES, "algorithm": {"aggregate": {"chain": ["nnm", last]}}, "clients": {"clip_norm": 1.0}}
    if not refused:
        assert dragfl.load(made).clients.clip_norm == 1.0
        return
    with pytest.raises(SpecError, match=r"clients\.clip_norm: 1\.0 .*algorithm\.aggregate = 'fednova'"):
        dragfl.load(made)


class OwnRefusal:
    """A correction of the user that declares what it cannot do."""

    refuses = {"augment": "it knows its samples by heart"}  # noqa: RUF012

    def __getattr__(self, name: str) -> Any:
        return getattr(dragfl.algorithms.PARTS["correction"]["none"](), name)


def test_an_own_part_refuses_with_its_reason() -> None:
    made = {**TABLES, "algorithm": {"correction": OwnRefusal()}, "clients": {"augment": "flip"}}
    with pytest.raises(SpecError, match=r"clients\.augment: flip cannot be used .*OwnRefusal': it knows its samples"):
        dragfl.load(made)


@pytest.mark.parametrize("option", ["momentum", "weight_decay", "clip_norm"])
def test_accumulated_root_gradients_are_plain_sgd(option: str) -> None:
    made = {**TABLES, "root": {"size": 10, "accumulate": True}, "clients": {option: OPTIONS[option]}}
    with pytest.raises(SpecError, match=rf"clients\.{option}: .*root\.accumulate = true"):
        dragfl.load(made)


def test_the_authors_scaffold_refuses_too() -> None:
    made = {**TABLES, "algorithm": {"correction": "dragfl.reproduction.parts:SharedVariateScaffold"}}
    for option in ("momentum", "clip_norm"):
        with pytest.raises(SpecError, match=rf"clients\.{option}: .*SharedVariateScaffold"):
            dragfl.load({**made, "clients": {option: OPTIONS[option]}})
