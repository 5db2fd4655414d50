"""Training on the root data alone."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given

import dragfl
from dragfl import functional
from dragfl.aggregates.root_only import RootOnly
from dragfl.algorithms import PRESETS
from dragfl.config.migrate import rename_keys
from dragfl.errors import SpecError
from dragfl.testing import check_aggregate
from dragfl.types import FederationInfo, NoState, RoundContext, RoundInputs
from tests.aggregates.drive import run_rule
from tests.strategies import QUICK, cohorts


def test_it_satisfies_the_contract_and_is_a_preset() -> None:
    check_aggregate(RootOnly())
    assert PRESETS["root_only"].build().aggregate == RootOnly()


def test_the_step_is_the_root_update_whatever_the_clients_send() -> None:
    """|(3, 4)| = 5 and |(0, -2)| = 2 are recorded; the step has nothing of them."""
    done = run_rule(RootOnly(), [[3.0, 4.0], [0.0, -2.0]], root=[1.0, -7.0])
    assert done.step.tolist() == [1.0, -7.0] and done.metrics == {}
    assert {name: column.tolist() for name, column in done.partial.per_client.items()} == {"norm": [5.0, 2.0]}


@QUICK
@given(cohorts())
def test_no_update_changes_the_step(cohort: Any) -> None:
    X = cohort[0].float()
    root = torch.linspace(-1, 1, X.shape[1])
    assert torch.equal(functional.aggregate("root_only", X, root=root), root)


def test_the_root_update_is_needed() -> None:
    assert RootOnly().needs(NoState()) == {"root"}
    with pytest.raises(ValueError, match="root_only needs the root update"):
        RootOnly().begin(NoState(), RoundContext(0, 0.1, 0), RoundInputs(), FederationInfo(2, 1, 1, (0, 2)))
    with pytest.raises(SpecError, match="root"):
        dragfl.load({"algorithm": {"name": "root_only"}})


def test_attackers_do_not_change_the_model() -> None:
    spec = {"rounds": 2, "root": {"size": 20}, "clients": {"total": 4, "local_steps": 1}, "model": {"name": "logistic"}}
    models = []
    for attack in ({}, {"attack": {"name": "sign_flip", "attackers": 2, "scale": 9.0}}):
        run = dragfl.simulate({**spec, "algorithm": {"name": "root_only"}, **attack})
        assert len(list(run)) == 2
        models.append(torch.cat([value.flatten() for value in run.model().values()]))
    assert torch.equal(*models)


@pytest.mark.parametrize("old", ["dragfl.paper.root_only:RootOnly", "dragfl.reproduction.parts:RootOnly"])
def test_stored_specs_with_an_old_name_are_read(old: str) -> None:
    tables = {"algorithm": {"name": "RootOnly", "aggregate": {"name": old}}}
    assert rename_keys(tables)["algorithm"]["aggregate"] == {"name": "root_only"}
