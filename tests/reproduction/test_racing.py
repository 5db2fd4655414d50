"""Runs that stop once they can change no verdict: limits computed by hand, and a figure on digits."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from dragfl.reproduction import racing
from dragfl.reproduction.claims import Claim, Comparison
from dragfl.reproduction.figure import load_figure, parse_figure
from dragfl.reproduction.racing import needed_rounds, needs_all_rounds, plan_until_decided, racing_order, shorten
from dragfl.reproduction.runs import FigureRequest, plan_figure, run_figures, run_name
from dragfl.reproduction.summary import summarise
from dragfl.reproduction.verdicts import judge_comparison
from dragfl.runs.sweep import Callbacks, run_planned
from tests.reproduction.made_summaries import LIMIT, compare, make_summary, record_reaching


def limit(curve: str, *comparisons: Comparison, **reached: int | None) -> int:
    """The rounds that a curve of fig3a needs, given the rounds that other curves took to 80 %."""
    known = {name: record_reaching(first) for name, first in reached.items()}
    return needed_rounds(curve, comparisons, make_summary("fig3a", {}), known, every=10)


@pytest.mark.parametrize(
    ("statistic", "relation", "threshold", "rounds"),
    [
        ("ratio", "<", 1.0, 30),  # FedAvg takes more than 30, DRAG 30
        ("ratio", "<=", 0.35, 90),  # 30 / 0.35 = 85.7, rounded up to an evaluation
        ("ratio", ">=", 0.5, 60),  # 30 / 0.5
        ("inverse_ratio", ">", 2.0, 60),
        ("difference", "<", -20.0, 50),  # 30 - 50 = -20
        ("rank", "=", 1.0, 30),
        ("ratio", "within", 0.2, 40),  # below 0.8 from 30 / 0.8 = 37.5 on
        ("ratio", "<=", 0.2, LIMIT),  # 150 rounds would decide it
        ("value", "<", 50.0, LIMIT),  # not a comparison of two curves
    ],
)
def test_rounds_of_a_competitor_of_a_curve_that_took_30(
    statistic: str, relation: str, threshold: float, rounds: int
) -> None:
    comparison = compare(statistic=statistic, relation=relation, threshold=threshold)
    assert limit("fedavg", comparison, drag=30) == rounds


def test_the_largest_number_of_rounds_over_all_comparisons() -> None:
    quarter = compare(relation="<=", threshold=0.5)
    assert limit("fedavg", compare(), quarter, drag=30) == 60
    assert limit("fedavg", compare(), compare(figure="fig3b", threshold=0.1), drag=30) == 30, "of another figure"


def test_all_rounds_where_the_other_curve_is_missing_or_did_not_reach_the_target() -> None:
    assert limit("fedavg", compare(), drag=None) == LIMIT
    assert limit("fedavg", compare()) == LIMIT
    assert limit("drag", compare(versus=["fedavg", "fedprox"]), fedavg=30) == LIMIT, "FedProx may be slower still"


def test_the_first_curve_of_a_comparison() -> None:
    """SCAFFOLD over FedAvg is at least 0.8: with FedAvg at 50, decided from 40 on."""
    assert limit("scaffold", compare(curve="scaffold", relation=">=", threshold=0.8), fedavg=50) == 40
    assert limit("drag", compare(versus=["fedavg", "fedprox"]), fedavg=30, fedprox=60) == 60


def test_every_competitor_is_decided_on_its_own() -> None:
    """FedProx is faster than DRAG, so the best competitor is known; DRAG against FedAvg is open until 70."""
    assert limit("fedavg", compare(versus=["fedavg", "fedprox"]), drag=70, fedprox=20) == 70


def test_a_difference_of_figures_needs_the_statistic_itself() -> None:
    """The best competitor over DRAG, full minus partial: FedAvg matters until FedProx, which is faster, is known."""
    comparison = compare(statistic="inverse_ratio", relation=">", threshold=0.0, versus=["fedavg", "fedprox"])
    comparison = replace(comparison, minus=compare(figure="fig3b", versus=["fedavg", "fedprox"]))
    assert limit("fedavg", comparison, drag=20) == LIMIT
    assert limit("fedavg", comparison, drag=20, fedprox=40) == 40
    ranks = replace(comparison, statistic="rank")
    assert limit("fedavg", ranks, drag=20) == 20


@pytest.mark.parametrize("threshold", [0.4, 0.7, 1.0, 1.3])
@pytest.mark.parametrize("relation", ["<", "<=", ">", ">=", "within"])
def test_the_verdict_of_a_shortened_run_is_that_of_a_longer_one(relation: str, threshold: float) -> None:
    """A run that is censored at the needed rounds has the same result as one that reaches the target later."""
    comparison = compare(relation=relation, threshold=threshold)
    for drag in (10, 30, 60):
        rounds = limit("fedavg", comparison, drag=drag)
        results = set()
        for late in range(rounds + 10, LIMIT + 1, 10):
            summary = make_summary("fig3a", {"drag": [record_reaching(drag)], "fedavg": [record_reaching(late)]})
            results.add(judge_comparison(comparison, 1, {"fig3a": summary}).holds[0])
        if not results:
            continue
        stopped = replace(record_reaching(None), limit=rounds, accuracy=[(t, 0.5) for t in range(10, rounds + 1, 10)])
        summary = make_summary("fig3a", {"drag": [record_reaching(drag)], "fedavg": [stopped]})
        assert {judge_comparison(comparison, 1, {"fig3a": summary}).holds[0]} == results


def test_the_order_and_the_curves_that_need_all_rounds() -> None:
    figure = load_figure("fig3a")
    comparisons = [
        compare(versus=["fedavg", "fedprox", "scaffold"]),
        compare(curve="scaffold", versus=["fedavg"], metric="bytes", relation="=", threshold=2.0),
    ]
    full = [curve.id for curve in figure.curves if needs_all_rounds(figure, curve.id, comparisons)]
    assert [name for name in full if figure[name].of is None] == ["fedavg", "scaffold", "adabest"]
    assert racing_order(figure, comparisons) == ["fedavg", "scaffold", "adabest", "drag", "fedprox"]


RACE = {
    "topic": "t", "title": "t", "paper": "p", "datasets": ["digits"],
    "experiment": {
        "rounds": 20, "target_accuracy": 0.4, "stop_at_target": True, "data": {"partition": {"kind": "iid"}},
        "clients": {"total": 4, "local_steps": 5, "lr": 0.1}, "model": {"name": "logistic"}, "evaluation": {"every": 2},
    },
    "curves": [
        {"id": "slow", "label": "slow", "set": ["clients.lr=1e-6"]},
        {"id": "slower", "label": "slower", "set": ["clients.lr=1e-7"]},
        {"id": "fast", "label": "fast", "set": []},
    ],
}  # fmt: skip


def test_competitors_run_after_the_curve_they_are_compared_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim: the fast curve takes at most half of the rounds. Its competitors get twice its rounds.

    Where a longer run of a competitor has finished, that one is used.
    """
    claim = Claim("X", "t", [Comparison("fig3a", "fast", "<=", 0.5, ["slow", "slower"], statistic="ratio")])
    monkeypatch.setattr(racing, "load_claims", lambda: (claim,))
    request = FigureRequest(parse_figure("fig3a", RACE), "digits", (0,))
    passes: list[tuple[int, int]] = []
    run_figures(
        [request], tmp_path, Callbacks(), plan=plan_until_decided,
        on_plan=lambda missing, later: passes.append((len(missing), len(later))),
    )  # fmt: skip
    assert passes == [(1, 2), (1, 1), (1, 0)]
    summary = summarise(plan_until_decided(request, tmp_path))
    reached = summary.curves["fast"][0].rounds_to(0.4)
    assert reached is not None and 2 * reached < 20, "else no run is shortened"
    assert {name: records[0].limit for name, records in summary.curves.items()} == {
        "fast": 20, "slow": 2 * reached, "slower": 2 * reached,
    }  # fmt: skip
    assert summary.rounds == 20 and [r.ended for r in summary.records] == ["decided", "decided", "target"]
    assert judge_comparison(claim.comparisons[0], 1, {"fig3a": summary}).holds == {0: True}

    nowhere = tmp_path / "nowhere"
    for plan in (plan_figure(request, nowhere), plan_until_decided(request, nowhere)):
        assert summarise(plan, summary) == summary, "stored records of shortened runs are kept without the runs"
    full = {run.curve: run.planned for run in plan_figure(request, tmp_path).runs}
    assert shorten(full["slow"], 20) == full["slow"]
    assert run_name(replace(full["slow"].experiment, rounds=8)) == shorten(full["slow"], 8).name
    run_planned([full["slow"]])
    shorter = {run.curve: run.planned for run in plan_until_decided(request, tmp_path).runs}
    assert shorter["slow"].experiment.rounds == 2 * reached, "the shortest one that is long enough"
    shutil.rmtree(shorter["slow"].folder)
    assert {run.curve: run.planned.name for run in plan_until_decided(request, tmp_path).runs} == {
        "fast": full["fast"].name, "slow": full["slow"].name, "slower": shorter["slower"].name,
    }  # fmt: skip
