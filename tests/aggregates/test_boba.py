"""BOBA: both stages by hand, against a PCA of numpy, and what the simplex of the classes' updates promises."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import dragfl
from dragfl import functional
from dragfl.aggregates.boba import Boba
from dragfl.algorithms import PRESETS, chain
from dragfl.engine.round import run_round
from dragfl.errors import Infeasible, SpecError
from dragfl.testing import check_aggregate
from dragfl.types import (
    AssumesAttackers,
    DirectionSettings,
    FederationInfo,
    NoState,
    Robust,
    RoundContext,
    RoundInputs,
    UsesDirections,
)
from tests.aggregates.drive import block, run_rule
from tests.strategies import QUICK, seeds

Rows = NDArray[np.float64]
VERTICES = [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0]]
HONEST = [[2.0, 0.0, 0.0], [0.5, 1.5, 0.0], [1.0, 1.0, 0.0]]
ATTACK = [[1.0, 1.0, 3.0], [-2.0, 4.0, 0.0]]


def close(found: torch.Tensor, due: Any) -> None:
    torch.testing.assert_close(found.double(), torch.as_tensor(due, dtype=torch.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "rule", [Boba(), Boba(f=1), Boba(f=3), Boba(f=2, p_min=0.0, iterations=1), chain("nnm", Boba(f=1), f=1)]
)
def test_contract(rule: Any) -> None:
    check_aggregate(rule)
    assert isinstance(rule, Robust) and not rule.aggregates_extras
    assert isinstance(rule, AssumesAttackers) and isinstance(rule, UsesDirections)


def test_by_hand() -> None:
    """K = 2, so A is a line, x + y = 2 at z = 0 from the class updates, and again from the three honest ones.

    Distances from it: 0, 0, 0, 3, 0; the first three of the ties are S, and S repeats, so there is one PCA of updates.
    Label mixes: (1, 0), (.25, .75), (.5, .5); the fourth projects on (1, 1, 0) with (.5, .5); the fifth has (-1, 2).
    low = 0, .25, .5, .5, -1, and the third largest of them, .25, is above -.5. So T is all but the fifth:
    Delta = ((2 + .5 + 1 + 1)/4, (0 + 1.5 + 1 + 1)/4, 0). The class updates are sqrt(2) away from their mean.
    """
    done = run_rule(Boba(f=2), HONEST + ATTACK, directions=VERTICES)
    close(done.step, [1.125, 0.875, 0.0])
    columns = done.partial.per_client
    close(columns["subspace_distance"], [0.0, 0.0, 0.0, 3.0, 0.0])
    close(columns["label_mix_min"], [0.0, 0.25, 0.5, 0.5, -1.0])
    assert columns["trust"].tolist() == [1.0, 1.0, 1.0, 1.0, 0.0]
    close(columns["suspicion"], [0.0, -0.25, -0.5, 3.0 / 2.0**0.5 - 0.5, 1.0])
    assert done.metrics == {"trust_mean": 0.8, "fits": 1.0}
    close(
        functional.aggregate("boba", torch.tensor(HONEST + ATTACK), directions=torch.tensor(VERTICES), f=2), done.step
    )


def test_too_few_above_p_min() -> None:
    """The third largest low, .25, is below .3: the three largest are T, (1, 1, 0) twice and (.5, 1.5, 0)."""
    done = run_rule(Boba(f=2, p_min=0.3), HONEST + ATTACK, directions=VERTICES)
    close(done.step, [2.5 / 3, 3.5 / 3, 0.0])
    assert done.partial.per_client["trust"].tolist() == [0.0, 1.0, 1.0, 1.0, 0.0]


def test_stage_1_replaces_the_first_subspace() -> None:
    """The class updates are on y = 0, the honest updates on y = x/10 and the others farther from both.

    S = the honest ones, A is y = x/10. In its coordinate t, (x, y) has t = (x + y/10)/|(1, .1)|, the class updates
    (0, 0) and (20, 0) have t = 0 and 20/|(1, .1)|. So p = (1 - q, q) with q = (x + y/10)/20: 0, .505 and 1.01 for the
    honest ones, .275 for (5, 5) and -.75 for (-12, -30), which is left out.
    Delta is on y = x/10 with x = t/|(1, .1)|: the mean x of 0, 10, 20 and 5.5/1.01.
    """
    rows = [[0.0, 0.0], [10.0, 1.0], [20.0, 2.0], [5.0, 5.0], [-12.0, -30.0]]
    done = run_rule(Boba(f=2), rows, directions=[[0.0, 0.0], [20.0, 0.0]])
    close(done.partial.per_client["label_mix_min"], [0.0, 0.495, -0.01, 0.275, -0.75])
    x = (30.0 + 5.5 / 1.01) / 4
    close(done.step, [x, x / 10])


def test_one_class_and_more_classes_than_updates() -> None:
    """K = 1: A is a point, first the class update 0, then the mean .2 of the three updates next to it.

    K = 4 > n - f = 2: A is the line through the two updates nearest to the classes' subspace z = 0, and the third
    update (0, 0, 5) projects on its point (.5, .5, 0).
    """
    done = run_rule(Boba(f=2), [[10.0], [0.0], [0.2], [0.4], [9.0]], directions=[[0.0]])
    close(done.step, [0.2])
    vertices = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 0.0], [0.0, -1.0, 0.0]]
    done = run_rule(Boba(f=1), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 5.0]], directions=vertices)
    close(done.step, [0.5, 0.5, 0.0])
    close(done.partial.per_client["subspace_distance"], [0.0, 0.0, 25.5**0.5])


def by_numpy(X: Rows, C: Rows, f: int, p_min: float = -0.5, iterations: int = 10) -> Rows:
    """BOBA on the vectors themselves, with a singular value decomposition for each PCA."""
    n, K = len(X), len(C)

    def pca(Y: Rows) -> tuple[Rows, Rows]:
        axes = np.linalg.svd(Y - Y.mean(0), full_matrices=False)[2]
        return Y.mean(0), axes[: min(K - 1, len(Y) - 1)]

    (m, V), before = pca(C), None
    for _ in range(iterations):
        S = sorted(np.argsort(np.linalg.norm((X - m) - (X - m) @ V.T @ V, axis=1))[: n - f].tolist())
        if before == S:
            break
        (m, V), before = pca(X[S]), S
    one = [np.c_[(Y - m) @ V.T, np.ones(len(Y))] for Y in (X, C)]
    low = (one[0] @ np.linalg.pinv(one[1])).min(1)
    best = np.argsort(-low)[: n - f]
    kept = low >= p_min if low[best[-1]] > p_min else best
    mean: Rows = m + ((X - m) @ V.T @ V)[kept].mean(0)
    return mean


@st.composite
def cohorts(draw: st.DrawFn) -> tuple[Rows, Rows, int]:
    """(updates near a simplex with f of them anywhere, class updates, f); K on both sides of n - f."""
    f, K = draw(st.integers(0, 3)), draw(st.integers(1, 9))
    n, d = 2 * f + 1 + draw(st.integers(0, 5)), draw(st.integers(12, 20))
    rng = np.random.default_rng(draw(seeds))
    C = rng.normal(size=(K, d)) + 3.0 * rng.normal(size=d)
    X = rng.dirichlet(np.full(K, 0.5), n) @ C + 0.1 * rng.normal(size=(n, d))
    X[:f] = draw(st.sampled_from([0.1, 1.0, 10.0])) * rng.normal(size=(f, d))
    return X.astype(np.float32).astype(float), C.astype(np.float32).astype(float), f


@QUICK
@given(cohorts(), st.sampled_from([-0.5, -0.05, 0.0]), st.sampled_from([1, 10]))
def test_equals_the_vectors_themselves(cohort: tuple[Rows, Rows, int], p_min: float, iterations: int) -> None:
    X, C, f = cohort
    done = run_rule(Boba(f=f, p_min=p_min, iterations=iterations), X, directions=C)
    np.testing.assert_allclose(done.step.numpy(), by_numpy(X, C, f, p_min, iterations), rtol=1e-3, atol=1e-4)


@QUICK
@given(cohorts(), seeds)
def test_the_order_of_clients_and_classes_does_not_matter(cohort: tuple[Rows, Rows, int], seed: int) -> None:
    X, C, f = cohort
    rng = np.random.default_rng(seed)
    order, classes = rng.permutation(len(X)), rng.permutation(len(C))
    plain = run_rule(Boba(f=f), X, directions=C)
    mixed = run_rule(Boba(f=f), X[order], directions=C[classes])
    torch.testing.assert_close(mixed.step, plain.step, rtol=1e-4, atol=1e-5)
    for name, column in plain.partial.per_client.items():
        torch.testing.assert_close(mixed.partial.per_client[name], column[order], rtol=1e-4, atol=1e-5)


@QUICK
@given(cohorts(), st.sampled_from([1e-20, 1e-3, 2.0, 1e20]), seeds)
def test_it_commutes_with_scale_and_shift(cohort: tuple[Rows, Rows, int], scale: float, seed: int) -> None:
    X, C, f = cohort
    plain = run_rule(Boba(f=f), X, directions=C)
    scaled = run_rule(Boba(f=f), scale * X, directions=scale * C)
    torch.testing.assert_close(scaled.step.double() / scale, plain.step.double(), rtol=1e-3, atol=1e-4)
    close_enough = {"rtol": 1e-3, "atol": 1e-3}
    for name in ("trust", "label_mix_min", "suspicion"):
        torch.testing.assert_close(scaled.partial.per_client[name], plain.partial.per_client[name], **close_enough)
    shift = np.random.default_rng(seed).normal(size=X.shape[1])
    shifted = run_rule(Boba(f=f), X + shift, directions=C + shift)
    torch.testing.assert_close(shifted.step - torch.from_numpy(shift).float(), plain.step, **close_enough)


@QUICK
@given(st.integers(2, 5), st.integers(1, 4), st.floats(2.0, 20.0), st.sampled_from([0.0, 1.0, 1e5]), seeds)
def test_the_simplex_is_kept_and_what_is_far_outside_is_not(K: int, f: int, far: float, off: float, seed: int) -> None:
    """2K + f honest updates, mixes of the class updates, and f with a label mix of (1 + far, -far).

    All n - f honest updates have low >= 0, so T is all with low >= -.5: the honest ones. Delta is their mean.
    """
    rng = np.random.default_rng(seed)
    C = np.eye(K, 12) + 0.1 * rng.normal(size=(K, 12))
    honest = np.r_[C, rng.dirichlet(np.ones(K), K + f) @ C]
    axis = rng.normal(size=(f, 12))
    axis -= axis @ np.linalg.pinv(C[1:] - C[0]) @ (C[1:] - C[0])
    bad = C[0] + far * (C[0] - C[1]) + off * axis / np.linalg.norm(axis, axis=1, keepdims=True)
    order = rng.permutation(len(honest) + f)
    done = run_rule(Boba(f=f), np.r_[honest, bad][order], directions=C)
    assert done.partial.per_client["trust"].tolist() == (order < len(honest)).tolist()
    np.testing.assert_allclose(done.step.numpy(), honest.mean(0), rtol=1e-3, atol=1e-3)
    suspicion = done.partial.per_client["suspicion"].numpy()
    assert suspicion[order >= len(honest)].min() > suspicion[order < len(honest)].max()


@QUICK
@given(cohorts())
def test_without_attackers_it_is_the_mean(cohort: tuple[Rows, Rows, int]) -> None:
    """f = 0: S and T are all, and the mean of all is the origin of their PCA."""
    X, C, _ = cohort
    torch.testing.assert_close(run_rule(Boba(f=0), X, directions=C).step, torch.from_numpy(X.mean(0)).float())


@pytest.mark.parametrize("f", [0, 1])
@pytest.mark.parametrize("K", [1, 3, 6])
@pytest.mark.parametrize("size", [0.0, 1e-30, 1.0, 1e30])
def test_identical_updates_and_class_updates(f: int, K: int, size: float) -> None:
    """Also zero updates, and class updates that have nothing to do with them: the step is the one update."""
    row = size * torch.tensor([1.0, -2.0, 3.0, 0.5])
    for vertices in (torch.zeros(K, 4), torch.ones(K, 4), torch.eye(K, 4), row.repeat(K, 1)):
        done = run_rule(Boba(f=f), row.repeat(4, 1), directions=vertices)
        torch.testing.assert_close(done.step, row, rtol=1e-5, atol=size * 1e-6)
        assert all(torch.isfinite(column).all() for column in done.partial.per_client.values())


def test_one_client() -> None:
    done = run_rule(Boba(), [[3.0, 4.0]], directions=[[1.0, 0.0], [0.0, 1.0]])
    close(done.step, [3.0, 4.0])


@pytest.mark.parametrize("huge", [1e30, 3e38])
def test_an_update_of_any_size(huge: float) -> None:
    done = run_rule(Boba(f=1), [*HONEST, [-huge, huge, huge]], directions=VERTICES)
    close(done.step, np.mean(HONEST, 0))
    assert done.partial.per_client["trust"].tolist() == [1.0, 1.0, 1.0, 0.0]
    rows = torch.tensor([*HONEST, [-1e200, 1e200, 0.0]], dtype=torch.float64)
    close(functional.aggregate("boba", rows, directions=torch.tensor(VERTICES), f=1), np.mean(HONEST, 0))


def test_class_updates_that_are_not_finite_are_left_out() -> None:
    lost = [float("nan"), 0.0, 0.0]
    found = run_rule(Boba(f=2), HONEST + ATTACK, directions=[lost, *VERTICES])
    assert torch.equal(found.step, run_rule(Boba(f=2), HONEST + ATTACK, directions=VERTICES).step)
    with pytest.raises(Infeasible, match="boba: none of the 2 class updates of the root data is finite; lower"):
        run_rule(Boba(), HONEST, directions=[lost, lost])


def test_dropped_updates_lower_f() -> None:
    info = FederationInfo(3, clients=5, per_round=5, segments=(0, 3))
    plan = Boba(f=2).begin(NoState(), RoundContext(0, 0.1, 0), RoundInputs(directions=torch.tensor(VERTICES)), info)
    rows = torch.tensor([*HONEST, [0.0, 2.0, 0.0]])
    f1 = run_rule(Boba(f=1), rows, directions=VERTICES)
    assert torch.equal(Boba(f=2).fold(plan, block(rows)).sums["step"], f1.step)
    with pytest.raises(Infeasible, match=r"boba: f=2 needs at least 5 updates, got 4 \(1 more could not be used\)"):
        Boba(f=3).fold(plan, block(rows))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"f": -1}, "boba.f: -1; give a whole number of at least 0"),
        ({"iterations": 0}, "boba.iterations: 0; give a whole number of at least 1"),
        ({"samples": 1.5}, "boba.samples: 1.5; give a whole number of at least 1"),
        ({"groups": 0}, "boba.groups: 0; give a whole number of at least 1"),
        ({"p_min": 2.0}, r"boba.p_min: 2.0 is outside \[-1e\+09, 1\]; choose a value inside it"),
        ({"p_min": float("nan")}, "boba.p_min: nan is outside"),
    ],
)
def test_settings(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Boba(**settings)


def spec(**tables: Any) -> dragfl.Experiment:
    base: dict[str, Any] = {
        "rounds": 2,
        "root": {"size": 100},
        "clients": {"total": 10, "local_steps": 2},
        "model": {"name": "logistic"},
        "algorithm": {"name": "boba"},
    }
    return dragfl.load(base | tables)


def test_in_a_spec() -> None:
    assert isinstance(PRESETS["boba"].build().aggregate, Boba)
    attack = {"name": "sign_flip", "attackers": 3}
    assert spec(attack=attack).algorithm.aggregate == Boba(f=3)
    assert spec(attack={**attack, "attackers": 8}).algorithm.aggregate == Boba(f=4)
    for tables, message in (
        ({"algorithm": {"name": "boba", "f": 5}}, "boba: f=5 needs at least 11 updates, got 10; lower f or raise"),
        ({"algorithm": {"name": "boba", "p_min": 3}}, "algorithm.p_min: 3.* is outside"),
        ({"algorithm": {"aggregate": "boba", "correction": "scaffold"}}, "boba cannot aggregate that robustly"),
    ):
        with pytest.raises(SpecError, match=message):
            spec(**tables)
    with pytest.raises(SpecError, match="'boba' needs trusted root data"):
        dragfl.load({"algorithm": {"name": "boba"}})
    with pytest.raises(ValueError, match="boba needs the update of each class"):
        Boba().begin(NoState(), RoundContext(0, 0.1, 0), RoundInputs(), FederationInfo(2, 1, 1, (0, 2)))


@pytest.mark.parametrize("name", ["boba", "nnm+boba"])
def test_a_round(name: str) -> None:
    fed = dragfl.simulate(spec(attack={"name": "sign_flip", "attackers": 3}, algorithm={"name": name})).federation
    state, record = run_round(fed, fed.start())
    assert "skipped" not in record.metrics and torch.isfinite(state.w).all()
    assert len(record.clients["suspicion"]) == 10
    assert record.metrics["trust_mean"] == pytest.approx(np.mean(record.clients["trust"]))


@dataclass(frozen=True)
class TwoSteps(Boba):
    """BOBA whose class updates make two local steps, whatever clients do."""

    @property
    def direction_settings(self) -> DirectionSettings:
        return DirectionSettings(self.samples, steps=2)


def test_class_updates_make_as_many_local_steps_as_a_client() -> None:
    """Two in this spec."""
    made = []
    for rule in (Boba(), TwoSteps()):
        fed = dragfl.simulate(spec(algorithm={"aggregate": rule})).federation
        made.append(fed.backend.train_directions(fed.start().w, RoundContext(0, 0.1, 0)).clone())
    assert torch.equal(*made)
