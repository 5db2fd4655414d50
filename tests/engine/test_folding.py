"""What is left of a block: sums that add up in any cut, whoever folds, and nothing of a memory that is used again."""

from __future__ import annotations

import logging
import re
import tracemalloc
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.aggregates import Drag, Mean
from dragfl.aggregates.robust.krum import Krum
from dragfl.engine.aggregation import Sums, Total, fold, mean_update
from dragfl.engine.backends.shared_memory import tensor_fields
from dragfl.engine.client import ClientResults
from dragfl.engine.server_round import sample_clients
from dragfl.types import FederationInfo, RoundContext, RoundInputs, Updates
from tests.engine.backends.test_pool import PARTS, digits, run_digits

DRAWS = torch.Generator().manual_seed(1)
X = torch.randn(11, 7, generator=DRAWS)
SETTING = FederationInfo(7, 11, 11, (0, 7))


def sent(X: torch.Tensor) -> ClientResults:
    k = len(X)
    updates = Updates(X, torch.ones(k, dtype=torch.float64), torch.arange(k), {"note": X[:, 0].clone()})
    return ClientResults(updates, (0.5,) * k, (1,) * k, ({},) * k)


def test_sums_are_what_partials_add_up_to() -> None:
    rule = Drag(c=0.3)
    plan = rule.begin(rule.init(SETTING), RoundContext(0, 0.1, 0), RoundInputs(mean=X.mean(0)), SETTING)
    parts = [rule.fold(plan, sent(rows).updates) for rows in X.split((4, 4, 3))]
    expected, found = reduce(add, parts), Sums(parts).partial
    assert found is not None and found.count == 11
    assert torch.equal(found.total, expected.total) and found.total.dtype == torch.float64
    assert found.sums.keys() == expected.sums.keys()
    assert all(torch.equal(value, expected.sums[name]) for name, value in found.sums.items())
    assert all(torch.equal(value, expected.per_client[name]) for name, value in found.per_client.items())


def test_sums_keep_nothing_of_what_is_used_again() -> None:
    block, rule = sent(X.clone()), Mean()
    sums = Sums([rule.fold(None, block.updates)])
    before = sums.partial
    assert before is not None
    kept = before.total.clone()
    block.updates.delta.zero_()
    assert torch.equal(before.total, kept)
    assert Sums().partial is None and Sums([None]).partial is None


def test_a_first_pass_gives_the_mean_of_what_can_be_used() -> None:
    """A row with a NaN, and a block that has nothing else."""
    broken = X.clone()
    broken[2, 3] = torch.nan
    broken[8:] = torch.inf
    blocks = [fold(Krum(f=1), Total(), sent(rows)) for rows in broken.split((4, 4, 3))]
    mean = mean_update(blocks)
    assert mean is not None
    torch.testing.assert_close(mean, broken[[0, 1, 3, 4, 5, 6, 7]].mean(0))
    assert [block.used.sum() for block in blocks] == [3, 4, 0] and blocks[2].partial is None
    assert float(blocks[0].extra["note"]) == pytest.approx(float(broken[[0, 1, 3], 0].sum()))
    assert mean_update(blocks[2:]) is None


def test_a_rule_that_cannot_work_with_so_few_says_so() -> None:
    rule = Krum(f=2)
    plan = rule.begin(rule.init(SETTING), RoundContext(0, 0.1, 0), RoundInputs(), SETTING)
    folded = fold(rule, plan, sent(X[:2]))
    assert folded.partial is None and "krum" in folded.infeasible
    assert folded.used.all()


def test_which_plans_can_be_sent_to_a_worker() -> None:
    rule = Drag()
    plan = rule.begin(rule.init(SETTING), RoundContext(0, 0.1, 0), RoundInputs(mean=X[0]), SETTING)
    found = tensor_fields(plan)
    assert found is not None and found.keys() == {"r", "rhat"}
    assert tensor_fields(None) == {} == tensor_fields(Total())
    assert tensor_fields({"r": X[0]}) is None
    assert tensor_fields(RoundInputs(mean=[X[0]])) is None  # type: ignore[arg-type]


def test_a_worker_that_dies_as_it_folds_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    changes: dict[str, Any] = {"algorithm": {"aggregate": f"{PARTS}:FragileMean"}}
    alone = run_digits(1, **changes)
    monkeypatch.setenv("POOL_TEST", str(tmp_path))
    (tmp_path / "die once folding").touch()
    with caplog.at_level(logging.WARNING, "dragfl"):
        assert run_digits(2, **changes) == alone
    assert not list(tmp_path.iterdir())
    assert re.search(r"the sum of [34] clients will be repeated", caplog.text)


def test_a_cohort_of_a_million_clients_is_drawn_without_counting_them() -> None:
    tables = {"clients": {"total": 1_000_000, "per_round": 10}, "data": {"partition": {"kind": "resampled", "k": 20}}}
    fed = dragfl.simulate(digits(1, **tables)).federation
    tracemalloc.start()
    cohort = sample_clients(fed, RoundContext(0, 0.1, 3))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(set(cohort)) == 10 and max(cohort) > 1000
    assert peak < 100_000, "a permutation would take 8 MB"
