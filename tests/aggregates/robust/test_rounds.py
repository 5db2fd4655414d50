"""Robust rules in an experiment: the assumed f, requirements before and in a run, chains, state and resume."""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl import functional as fn
from dragfl.aggregates.robust import ROBUST
from dragfl.aggregates.robust.clipping import CenteredClipping
from dragfl.aggregates.robust.coordinate_wise import TrimmedMean
from dragfl.aggregates.robust.fools_gold import FoolsGold
from dragfl.aggregates.robust.preaggregation import ARC, NNM, Bucketing
from dragfl.algorithms import PRESETS, chain
from dragfl.engine.round import run_round
from dragfl.engine.state import Federation
from dragfl.errors import Infeasible, SpecError
from dragfl.types import FederationInfo, RoundContext, RoundInputs, Updates
from tests.aggregates.drive import block, run_rule
from tests.engine.custom_attacks import ConstantAttack

ROBUST_PRESETS = [name for name in PRESETS if name in ROBUST]
Load = Callable[..., dragfl.Experiment]


def test_a_chain_in_a_spec_and_from_python() -> None:
    table = {"chain": ["arc", {"name": "bucketing", "size": 3}, "nnm", "trimmed_mean"], "f": 2}
    experiment = dragfl.load({"algorithm": {"aggregate": table}})
    assert experiment.algorithm.aggregate == chain(ARC(), Bucketing(size=3), NNM(), TrimmedMean(), f=2)
    assert experiment.algorithm.name == "arc+bucketing+nnm+trimmed_mean"
    assert dragfl.load(tomllib.loads(experiment.to_toml())) == experiment
    assert dragfl.load({"algorithm": {"aggregate": {"chain": ["nnm", "median"]}}}, "algorithm.aggregate.f=4") == (
        dragfl.load({"algorithm": {"aggregate": {"chain": ["nnm", "median"], "f": 4}}})
    )


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ({"name": "krum", "f": 9}, "krum: f=9 needs at least 21 updates, got 20; lower f or raise clients.per_round"),
        ({"name": "bulyan", "f": 5}, "bulyan: f=5 needs at least 23 updates, got 20"),
        ({"name": "median", "f": 5}, "median has no setting 'f'"),
        ({"name": "krum", "f": -1}, "algorithm.f: -1; give a whole number of at least 0"),
        ({"name": "krum", "f": "two"}, "algorithm.f: expected"),
        ({"name": "centered_clipping", "radius": 0.0}, "algorithm.radius: 0.0 is outside"),
        ({"aggregate": {"chain": ["nm", "median"]}}, "chain[0].name: unknown name 'nm'; did you mean 'nnm'?"),
        ({"aggregate": {"chain": ["median", "nnm"]}}, "chain: median is no pre-aggregator, so it comes last"),
        ({"aggregate": {"chain": ["nnm"]}}, "chain: nnm is a pre-aggregator; name a rule such as median after it"),
        ({"aggregate": {"chain": []}}, "chain: it is empty"),
        (
            {"aggregate": {"chain": [{"name": "bucketing", "siz": 2}, "median"]}},
            "chain[0].siz: unknown key 'siz'",
        ),
        ({"aggregate": {"chain": ["bucketing", "median"], "f": 5}}, "bucketing: f=5 needs at least 21 updates, got 20"),
        ({"aggregate": {"chain": ["bucketing", "krum"], "f": 4}}, "krum after bucketing: f=4 needs at least 11 upd"),
        ({"aggregate": {"chain": "nnm"}}, "algorithm.aggregate.chain: expected `array`"),
    ],
)
def test_an_infeasible_rule_is_an_error_before_the_run(algorithm: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.load({"algorithm": algorithm})
    assert message in str(error.value)


def federation(spec: dragfl.Experiment) -> Federation:
    return dragfl.simulate(spec).federation


@pytest.mark.parametrize("name", ROBUST_PRESETS)
def test_every_preset_records_suspicion(name: str, experiment: Load) -> None:
    fed = federation(experiment(algorithm={"name": name}))
    state = fed.start()
    for _ in range(2):
        state, record = run_round(fed, state)
    assert "skipped" not in record.metrics
    assert torch.isfinite(state.w).all()
    assert len(record.clients["suspicion"]) == len(record.clients["norm"]) == 6


def test_a_round_with_too_few_updates_is_skipped_with_the_reason(experiment: Load) -> None:
    """Six clients, Krum with f = 1 (needs five). Two send NaN: four with f = 0, enough; four do: two, too few."""
    for attackers, skipped in ((2, False), (4, True)):
        attack = {"name": ConstantAttack(float("nan")), "attackers": attackers}
        fed = federation(experiment(algorithm={"name": "krum", "f": 1, "server": "momentum"}, attack=attack))
        start = fed.start()
        after, record = run_round(fed, start)
        assert after.t == 1
        assert ("skipped" in record.metrics) is skipped
        assert record.metrics["dropped_nonfinite"] == attackers
        assert torch.equal(after.w, start.w) is skipped
        if skipped:
            assert record.metrics["skipped"] == (
                "infeasible: krum: f=0 needs at least 3 updates, got 2 (4 more could not be used); "
                "lower f or raise clients.per_round"
            )
            assert after.server == start.server or torch.equal(after.server.m, start.server.m)


def test_a_skipped_round_changes_no_client_state(experiment: Load) -> None:
    attack = {"name": ConstantAttack(float("nan")), "attackers": 4}
    fed = federation(
        experiment(algorithm={"correction": "scaffold", "aggregate": {"name": "krum", "f": 1}}, attack=attack)
    )
    run_round(fed, fed.start())
    assert all(not value.any() for m in range(6) for value in fed.store.read(m).values())


def test_fold_lowers_f_by_what_is_missing() -> None:
    info = FederationInfo(dim=2, clients=9, per_round=7, segments=(0, 2))
    rule = TrimmedMean(2)
    rows = torch.tensor([[1.0, 0.0], [2.0, 0.0], [3.0, 0.0], [4.0, 0.0], [50.0, 0.0]])
    plan = rule.begin(rule.init(info), RoundContext(0, 0.1, 0), RoundInputs(), info)
    step, _, _ = rule.finish(None, plan, rule.fold(plan, block(rows)))
    assert step.tolist() == [12.0, 0.0]  # f = 2 - 2: the mean of all five
    with pytest.raises(Infeasible, match="trimmed_mean: f=4 needs at least 9 updates, got 6 \\(1 more"):
        TrimmedMean(5).fold(plan, block(torch.ones(6, 2)))


def test_histories_of_fools_gold_follow_the_clients() -> None:
    """Cohorts of different clients: a history is the sum of a client's own updates, in order of their numbers."""
    info = FederationInfo(dim=2, clients=9, per_round=2, segments=(0, 2))
    rule, state = FoolsGold(), FoolsGold().init(info)
    cohorts = [
        ((4, 1), [[1.0, 0.0], [0.0, 1.0]]),
        ((7, 4), [[2.0, 2.0], [0.5, 0.0]]),
        ((1, 4), [[0.0, 3.0], [1.0, 1.0]]),
    ]
    for t, (clients, rows) in enumerate(cohorts):
        plan = rule.begin(state, RoundContext(t, 0.1, 0), RoundInputs(), info)
        partial = rule.fold(plan, Updates(torch.tensor(rows), torch.ones(2).double(), torch.tensor(clients)))
        _, state, _ = rule.finish(state, plan, partial)
    assert state.seen.tolist() == [1, 4, 7]
    assert state.H.tolist() == [[0.0, 4.0], [2.5, 1.0], [2.0, 2.0]]


def test_centered_clipping_remembers_its_centre() -> None:
    """Round 0 from v = 0, radius 1: (3, 4) -> (.6, .8). Round 1: (3, 4) - v has length 4, so v + (.6, .8)."""
    rule = CenteredClipping(radius=1.0)
    first = run_rule(rule, [[3.0, 4.0]])
    second = run_rule(rule, [[3.0, 4.0]], state=first.state)
    torch.testing.assert_close(first.step, torch.tensor([0.6, 0.8]))
    torch.testing.assert_close(second.step, torch.tensor([1.2, 1.6]))


@pytest.mark.parametrize("name", ["fools_gold", "centered_clipping", "bucketing"])
def test_interrupted_and_resumed_is_the_same_run(name: str, tmp_path: Path) -> None:
    chained = {"aggregate": {"chain": ["bucketing", "median"], "f": 1}}
    tables = {
        "rounds": 4,
        "clients": {"total": 8, "per_round": 5, "local_steps": 1},
        "algorithm": chained if name == "bucketing" else {"name": name},
        "model": {"name": "logistic"},
        "checkpoint": {"every": 1},
    }
    whole = dragfl.run(dragfl.load(tables), tmp_path / "whole")
    asked = iter([False, True])
    with pytest.raises(dragfl.errors.Interrupted):
        dragfl.run(dragfl.load(tables), tmp_path / "cut", should_stop=lambda: next(asked))
    dragfl.resume(tmp_path / "cut")
    assert whole is not None
    for file in ("metrics.jsonl", "clients.jsonl", "model.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "cut" / file).read_bytes()


def test_a_chain_is_what_its_parts_do_one_after_the_other() -> None:
    X = torch.randn(11, 30, generator=torch.Generator().manual_seed(0))
    X[:2] *= 20.0
    mixed = fn.nnm(fn.arc(X, 2), 2)
    for last, due in {
        "trimmed_mean": fn.trimmed_mean(mixed, 2),
        "median": fn.median(mixed),
        "multi_krum": fn.multi_krum(mixed, 2),
        "geometric_median": fn.geometric_median(mixed),
        "bulyan": fn.bulyan(mixed, 2),
        "norm_clipping": fn.norm_clipping(mixed),
        "mean": fn.mean(mixed),
    }.items():
        torch.testing.assert_close(run_rule(chain("arc", "nnm", last, f=2), X).step, due, rtol=1e-4, atol=1e-5)


def test_a_user_defined_part_in_a_chain() -> None:
    made = chain("dragfl.aggregates.robust.preaggregation:NNM", "median", f=1)
    assert made.parts[0] == NNM()
    assert run_rule(made, [[1.0], [1.0], [9.0]]).step.tolist() == [1.0]
    with pytest.raises(SpecError, match="chain: 3 is no part"):
        chain(3, "median")
