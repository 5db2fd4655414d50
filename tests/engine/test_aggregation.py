"""Blocks are screened, folded and added: sums in any cut, and results that cannot be used are dropped and counted."""

from __future__ import annotations

from functools import reduce
from operator import add

import pytest
import torch

import dragfl
from dragfl.aggregates import Drag, Mean
from dragfl.aggregates.robust.krum import Krum
from dragfl.engine.aggregation import Sums, Total, fold, mean_update
from dragfl.engine.client import ClientResults
from dragfl.types import FederationInfo, Knowledge, RoundContext, RoundInputs, Updates
from tests.conftest import Load
from tests.engine.custom_attacks import ConstantAttack, TamperingAttack
from tests.engine.plain_sgd import cohort_updates

DRAWS = torch.Generator().manual_seed(1)
X = torch.randn(11, 7, generator=DRAWS)
INFO = FederationInfo(7, 11, 11, (0, 7))


def results(X: torch.Tensor) -> ClientResults:
    k = len(X)
    updates = Updates(X, torch.ones(k, dtype=torch.float64), torch.arange(k), {"note": X[:, 0].clone()})
    return ClientResults(updates, (0.5,) * k, (1,) * k, ({},) * k)


def test_sums_equal_the_sum_of_the_partials() -> None:
    rule = Drag(c=0.3)
    plan = rule.begin(rule.init(INFO), RoundContext(0, 0.1, 0), RoundInputs(mean=X.mean(0)), INFO)
    parts = [rule.fold(plan, results(rows).updates) for rows in X.split((4, 4, 3))]
    expected, found = reduce(add, parts), Sums(parts).partial
    assert found is not None and found.count == 11
    assert torch.equal(found.total, expected.total) and found.total.dtype == torch.float64
    assert found.sums.keys() == expected.sums.keys()
    assert all(torch.equal(value, expected.sums[name]) for name, value in found.sums.items())
    assert all(torch.equal(value, expected.per_client[name]) for name, value in found.per_client.items())


def test_sums_do_not_refer_to_the_memory_of_a_block() -> None:
    block, rule = results(X.clone()), Mean()
    sums = Sums([rule.fold(None, block.updates)])
    before = sums.partial
    assert before is not None
    kept = before.total.clone()
    block.updates.delta.zero_()
    assert torch.equal(before.total, kept)
    assert Sums().partial is None and Sums([None]).partial is None


def test_the_first_pass_computes_the_mean_of_the_usable_updates() -> None:
    """One row has a NaN, and all rows of the last block are infinite."""
    broken = X.clone()
    broken[2, 3] = torch.nan
    broken[8:] = torch.inf
    blocks = [fold(Krum(f=1), Total(), results(rows)) for rows in broken.split((4, 4, 3))]
    mean = mean_update(blocks)
    assert mean is not None
    torch.testing.assert_close(mean, broken[[0, 1, 3, 4, 5, 6, 7]].mean(0))
    assert [block.used.sum() for block in blocks] == [3, 4, 0] and blocks[2].partial is None
    assert blocks[0].partial is not None
    assert float(blocks[0].partial.extra["note"]) == pytest.approx(float(broken[[0, 1, 3], 0].sum()))
    assert mean_update(blocks[2:]) is None


def test_too_few_updates_for_the_rule_are_infeasible() -> None:
    rule = Krum(f=2)
    plan = rule.begin(rule.init(INFO), RoundContext(0, 0.1, 0), RoundInputs(), INFO)
    folded = fold(rule, plan, results(X[:2]))
    assert folded.partial is None and "krum" in folded.infeasible
    assert folded.used.all()


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("knowledge", ["own", "omniscient"])
def test_updates_that_are_not_finite_are_dropped_and_counted(
    experiment: Load, value: float, knowledge: Knowledge
) -> None:
    attack = {"name": ConstantAttack(value, knowledge), "attackers": 2}
    simulation = dragfl.simulate(experiment(attack=attack, engine={"block": 4}))
    w = simulation.state.w
    record = simulation.step()
    attackers = simulation.federation.adversary.fixed
    honest = [m for m in range(6) if m not in attackers]
    torch.testing.assert_close(
        simulation.state.w, w + cohort_updates(simulation, w, 0)[honest].mean(0), atol=2e-6, rtol=0
    )
    assert (record.metrics["sampled"], record.metrics["used"], record.metrics["dropped_nonfinite"]) == (6, 4, 2)
    assert record.clients["dropped"] == [m in attackers for m in range(6)]
    assert [value is None for value in record.clients["norm"]] == record.clients["dropped"]


def test_a_huge_but_finite_update_is_used(experiment: Load) -> None:
    """1e30 squared overflows float32, yet the row is finite: BR-DRAG cuts it to the length of the root update."""
    attack = {"name": ConstantAttack(1e30), "attackers": 2}
    simulation = dragfl.simulate(experiment(algorithm={"name": "br_drag"}, root={"size": 20}, attack=attack))
    record = simulation.step()
    assert record.metrics["dropped_nonfinite"] == 0
    assert simulation.state.w.norm() < 10


@pytest.mark.parametrize("tamper", ["nan", "negative"])
def test_a_client_with_an_invalid_weight_is_dropped(experiment: Load, tamper: str) -> None:
    attack = {"name": TamperingAttack(tamper), "attackers": 2}
    spec = experiment(algorithm={"name": "fedavg", "weighting": "samples"}, attack=attack)
    record = dragfl.simulate(spec).step()
    assert (record.metrics["used"], record.metrics["dropped_nonfinite"]) == (4, 2)
