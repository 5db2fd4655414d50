"""Drop-in strategies compute what their rules do: Flower's FedAvg, DRAG by hand, every preset bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from flwr.app import Array, ArrayRecord
from flwr.serverapp.strategy import (
    FedAvg,
)
from torch import Tensor

from dragfl.flower import AlgorithmStrategy, BRDragStrategy, DragStrategy
from dragfl.functional import aggregate, cone_drag, drag
from dragfl.types import FederationInfo, Partial, RoundContext, RoundInputs, Updates
from tests.flower.numpy_app import (
    DROP_IN,
    ROOT_NODE,
    class_updates,
    directions,
    initial_arrays,
    make_grid,
    root,
    samples_of,
    settings_of,
    start,
    updates,
    vector,
)


def own_rule(updates: Tensor, scale: float = 1.0) -> Tensor:
    return scale * updates[0]


class Reference:
    """The rounds of an algorithm written out: needs -> begin -> fold -> finish -> server step."""

    def __init__(self, strategy: AlgorithmStrategy, n: int) -> None:
        self.parts = strategy.algorithm
        self.info = FederationInfo(18, n, n, (0, 15, 18))
        self.rule_state = self.parts.aggregate.init(self.info)
        self.server_state = self.parts.server.init(self.info)

    def round(self, t: int, w: Tensor, seed: int) -> Tensor:
        n, rule = self.info.per_round, self.parts.aggregate
        X = updates(w, range(n))
        weight = torch.tensor([float(len(samples_of(m)[0])) for m in range(n)], dtype=torch.float64)
        block = Updates(X, weight, torch.arange(n), {}, torch.full((n,), 4))
        needs, context = rule.needs(self.rule_state), RoundContext(t, 1.0, seed)
        pieces = [torch.tensor([i]) for i in range(n)] if "all" not in needs else [torch.arange(n)]
        inputs = RoundInputs(
            root=updates(w, range(ROOT_NODE, ROOT_NODE + 1))[0] if "root" in needs else None,
            directions=class_updates(w) if "directions" in needs else None,
            mean=(X.double().sum(0) / n).float() if "mean" in needs else None,
            model=w if "model" in needs else None,
        )
        plan = rule.begin(self.rule_state, context, inputs, self.info)
        total: Partial | None = None
        for rows in pieces:
            part = rule.fold(plan, block.select(rows))
            part = replace(part, total=part.total.double(), sums={k: v.double() for k, v in part.sums.items()})
            total = part if total is None else total + part
        assert total is not None
        step, self.rule_state, _ = rule.finish(self.rule_state, plan, total)
        w, self.server_state = self.parts.server.update(self.server_state, step, w, context)
        return w


@pytest.mark.parametrize("name", [*DROP_IN, "nnm+median", "bucketing+median", "nnm+drag", "nnm+cone_drag"])
def test_every_algorithm_without_correction_equals_its_rule(name: str) -> None:
    """Two rounds of 7 nodes, bit for bit. Each node gets exactly one training message a round, with DRAG too."""
    strategy = AlgorithmStrategy(name, seed=4, fraction_evaluate=0.0, **settings_of(name))
    grid = make_grid(range(7))
    result = start(strategy, grid, rounds=2)
    w, reference = vector(initial_arrays()), Reference(strategy, 7)
    for t in range(2):
        w = reference.round(t, w, seed=4)
    assert torch.equal(vector(result.arrays), w)
    assert not strategy.refusals.counts
    assert sorted(grid.sent) == [(node, "train", round) for node in range(7) for round in (1, 2)]


def test_drag_by_hand() -> None:
    """Round 1 has r = the mean update, round 2 has r = the step of round 1 (alpha = 1)."""
    result = start(DragStrategy(c=0.4), make_grid(range(4)), rounds=2)
    w0 = vector(initial_arrays())
    X = updates(w0, range(4))
    first = drag(X, X.mean(0), c=0.4)
    second = drag(updates(w0 + first, range(4)), first, c=0.4)
    assert torch.allclose(vector(result.arrays), w0 + first + second, atol=1e-6)


def test_br_drag_and_a_rule_of_the_users_own_by_hand() -> None:
    w0, X = vector(initial_arrays()), updates(vector(initial_arrays()), range(5))
    reference = updates(w0, range(ROOT_NODE, ROOT_NODE + 1))[0]
    for given in (root, lambda arrays, t: ArrayRecord({k: Array(v) for k, v in root(arrays, t).items()})):
        found = start(BRDragStrategy(root=given, c=0.3), make_grid(), rounds=1)
        assert torch.allclose(vector(found.arrays), w0 + aggregate("br_drag", X, root=reference, c=0.3), atol=1e-6)
    own = start(AlgorithmStrategy(own_rule, scale=2.0), make_grid(), rounds=1)
    assert torch.allclose(vector(own.arrays), w0 + 2 * X[0], atol=1e-6)


def test_cone_drag_by_hand() -> None:
    """The first round, with arrays of Flower and of NumPy; the server step of the first round is w + Delta."""
    w0, X = vector(initial_arrays()), updates(vector(initial_arrays()), range(5))
    reference = updates(w0, range(ROOT_NODE, ROOT_NODE + 1))[0]
    due = w0 + cone_drag(X, class_updates(w0), reference)

    def records(arrays: ArrayRecord, server_round: int) -> tuple[ArrayRecord, ...]:
        return tuple(ArrayRecord({k: Array(v) for k, v in one.items()}) for one in directions(arrays, server_round))

    for given in (directions, records):
        strategy = AlgorithmStrategy("cone_drag", root=root, directions=given)
        found = start(strategy, make_grid(), rounds=1)
        assert torch.allclose(vector(found.arrays), due, atol=1e-6)
        assert {"fit_mean", "supplied", "opening"} <= found.train_metrics_clientapp[1].keys()


@pytest.mark.parametrize("rounds", [4])
def test_fedavg_weighted_by_samples_equals_flowers_fedavg(rounds: int) -> None:
    ours = start(AlgorithmStrategy("fedavg", weighting="samples"), make_grid(), rounds)
    stock = FedAvg().start(make_grid(), initial_arrays(), num_rounds=rounds, timeout=30)
    assert float((vector(ours.arrays) - vector(stock.arrays)).abs().max()) < 1e-6
    assert float((vector(stock.arrays) - vector(initial_arrays())).abs().max()) > 0.1
    for kind in ("train_metrics_clientapp", "evaluate_metrics_clientapp"):
        for round in range(1, rounds + 1):
            mine, theirs = getattr(ours, kind)[round], getattr(stock, kind)[round]
            assert all(mine[name] == pytest.approx(theirs[name], rel=1e-5) for name in theirs)
