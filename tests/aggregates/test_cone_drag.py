"""Cone DRAG: numbers by hand in the plane, the propositions of its docstring, and inputs at the limits."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import nnls as scipy_nnls
from torch import Tensor

import dragfl
from dragfl.aggregates.cone_drag import ConeDrag, ConeDragState
from dragfl.cone import cone_of, fits, opening
from dragfl.engine.simulator import RootData, Worker
from dragfl.errors import SpecError
from dragfl.testing import check_aggregate
from dragfl.types import FederationInfo, RoundContext, RoundInputs
from tests.aggregates.drive import Outcome, block, run_rule
from tests.conftest import Load
from tests.strategies import QUICK, cuts, seeds

PLANE, ROOT = [[1.0, 0.0], [0.0, 1.0]], [3.0, 4.0]  # two orthogonal classes; |r| = 5
Matrix = NDArray[np.float64]


def plane(updates: Any, rule: ConeDrag | None = None, directions: Any = PLANE, **options: Any) -> Outcome:
    return run_rule(rule or ConeDrag(), updates, root=ROOT, directions=directions, **options)


def weights(done: Outcome) -> list[float]:
    columns = done.partial.per_client
    return [pytest.approx(value, abs=1e-6) for value in (columns["fit"] - columns["reverse_fit"]).abs().tolist()]


def column(done: Outcome, name: str) -> list[float]:
    return [pytest.approx(value, abs=1e-6) for value in done.partial.per_client[name].tolist()]


@pytest.mark.parametrize(
    ("update", "fit", "reverse"),
    [
        pytest.param([3.0, 4.0], 1.0, 0.0, id="inside"),
        pytest.param([0.0, 2.0], 1.0, 0.0, id="a border"),
        pytest.param([4.0, -3.0], 0.8, 0.6, id="outside"),
        pytest.param([-4.0, 3.0], 0.6, 0.8, id="reversed"),
        pytest.param([-3.0, -4.0], 0.0, 1.0, id="inside, reversed"),
        pytest.param([1.0, -1.0], 0.5**0.5, 0.5**0.5, id="neither"),
        pytest.param([0.0, 0.0], 0.0, 0.0, id="zero"),
    ],
)
def test_fits_in_the_plane(update: list[float], fit: float, reverse: float) -> None:
    """The cone is the quadrant, so the projection of z is max(z, 0): (4, -3)/5 -> (0.8, 0), (-4, 3)/5 -> (0, 0.6)."""
    done = plane([update])
    assert column(done, "fit") == [fit]
    assert column(done, "reverse_fit") == [reverse]
    assert column(done, "suspicion") == [1.0 - fit + reverse]
    assert done.metrics["turned"] == float(reverse > fit + 1e-6)


def test_weights_in_the_plane() -> None:
    """g_1 = (3, 4) has w = 1. g_2 = (4, -3) has x = 0.8, x^- = 0.6, so w = 0.2. r/|r| = (0.6, 0.8), w_max = 1.

    Delta = 5 (1 (0.6, 0.8) + 0.2 (0.8, -0.6) + 1 (0.6, 0.8)) / (1 + 0.2 + 1) without the balance
          = (5 / 2.2) (1.36, 1.48).
    """
    done = plane([[3.0, 4.0], [4.0, -3.0]], ConeDrag(balance=False))
    assert done.step.tolist() == pytest.approx([5 / 2.2 * 1.36, 5 / 2.2 * 1.48])


def test_a_reversed_update_is_turned_back_or_left_out() -> None:
    """(-4, 3) has s = -1: the same sum as with (4, -3). With `turn = false` only g_1 remains: 5 (0.6, 0.8)."""
    forward, back = (plane([[3.0, 4.0], g], ConeDrag(balance=False)) for g in ([4.0, -3.0], [-4.0, 3.0]))
    torch.testing.assert_close(back.step, forward.step)
    assert (forward.metrics["turned"], back.metrics["turned"]) == (0.0, 0.5)
    alone = plane([[3.0, 4.0], [-4.0, 3.0]], ConeDrag(turn=False, balance=False))
    assert alone.step.tolist() == pytest.approx([3.0, 4.0])


def test_a_missing_class_is_supplied() -> None:
    """Round 1: only class 1, g = (5, 0): w = 1, a = (1, 0), e = (1/2, 1/2), l = (-1/2, 1/2), so d = (0, 1/2) and

    Delta = 5 ((1, 0) + (0.6, 0.8) + 1/2 (0, 1)) / (1 + 1 + 1/2) = (3.2, 2.6).

    Round 2 with alpha = 0.1: only class 2, g = (0, 5): l = 0.9 (-1/2, 1/2) + 0.1 (1/2, -1/2) = (-0.4, 0.4), so
    d = (0, 0.4) and

    Delta = 5 ((0, 1) + (0.6, 0.8) + 0.4 (0, 1)) / 2.4 = (1.25, 11/2.4).
    """
    one = plane([[5.0, 0.0]])
    assert one.step.tolist() == pytest.approx([3.2, 2.6])
    assert one.state.gap.tolist() == pytest.approx([-0.5, 0.5])
    assert one.metrics["supplied"] == pytest.approx(0.2)
    two = plane([[0.0, 5.0]], state=one.state, t=1)
    assert two.state.gap.tolist() == pytest.approx([-0.4, 0.4])
    assert two.step.tolist() == pytest.approx([1.25, 11.0 / 2.4])
    assert plane([[5.0, 0.0]], ConeDrag(balance=False)).step.tolist() == pytest.approx([4.0, 2.0])


def test_a_class_is_supplied_up_to_an_equal_share_or_less_where_its_direction_is_short() -> None:
    """D = ((2, 0), (0, 1)): class 1 has the larger gradient.

    |D| / sum |D| = (2/3, 1/3) and 1/K = 1/2, so e = (1/2, 1/3) sum a.
    g = (2, 1), a = (2, 1)/sqrt 5, e = (3/2, 1)/sqrt 5: nothing is missing.
    g = (5, 0), a = (1, 0), e - a = (-1/2, 1/3), d = (0, 1/3): Delta = 5 ((1, 0) + (0.6, 0.8) + (0, 1/3)) / (7/3).
    g = (0, 5), a = (0, 1), e - a = (1/2, -2/3), d = (1/2, 0): Delta = 5 ((0, 1) + (0.6, 0.8) + (1/2, 0)) / (5/2).
    """
    even = plane([[2.0, 1.0]], directions=[[2.0, 0.0], [0.0, 1.0]])
    assert even.metrics["supplied"] == pytest.approx(0.0, abs=1e-7)
    uneven = plane([[5.0, 0.0]], directions=[[2.0, 0.0], [0.0, 1.0]])
    assert uneven.step.tolist() == pytest.approx([15 / 7 * 1.6, 15 / 7 * (0.8 + 1 / 3)])
    other = plane([[0.0, 5.0]], directions=[[2.0, 0.0], [0.0, 1.0]])
    assert other.step.tolist() == pytest.approx([2.0 * 1.1, 2.0 * 1.8])


def test_one_direction() -> None:
    """The cone is a ray: x = max(cos, 0), x^- = max(-cos, 0), so s w = cos(g, u). u = (1, 0), r = (3, 4).

    (4, 3): 0.8. (-3, 4): -0.6, turned to (3, -4)/5.
    Delta = 5 (0.8 (0.8, 0.6) + 0.6 (0.6, -0.8) + 0.8 (0.6, 0.8)) / 2.2.
    """
    done = plane([[4.0, 3.0], [-3.0, 4.0]], directions=[[7.0, 0.0]])
    assert weights(done) == [0.8, 0.6]
    assert done.step.tolist() == pytest.approx([5 / 2.2 * 1.48, 5 / 2.2 * 0.64], rel=1e-5)
    assert done.metrics["supplied"] == 0.0
    assert done.metrics["opening"] == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("directions", "distance"),
    [
        pytest.param(PLANE, 0.5**0.5, id="orthogonal"),
        pytest.param([[1.0, 0.0], [-3.0, 0.0]], 0.0, id="opposite"),
        pytest.param([[1.0, 0.0], [-0.5, 0.75**0.5], [-0.5, -(0.75**0.5)]], 0.0, id="three at 120 degrees"),
        pytest.param([[2.0, 0.0], [5.0, 0.0]], 1.0, id="duplicated"),
        pytest.param([[1.0, 0.0], [1.0, 1.0], [0.0, 1.0]], 0.5**0.5, id="one between two"),
        pytest.param([[1.0, 0.0], [0.0, 0.0]], 1.0, id="a zero direction does not count"),
        pytest.param([[0.0, 0.0]], 0.0, id="none"),
    ],
)
def test_opening(directions: list[list[float]], distance: float) -> None:
    """The distance of 0 from the segment between (1, 0) and (0, 1) is 1/sqrt 2."""
    assert opening(cone_of(torch.tensor(directions))) == pytest.approx(distance, abs=1e-5)


@pytest.mark.parametrize("bad", [0.0, 1e-13, math.nan, math.inf, -math.inf])
def test_a_direction_that_cannot_be_used_is_left_out(bad: float) -> None:
    updates = [[5.0, 0.0, 1.0], [1.0, 3.0, -1.0], [-1.0, 2.0, 2.0]]
    usable = [[1.0, 0.0, 0.0], [1.0, 2.0, 0.0]]
    spoilt = [usable[0], [bad, 0.0, 0.0], usable[1]]
    due, found = (run_rule(ConeDrag(), updates, root=[1.0, 2.0, 2.0], directions=D) for D in (usable, spoilt))
    torch.testing.assert_close(found.step, due.step)
    assert found.state.gap[[0, 2]].tolist() == pytest.approx(due.state.gap.tolist())
    assert found.metrics == pytest.approx(due.metrics, abs=1e-9)


@pytest.mark.parametrize("directions", [[[0.0, 0.0]], [[math.nan, 1.0], [0.0, 0.0]]])
def test_without_any_direction_nothing_moves(directions: list[list[float]]) -> None:
    done = plane([[1.0, 2.0]], directions=directions)
    assert done.step.tolist() == [0.0, 0.0]
    assert all(math.isfinite(value) for value in done.metrics.values())


@pytest.mark.parametrize("size", [0.0, 1e-13, math.nan, math.inf])
def test_a_root_update_without_direction_stops_the_round(size: float) -> None:
    done = run_rule(ConeDrag(), [[1.0, 2.0]], root=[size, 0.0], directions=PLANE)
    assert done.step.tolist() == [0.0, 0.0]
    assert done.state.gap is None


def test_all_updates_zero() -> None:
    before = ConeDragState(torch.tensor([0.3, 0.7], dtype=torch.float64))
    done = plane([[0.0, 0.0], [0.0, 0.0]], state=before)
    assert done.step.tolist() == [0.0, 0.0]
    assert done.state is before
    assert weights(done) == [0.0, 0.0]


def test_a_zero_update_changes_nothing() -> None:
    torch.testing.assert_close(plane([[5.0, 0.0], [0.0, 0.0]]).step, plane([[5.0, 0.0]]).step)


# Properties


def draw_round(
    seed: int, n: int, K: int, d: int, sizes: tuple[float, float] = (-3, 3)
) -> tuple[Tensor, Tensor, Tensor]:
    """(updates, directions, root): some updates near the cone, some reversed, some zero, some anything."""
    draws = np.random.default_rng(seed)
    D = draws.normal(size=(K, d)) * 10.0 ** draws.uniform(-2, 1, (K, 1))
    X = draws.dirichlet(np.full(K, 0.5), n) @ D / np.abs(D).max() + draws.choice(
        [0.0, 0.1, 3.0], (n, 1)
    ) * draws.normal(size=(n, d))
    X *= draws.choice([1.0, -1.0, 0.0], (n, 1), p=[0.6, 0.3, 0.1]) * 10.0 ** draws.uniform(*sizes, (n, 1))
    r = D.sum(0)
    return torch.from_numpy(X).float(), torch.from_numpy(D).float(), torch.from_numpy(r).float()


rounds = st.builds(draw_round, seeds, st.integers(1, 6), st.integers(1, 5), st.integers(2, 8))
rules = st.builds(ConeDrag, turn=st.booleans(), balance=st.booleans())
Round = tuple[Tensor, Tensor, Tensor]


def run(rule: ConeDrag, X: Tensor, D: Tensor, r: Tensor, **options: Any) -> Outcome:
    return run_rule(rule, X, directions=D, root=r, **options)


def well_conditioned(D: Tensor, done: Outcome) -> bool:
    """Weights are large against rounding, and so is the smallest eigenvalue of the cone."""
    return float(done.partial.sums["weight"]) > 0.05 and float(torch.linalg.eigvalsh(done.plan.gram)[0]) > 1e-3


def formula(X: Matrix, D: Matrix, r: Matrix, turn: bool, balance: bool) -> Matrix:
    """The formulas of the docstring, one client at a time, with SciPy's projection."""
    lengths, length = np.linalg.norm(D, axis=1), np.linalg.norm(r)
    U = D / lengths[:, None]
    weights, vectors, mixes = [], [], []
    for g in X:
        size = np.linalg.norm(g)
        if size == 0.0:
            continue
        (a, miss), (back, reverse_miss) = (scipy_nnls(U.T, z) for z in (g / size, -g / size))
        x, reverse = (math.sqrt(max(0.0, 1.0 - rest**2)) for rest in (miss, reverse_miss))
        weight = abs(x - reverse) if turn or x > reverse else 0.0
        weights.append(weight)
        vectors.append(weight * (g if x >= reverse else -g) / size)
        mixes.append(weight * (a if x >= reverse else back))
    total, largest = sum(weights), max(weights, default=0.0)
    if total <= 1e-12:
        return np.zeros_like(r)
    supply = sum(mixes) / total
    due = np.minimum(lengths / lengths.sum(), 1.0 / len(D)) * supply.sum()
    missing = np.maximum(due - supply, 0.0) * total * balance
    step = sum(vectors) + largest * r / length + missing @ U
    return np.asarray(length * step / (total + largest + missing.sum()))


@QUICK
@given(rules, rounds)
def test_the_rule_is_its_formula(rule: ConeDrag, given: Round) -> None:
    done = run(rule, *given)
    assume(well_conditioned(given[1], done))
    due = formula(*(value.double().numpy() for value in given), rule.turn, rule.balance)
    np.testing.assert_allclose(done.step.numpy(), due, atol=2e-4 * float(given[2].norm()))


@QUICK
@given(rules, seeds, st.integers(1, 6), st.integers(1, 5), st.integers(1, 8), st.sampled_from([-38, -12, 0, 30, 37]))
def test_the_step_is_at_most_as_long_as_the_root_update(
    rule: ConeDrag, seed: int, n: int, K: int, d: int, exponent: float
) -> None:
    """Proposition 2, for updates of any size, also with a label mix of earlier rounds, for dependent directions."""
    X, D, r = draw_round(seed, n, K, d, (min(exponent, 0), max(exponent, 0)))
    X = X.clamp(-3e38, 3e38)
    mix = torch.from_numpy(np.random.default_rng(seed).exponential(size=len(D)))
    for state in (None, ConeDragState(mix)):
        done = run(rule, X, D, r, state=state)
        assert torch.isfinite(done.step).all()
        assert float(done.step.double().norm()) <= float(r.double().norm()) * (1 + 1e-5)
        assert all(math.isfinite(value) for value in done.metrics.values())


@QUICK
@given(rules.filter(lambda rule: rule.turn), rounds, seeds)
def test_the_scale_and_the_sign_of_an_update_have_no_effect(rule: ConeDrag, given: Round, seed: int) -> None:
    """Proposition 3: g and p g, for any p that is not 0; sending -z is sending z."""
    X, D, r = given
    draws = np.random.default_rng(seed)
    p = draws.choice([1.0, -1.0], (len(X), 1)) * 10.0 ** draws.uniform(-3, 25, (len(X), 1))
    due = run(rule, X, D, r)
    assume(well_conditioned(D, due))
    for factor in (torch.from_numpy(p).float(), -torch.ones(len(X), 1)):
        found = run(rule, factor * X, D, r)
        torch.testing.assert_close(found.step, due.step, rtol=0.0, atol=2e-4 * float(r.norm()))
        margin, due_margin = (c["fit"] - c["reverse_fit"] for c in (found.partial.per_client, due.partial.per_client))
        torch.testing.assert_close(margin.abs(), due_margin.abs(), rtol=0.0, atol=1e-4)


@QUICK
@given(rounds, seeds)
def test_the_pull_against_the_root_is_at_most_a_quarter(given: Round, seed: int) -> None:
    """Proposition 4: w |<g/|g|, r/|r|>| <= 1/4 where s <g, r> < 0, if r lies in the cone."""
    X, D, _ = given
    r = torch.from_numpy(np.random.default_rng(seed).exponential(size=len(D))).float() @ D
    assume(float(r.norm()) > 1e-3 * float(D.norm()))
    plan = cone_of(D)
    assume(float(torch.linalg.eigvalsh(plan.gram)[0]) > 1e-3)
    updates = block(X)
    x, reverse, _, _ = fits(plan, updates.delta, updates.norm)
    along = (X.double() @ (r / r.norm()).double()) / updates.norm.clamp_min(1e-30)
    pull = (x - reverse) * along
    assert float(pull.min()) >= -0.25 - 1e-5


def test_the_pull_of_a_quarter_is_attained() -> None:
    """The cone from r = (1, 0) to u = (-1/2, sqrt(3)/2), at 120 degrees to r, and g = u.

    x = 1. -u is at 60 degrees to r, the nearest border of the cone: x^- = 1/2. So w = 1/2 and w <u, r> = -1/4.
    """
    u = [-0.5, 0.75**0.5]
    done = run_rule(ConeDrag(), [u], directions=[[1.0, 0.0], u], root=[1.0, 0.0])
    assert (column(done, "fit"), column(done, "reverse_fit")) == ([1.0], [0.5])
    angles = torch.linspace(0.0, 2 * math.pi, 721, dtype=torch.float64)
    circle = torch.stack([angles.cos(), angles.sin()], 1)
    unit = block(circle)
    x, reverse, _, _ = fits(done.plan, unit.delta, unit.norm)
    assert float(((x - reverse) * circle[:, 0]).min()) == pytest.approx(-0.25, abs=1e-4)


@QUICK
@given(rules, rounds, st.data())
def test_neither_blocks_nor_their_order_matter(rule: ConeDrag, given: Round, data: st.DataObject) -> None:
    X, D, r = given
    once = run(rule, X, D, r)
    assume(well_conditioned(D, once))
    many = run(rule, X, D, r, cut=data.draw(cuts(len(X))))
    order = torch.tensor(data.draw(st.permutations(range(len(X)))))
    other = run(rule, X[order], D, r)
    for done in (many, other):
        torch.testing.assert_close(done.step, once.step, rtol=0.0, atol=1e-5 * float(r.norm()))
        torch.testing.assert_close(done.state.gap, once.state.gap, rtol=1e-4, atol=1e-5)
    for name, values in once.partial.per_client.items():
        torch.testing.assert_close(many.partial.per_client[name], values, rtol=1e-5, atol=1e-6)
        torch.testing.assert_close(other.partial.per_client[name], values[order], rtol=1e-5, atol=1e-6)


@QUICK
@given(rounds, st.data())
def test_the_order_of_the_directions_does_not_matter(given: Round, data: st.DataObject) -> None:
    X, D, r = given
    once = run(ConeDrag(), X, D, r)
    assume(well_conditioned(D, once))
    order = data.draw(st.permutations(range(len(D))))
    other = run(ConeDrag(), X, D[order], r)
    torch.testing.assert_close(other.step, once.step, rtol=0.0, atol=1e-4 * float(r.norm()))


# Membership, with a model


def class_worker(experiment: Load, size: int) -> tuple[Worker, Tensor]:
    """A worker whose clients and root make one step on all their samples, and a model that is not the initial one."""
    spec = experiment(
        algorithm={"aggregate": {"name": "cone_drag", "samples": 1000}},
        root={"size": size},
        clients={"local_steps": None, "local_epochs": 1, "batch_size": 1000, "sampling": "epoch", "lr": 0.1},
        model={"name": "mlp", "hidden": 8},
    )
    simulation = dragfl.simulate(spec)
    list(simulation)
    return simulation.federation.worker, simulation.state.w


@pytest.mark.parametrize("copies", [(1, 1, 1), (1, 0, 0), (0, 3, 1), (5, 1, 2)], ids=str)
def test_an_honest_update_on_the_samples_of_the_root_is_in_the_cone(experiment: Load, copies: tuple[int, ...]) -> None:
    """Proposition 1. The client has the root samples of class k `copies[k]` times. Its update is

    sum_k (c_k n_k / sum_l c_l n_l) D_k: so a_k / |D_k| is proportional to c_k n_k, the label mix of the client.
    """
    worker, w = class_worker(experiment, 30)
    assert worker.root is not None
    context = RoundContext(t=5, lr=0.1, seed=3)
    D, root = worker.train_directions(w, context), worker.train_root(w, context)
    counts = worker.root.y.bincount()
    torch.testing.assert_close(counts / counts.sum() @ D, root, rtol=1e-4, atol=1e-6)
    rows = torch.cat([(worker.root.y == k).nonzero().flatten().repeat(c) for k, c in enumerate(copies)])
    client = dataclasses.replace(worker, root=RootData(worker.root.x[rows], worker.root.y[rows]))
    done = run_rule(ConeDrag(), client.train_root(w, context)[None], directions=D, root=root)
    assert column(done, "fit") == [1.0]
    assert float(done.partial.per_client["reverse_fit"][0]) < 0.9
    mix = done.partial.sums["supply"] / done.plan.lengths
    due = torch.tensor(copies) * counts / (torch.tensor(copies) * counts).sum()
    torch.testing.assert_close(mix / mix.sum(), due.double(), rtol=0.0, atol=1e-3)


# The contract


@pytest.mark.parametrize("rule", [ConeDrag(), ConeDrag(turn=False, balance=False), ConeDrag(alpha=1.0)], ids=repr)
def test_the_contract_of_an_aggregate(rule: ConeDrag) -> None:
    check_aggregate(rule)


def test_the_root_update_and_the_directions_are_needed() -> None:
    rule, info = ConeDrag(), FederationInfo(2, 1, 1, (0, 2))
    assert rule.needs(rule.init(info)) == {"root", "directions"}
    for inputs in (RoundInputs(), RoundInputs(root=torch.ones(2)), RoundInputs(directions=torch.ones(1, 2))):
        with pytest.raises(ValueError, match="cone_drag needs the root update and the directions"):
            rule.begin(rule.init(info), RoundContext(0, 0.1, 0), inputs, info)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"samples": 0}, "cone_drag.samples: 0; give a whole number of at least 1"),
        ({"samples": 2.5}, "cone_drag.samples: 2.5; give a whole number"),
        ({"samples": None}, "cone_drag.samples: None; give a whole number"),
        ({"groups": True}, "cone_drag.groups: True; give a whole number"),
        ({"alpha": 0.0}, r"cone_drag.alpha: 0.0 is outside \(0, 1\]"),
    ],
)
def test_settings_outside_their_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        ConeDrag(**settings)
