"""Every robust rule keeps the contract of an aggregate, and tells norm and suspicion of every client."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dragfl.aggregates.robust import ROBUST
from dragfl.algorithms import chain
from dragfl.testing import check_aggregate
from tests.aggregates.drive import run_rule

ALONE: dict[str, Any] = {
    **{name: rule() for name, rule in ROBUST.items()},
    **{
        f"{name}, f=1": ROBUST[name](f=1)
        for name in ("krum", "multi_krum", "bulyan", "trimmed_mean", "mea_med", "mda", "caf", "dnc", "rlr")
    },
    "multi_krum, m=2": ROBUST["multi_krum"](f=1, m=2, neighbours=3),
    "bulyan, epfl": ROBUST["bulyan"](f=1, theta="epfl"),
    "norm_clipping, radius": ROBUST["norm_clipping"](radius=1.0),
    "norm_clipping, noise": ROBUST["norm_clipping"](radius=1.0, noise=0.1),
    "centered_clipping, radius": ROBUST["centered_clipping"](radius=1.0),
    "centered_clipping, thrice": ROBUST["centered_clipping"](radius=1.0, iterations=3),
    "fools_gold, skip": ROBUST["fools_gold"](on_identical="skip"),
    "flame, no noise": ROBUST["flame"](epsilon=float("inf")),
    "flame, local models": ROBUST["flame"](epsilon=float("inf"), space="weights"),
    "sign_guard, scaled": ROBUST["sign_guard"](features="scaled"),
}
LAST = ("median", "krum", "geometric_median", "caf", "bulyan", "mean", "drag", "norm_clipping", "fools_gold", "flame")
CHAINS: dict[str, Any] = {f"arc, nnm, {last}": chain("arc", "nnm", last, f=1) for last in LAST}
CHAINS["nnm, flame, local models"] = chain("nnm", ROBUST["flame"](space="weights"), f=1)
DRAWN: dict[str, Any] = {
    f"bucketing, {last}": chain("bucketing", last, f=1) for last in ("geometric_median", "mean", "norm_clipping")
}


@pytest.mark.parametrize("rule", [*ALONE.values(), *CHAINS.values()], ids=[*ALONE, *CHAINS])
def test_contract(rule: Any) -> None:
    check_aggregate(rule)


@pytest.mark.parametrize("rule", DRAWN.values(), ids=DRAWN)
def test_contract_but_for_the_order_of_what_is_shuffled(rule: Any) -> None:
    check_aggregate(rule, skip=("permutation",))


def test_ties_of_mixed_rows_are_broken_by_their_order() -> None:
    """After mixing many subsets are equally tight, and MDA takes the first."""
    check_aggregate(chain("nnm", "mda", f=1), skip=("permutation",))


@pytest.mark.parametrize("name", ROBUST)
def test_suspicion_points_at_an_update_that_stands_out(name: str) -> None:
    """Eight updates around a direction and a long one against it, which every rule but FoolsGold should suspect most.

    FoolsGold suspects similar updates: there it is the least suspicious one.
    """
    draws = torch.Generator().manual_seed(1)
    X = 1.0 + 0.3 * torch.randn(9, 40, generator=draws)
    X[5] = -4.0 * X[5]
    rule = ROBUST[name](f=1) if hasattr(ROBUST[name](), "f") else ROBUST[name]()
    columns = run_rule(rule, X).partial.per_client
    assert torch.allclose(columns["norm"].float(), X.norm(dim=1), rtol=1e-5)
    suspicion = columns["suspicion"]
    assert suspicion.shape == (9,)
    assert int(suspicion.argmin() if name == "fools_gold" else suspicion.argmax()) == 5


def test_suspicion_of_a_bucket_is_shared_by_its_members() -> None:
    X = torch.ones(6, 4) + 0.01 * torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
    X[2] = -50.0
    suspicion = run_rule(chain("bucketing", "geometric_median", f=1), X).partial.per_client["suspicion"]
    worst = (suspicion > 1.0).nonzero().flatten().tolist()
    assert len(worst) == 2
    assert 2 in worst
