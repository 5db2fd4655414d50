"""Verdicts and the rules of censoring, on summaries made without runs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from dragfl.errors import SpecError
from dragfl.reproduction.claims import Claim, Comparison, parse_claim
from dragfl.reproduction.formatting import format_comparison, format_divergence
from dragfl.reproduction.intervals import Interval
from dragfl.reproduction.results import curve_table
from dragfl.reproduction.rows import join_labels, make_row
from dragfl.reproduction.summary import Record, Summary
from dragfl.reproduction.verdicts import (
    Verdict,
    judge_claim,
    judge_comparison,
    lower_target,
    statistic,
    verdict_over_settings,
)
from tests.reproduction.made_summaries import LIMIT, accuracies, compare, make_summary, record_at, rounds

PASS, MIXED, FAIL, UNDECIDED, NOT_RUN = Verdict
FULL = Comparison("fig3b", "drag", versus=["fedavg"])


def fig3a(curves: Mapping[str, Sequence[Record]], **changes: Any) -> dict[str, Summary]:
    return {"fig3a": make_summary("fig3a", curves, **changes)}


def verdict(drag: list[Record], fedavg: list[Record], needed: int = 3, **changes: Any) -> Verdict:
    return judge_comparison(compare(**changes), needed, fig3a({"drag": drag, "fedavg": fedavg})).verdict


def test_the_verdict_over_seeds() -> None:
    """PASS: the median and all seeds; MIXED: the median only; FAIL: not the median."""
    assert verdict(rounds(20, 30, 40), rounds(50, 60, 70)) is PASS
    assert verdict(rounds(20, 30, 80), rounds(50, 60, 70)) is MIXED  # ratios 0.4, 0.5, 1.14
    assert verdict(rounds(20, 30, 40, 20, 80), rounds(50, 50, 50, 50, 50), 5) is MIXED  # 4 of 5 are not all
    assert verdict(rounds(20, 70, 80), rounds(50, 60, 70)) is FAIL  # one seed holds, but not the median
    assert verdict(rounds(60, 70, 80), rounds(50, 60, 70)) is FAIL
    assert verdict(rounds(50, 50, 50), rounds(50, 50, 50)) is FAIL  # equal is not fewer


def test_a_censored_denominator_leaves_an_upper_bound() -> None:
    """DRAG in 30 and FedAvg in more than 100: a ratio of at most 0.3."""
    summaries = fig3a({"drag": rounds(30), "fedavg": rounds(None)})
    result = judge_comparison(compare(), 1, summaries)
    assert result.verdict is PASS
    assert result.values[0].low == 0.0 and result.values[0].high == pytest.approx(0.3)
    assert "at most 0.30" in format_comparison(result, summaries)
    assert verdict(rounds(30), rounds(None), 1, relation="<=", threshold=0.35) is PASS
    assert verdict(rounds(60), rounds(None), 1, relation="<=", threshold=0.35) is UNDECIDED  # at most 0.6
    assert verdict(rounds(LIMIT), rounds(None), 1) is PASS  # reached in the last round, the other later than that


def test_a_censored_numerator_leaves_a_lower_bound() -> None:
    """DRAG in more than 100 and FedAvg in 90: a ratio above 1.11."""
    assert verdict(rounds(None, None, None), rounds(50, 60, 70)) is FAIL
    assert verdict(rounds(None), rounds(90), 1) is FAIL
    assert verdict(rounds(None), rounds(90), 1, relation="<=", threshold=2.0) is UNDECIDED
    assert verdict(rounds(None), rounds(90), 1, relation="within", threshold=0.2) is UNDECIDED  # 1.11 to 1.2 is
    assert verdict(rounds(None), rounds(80), 1, relation="within", threshold=0.2) is FAIL  # above 1.25


def test_both_censored_is_open() -> None:
    """In the third seed neither reaches 80 %: any ratio is possible. The median of the others may still decide."""
    assert verdict(rounds(30, None, None), rounds(50, None, None)) is UNDECIDED
    assert verdict(rounds(30, 30, None), rounds(50, 50, None)) is MIXED  # not shown for all seeds
    assert verdict(rounds(60, 60, None), rounds(50, 50, None)) is FAIL  # whatever the third may be


def test_a_run_that_stopped_early_is_censored_where_it_stopped() -> None:
    """DRAG reached the target in round 40. FedAvg was stopped after round 50, so it needs more: at most 0.8.

    Had DRAG needed 60 rounds, the ratio could be anything below 1.2."""
    stopped = Record("stopped", 0, LIMIT, "decided", [(t, 0.5) for t in range(10, 51, 10)])
    assert stopped.end == 50
    assert verdict(rounds(40), [stopped], 1) is PASS
    assert verdict(rounds(60), [stopped], 1) is UNDECIDED


def test_accuracies_are_compared_within_the_rounds_that_all_runs_have() -> None:
    """DRAG has 30 % after 20 rounds, where FedAvg stopped with 20 %; later it falls to 10 %."""
    drag = Record("long", 0, 40, "rounds", [(10, 0.1), (20, 0.3), (30, 0.1), (40, 0.1)])
    fedavg = Record("short", 0, 40, "target", [(10, 0.1), (20, 0.2)])
    higher = compare(metric="final", statistic="difference", relation=">", threshold=0.0)
    value = statistic(higher, 0, fig3a({"drag": [drag], "fedavg": [fedavg]}))
    assert value.low == value.high == pytest.approx(0.1)


def test_missing_runs_are_not_run() -> None:
    assert judge_comparison(compare(), 3, {}).verdict is NOT_RUN
    assert judge_comparison(compare(), 3, fig3a({"drag": rounds(20, 20, 20)})).verdict is NOT_RUN
    assert judge_comparison(compare(), 3, fig3a({"drag": rounds(20), "fedavg": []})).verdict is NOT_RUN
    other_seed = [r for r in rounds(50, 50) if r.seed == 1]
    assert verdict(rounds(20), other_seed, 1) is NOT_RUN


def test_too_few_seeds_are_undecided_except_with_quick_settings() -> None:
    assert verdict(rounds(20, 20), rounds(50, 50), 3) is UNDECIDED
    assert verdict(rounds(60), rounds(50), 3) is UNDECIDED
    curves = {"drag": rounds(20), "fedavg": rounds(50)}
    assert judge_comparison(compare(), 3, fig3a(curves, quick=True)).verdict is PASS


def test_the_comparison_is_with_the_best_competitor() -> None:
    curves = {"drag": rounds(40), "fedavg": rounds(None), "scaffold": rounds(30), "adabest": rounds(80)}
    summaries = fig3a(curves)
    assert judge_comparison(compare(versus=["fedavg", "adabest"]), 1, summaries).verdict is PASS
    assert judge_comparison(compare(versus=["fedavg", "scaffold", "adabest"]), 1, summaries).verdict is FAIL
    assert format_comparison(judge_comparison(compare(versus=["fedavg", "scaffold"]), 1, summaries), summaries) == (
        "DRAG 40, SCAFFOLD 30: ratio 1.33"
    )


def test_a_diverged_run_reaches_no_target_and_is_at_chance_level() -> None:
    """Not even a target it had reached before it diverged. The chance level of 47 classes is 2.1 %."""
    lost = Record("lost", 0, LIMIT, "diverged", [(10, 0.2), (20, 0.9)], diverged_at=24, chance=1 / 47)
    assert verdict([lost], rounds(50), 1) is FAIL
    assert verdict(rounds(50), [lost], 1) is PASS
    assert verdict([lost], rounds(None), 1) is FAIL  # judged at 50 %, which FedAvg reaches
    summaries = fig3a({"drag": [lost], "fedavg": accuracies(0.5)})
    for metric, expected in (("final", 1 / 47), ("mean", 1 / 47), ("best", 0.9), ("accuracy_std", math.inf)):
        assert statistic(compare(statistic="value", versus=[], metric=metric), 0, summaries) == Interval.exact(expected)
    seeds = [lost, replace(lost, seed=1), replace(lost, seed=2)]
    assert verdict(seeds, seeds) is FAIL  # neither reaches it, so DRAG is not faster
    assert verdict(seeds, [*rounds(50)[:1], *seeds[1:]]) is FAIL
    steadier = Comparison("fig3a", "fedavg", "<", 0.0, ["drag"], metric="accuracy_std", statistic="difference")
    assert judge_comparison(steadier, 1, summaries).verdict is PASS
    lead = Comparison("fig3a", "fedavg", ">", 0.0, ["drag"], metric="final", statistic="difference")
    text = format_comparison(judge_comparison(lead, 1, summaries), summaries)
    assert text == "FedAvg 50.0 %, DRAG diverged at round 24: +47.9 points"


def test_diverged_runs_in_a_table() -> None:
    lost = [
        Record("lost", s, LIMIT, "diverged", [(10, 0.2)], diverged_at=t, chance=0.1) for s, t in enumerate((24, 17))
    ]
    assert format_divergence(lost) == "diverged at round 17 to 24"
    assert format_divergence([lost[0], *rounds(20)]) == "1 of 2 diverged"
    assert format_divergence(rounds(20)) == ""
    table = curve_table(make_summary("fig3a", {"drag": lost, "fedavg": rounds(20, 30)}))
    drag = next(row for row in table if row[0] == "DRAG")
    assert drag[1:4] == ["never", "diverged at round 17 to 24", "20.0 % (20.0 to 20.0), diverged at round 17 to 24"]


def test_each_competitor_is_judged_alone() -> None:
    """Against each seed's best, DRAG has ratios 30/40 and 30/20; against FedAvg 0.5 and 0.5."""
    curves = {"drag": rounds(30, 30, 30), "fedavg": rounds(60, 60, 60), "scaffold": rounds(40, 20, 40)}
    result = judge_comparison(compare(versus=["fedavg", "scaffold"]), 3, fig3a(curves))
    assert result.verdict is MIXED
    assert {name: rival.verdict for name, rival in result.rivals.items()} == {"fedavg": PASS, "scaffold": MIXED}
    assert result.rivals["fedavg"].median == Interval.exact(0.5)
    del curves["scaffold"]
    part = judge_comparison(compare(versus=["fedavg", "scaffold"]), 3, fig3a(curves))
    assert part.verdict is NOT_RUN
    assert {name: rival.verdict for name, rival in part.rivals.items()} == {"fedavg": PASS, "scaffold": NOT_RUN}
    row = make_row(judge_claim(Claim("X", "x", [compare(versus=["fedavg", "scaffold"])]), fig3a(curves)), fig3a(curves))
    assert [(rival.rival, rival.verdict) for rival in row.rivals] == [("FedAvg", "PASS"), ("SCAFFOLD", "NOT RUN")]
    assert row.rivals[0].measured == "DRAG 30, FedAvg 60: ratio 0.50" and row.rivals[0].metric == "rounds to 80 %"


def test_a_target_that_no_run_reaches_is_lowered() -> None:
    """No run reaches 80 %. FedAvg is the best competitor with a median of 63 %: judged at 60 %.

    DRAG has 70 % from the first evaluation in round 10 on, FedAvg 63 %: a ratio of 1.
    """
    curves = {
        "drag": accuracies(0.7, 0.7, 0.7),
        "fedavg": accuracies(0.5, 0.63, 0.66),
        "scaffold": accuracies(0.33, 0.33, 0.33),
    }
    summaries = fig3a(curves)
    both = compare(versus=["fedavg", "scaffold"], relation="<=")
    assert lower_target(both, summaries) == 0.6
    assert lower_target(compare(versus=["scaffold"]), summaries) == 0.3
    assert lower_target(replace(both, statistic="rank"), summaries) == 0.3  # all curves reach it
    result = judge_comparison(both, 3, summaries)
    assert (result.missed_target, result.comparison.target) == (0.8, 0.6)
    assert result.verdict is PASS and result.median == Interval.exact(1.0)
    assert result.rivals["scaffold"].verdict is PASS
    remark = make_row(judge_claim(Claim("X", "x", [both]), summaries), summaries).remark
    assert (
        "No run of fig3a reached 80 %: judged at 60 % (best accuracy: DRAG 70.0 %, FedAvg 63.0 %, SCAFFOLD 33.0 %)."
        in remark
    )


def test_a_target_is_kept_if_one_run_reaches_it_or_nothing_was_learned() -> None:
    one = fig3a({"drag": rounds(30), "fedavg": accuracies(0.5)})
    assert lower_target(compare(), one) is None
    guessing = [replace(record, chance=0.5) for record in accuracies(0.5)]
    assert lower_target(compare(), fig3a({"drag": accuracies(0.7), "fedavg": guessing})) is None
    lost = [Record("lost", 0, LIMIT, "diverged", [(10, 0.4)], chance=0.1)]
    assert lower_target(compare(), fig3a({"drag": accuracies(0.7), "fedavg": lost})) is None
    assert lower_target(compare(metric="final"), fig3a({"drag": accuracies(0.7), "fedavg": accuracies(0.6)})) is None


def test_two_figures_are_judged_at_the_same_lower_target() -> None:
    """FedAvg reaches 50 % in one figure and 38 % in the other: both are judged at 35 %."""
    summaries = {
        "fig3a": make_summary("fig3a", {"drag": accuracies(0.7), "fedavg": accuracies(0.5)}),
        "fig3b": make_summary("fig3b", {"drag": accuracies(0.7), "fedavg": accuracies(0.38)}),
    }
    assert lower_target(compare(minus=FULL), summaries) == 0.35
    summaries["fig3a"] = make_summary("fig3a", {"drag": rounds(30), "fedavg": accuracies(0.5)})
    remark = make_row(judge_claim(Claim("X", "x", [compare(minus=FULL)], 1), summaries), summaries).remark
    assert (
        "fig3a judged at 35 % too (best accuracy: DRAG 90.0 %, FedAvg 50.0 %). No run of fig3b reached 80 %" in remark
    )


def test_accuracy_differences_are_in_points() -> None:
    summaries = fig3a({"drag": accuracies(0.8, 0.82, 0.84), "fedavg": accuracies(0.6, 0.6, 0.6)})
    higher = compare(metric="final", statistic="difference", relation=">=", threshold=0.2)
    result = judge_comparison(higher, 3, summaries)
    assert result.verdict is PASS
    assert format_comparison(result, summaries) == "DRAG 82.0 %, FedAvg 60.0 %: +22.0 points (+20.0 to +24.0)"
    assert (
        judge_comparison(
            compare(metric="final", statistic="difference", relation=">=", threshold=0.25), 3, summaries
        ).verdict
        is FAIL
    )


def test_final_accuracy_is_over_the_last_100_rounds_or_the_last_half() -> None:
    long = Record("long", 0, 300, "rounds", [(t, t / 1000) for t in range(10, 301, 10)])
    assert long.final == pytest.approx(sum(range(210, 301, 10)) / 10 / 1000)
    short = Record("short", 0, 40, "rounds", [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.5)])
    assert short.final == pytest.approx(0.4) and short.accuracy_std == pytest.approx(0.1)


def test_a_rank_is_an_interval_where_censoring_leaves_it_open() -> None:
    curves = {"drag": rounds(None), "fedavg": rounds(None), "scaffold": rounds(40), "adabest": rounds(20)}
    summaries = fig3a(curves)
    rank = compare(versus=["fedavg", "scaffold", "adabest"], statistic="rank")
    assert statistic(rank, 0, summaries) == Interval(3, 4)
    assert statistic(
        compare(curve="adabest", versus=["fedavg", "scaffold", "drag"], statistic="rank"), 0, summaries
    ) == Interval.exact(1)
    equal = fig3a({"drag": rounds(40), "fedavg": rounds(40), "scaffold": rounds(20)})
    assert statistic(compare(versus=["fedavg", "scaffold"], statistic="rank"), 0, equal) == Interval.exact(
        2
    )  # equals share a place


def test_the_difference_between_two_figures() -> None:
    """Lead at full participation 60/20 = 3, at partial 60/40 = 1.5."""
    summaries = {
        "fig3a": make_summary("fig3a", {"drag": rounds(20), "fedavg": rounds(60)}),
        "fig3b": make_summary("fig3b", {"drag": rounds(40), "fedavg": rounds(60)}),
    }
    gap = compare(statistic="inverse_ratio", relation=">", threshold=0.0, minus=FULL)
    assert statistic(gap, 0, summaries) == Interval.exact(1.5)
    assert judge_comparison(gap, 1, summaries).verdict is PASS


@pytest.mark.parametrize(
    ("alie", "ipm", "ahead"),
    [((0.5, 0.6), (0.7, 0.6), True), ((0.5, 0.6), (0.7, 0.8), False)],
)
def test_a_margin_is_negative_only_if_a_competitor_is_better_in_all_conditions(
    alie: tuple[float, float], ipm: tuple[float, float], ahead: bool
) -> None:
    mine, theirs = zip(alie, ipm, strict=True)
    curves = {
        "br_drag-alie": [record_at(mine[0])], "nnm-alie": [record_at(theirs[0])],
        "br_drag-ipm": [record_at(mine[1])], "nnm-ipm": [record_at(theirs[1])],
    }  # fmt: skip
    claim = Comparison("attacks", "br_drag", ">=", 0.0, ["nnm"], ["alie", "ipm"], "final", "margin")
    assert judge_comparison(claim, 1, {"attacks": make_summary("attacks", curves)}).holds[0] is ahead


def test_all_comparisons_of_a_claim_must_hold() -> None:
    good, bad = compare(), compare(curve="fedavg", versus=["drag"])
    summaries = fig3a({"drag": rounds(20), "fedavg": rounds(50)})
    absent = compare(figure="fig3b")
    assert judge_claim(Claim("X", "", [good], 1), summaries).verdict is PASS
    assert judge_claim(Claim("X", "", [good, bad], 1), summaries).verdict is FAIL
    assert judge_claim(Claim("X", "", [good, absent], 1), summaries).verdict is NOT_RUN
    assert judge_claim(Claim("X", "", [bad, absent], 1), summaries).verdict is FAIL  # whatever the other may be


def test_the_remark_is_about_the_comparison_that_decides() -> None:
    """DRAG is slower than FedAvg on fig3a with three seeds; fig3b has one seed of three."""
    slow = {"drag": rounds(20, 60, 70), "fedavg": rounds(50, 50, 50)}
    few = {"drag": rounds(60), "fedavg": rounds(50)}
    summaries = {"fig3a": make_summary("fig3a", slow), "fig3b": make_summary("fig3b", few)}
    row = make_row(judge_claim(Claim("X", "x", [compare(), compare(figure="fig3b")]), summaries), summaries)
    assert row.verdict == "FAIL" and row.remark == "Holds for 1 of 3 seeds (fig3a: ratio < 1.00)."
    assert row.measured == [
        "fig3a: DRAG 60, FedAvg 50: ratio 1.20 (0.40 to 1.40)",
        "fig3b: DRAG 60, FedAvg 50: ratio 1.20",
    ]


def test_a_metric_that_was_not_measured_is_undecided() -> None:
    summaries = fig3a({"drag": rounds(20)})
    aside = compare(statistic="value", versus=[], metric="against")
    assert judge_comparison(aside, 1, summaries).verdict is UNDECIDED
    line = make_row(judge_claim(Claim("X", "updates point away", [aside], 3), summaries), summaries)
    assert "Not measured" in line.remark


def test_a_censored_metric_counts_as_measured() -> None:
    """Neither curve reached the target at either scale: a gap between any two numbers, and one seed of three."""
    curves = {"drag": rounds(None), "fedavg": rounds(None)}
    summaries = {"fig3a": make_summary("fig3a", curves), "fig3b": make_summary("fig3b", curves)}
    gap = compare(statistic="inverse_ratio", relation=">", threshold=0.0, minus=FULL)
    line = make_row(judge_claim(Claim("X", "the lead is larger", [gap], 3), summaries), summaries)
    assert line.verdict == "UNDECIDED" and "Needs 3 seeds, 1 run." in line.remark


def test_a_comparison_with_a_lower_target() -> None:
    summaries = fig3a({"drag": rounds(20), "fedavg": rounds(50)})
    assert statistic(compare(target=0.4), 0, summaries) == Interval.exact(1.0)  # both have 50 % from the start
    assert statistic(compare(target=0.95), 0, summaries) == Interval.exact(0.4)  # runs may have stopped at 0.8


@pytest.mark.parametrize(
    ("verdicts", "expected"),
    [
        ([PASS, PASS], PASS),
        ([PASS, MIXED], MIXED),
        ([PASS, FAIL], MIXED),
        ([MIXED, FAIL, NOT_RUN], MIXED),  # decided, whatever the third may be
        ([FAIL, FAIL], FAIL),
        ([FAIL, UNDECIDED], UNDECIDED),
        ([PASS, UNDECIDED], UNDECIDED),
        ([PASS, NOT_RUN], NOT_RUN),
        ([FAIL, NOT_RUN], NOT_RUN),
    ],
)
def test_the_verdict_over_settings(verdicts: list[Verdict], expected: Verdict) -> None:
    assert verdict_over_settings(verdicts) is expected


def test_a_claim_is_judged_for_each_setting() -> None:
    """FLTrust ends at 60 %, BR-DRAG at 50, 65 and 70 % with c = 0.1, 0.25 and 0.5."""
    curves = {
        "fltrust": accuracies(0.6),
        "br_drag": accuracies(0.5),
        "br_drag_25": accuracies(0.65),
        "br_drag_50": accuracies(0.7),
    }
    summaries = {"fig8": make_summary("fig8", curves, target=None)}
    above = Comparison("fig8", "br_drag", ">", 0.0, ["fltrust"], metric="final", statistic="difference")
    settings = {
        f"c = 0.{c}": {"br_drag": curve} for c, curve in ((1, "br_drag"), (25, "br_drag_25"), (5, "br_drag_50"))
    }
    claim = Claim("X", "x", [above], 1, settings=settings, if_mixed="It needs a larger c.")
    result = judge_claim(claim, summaries)
    assert result.verdict is MIXED
    assert list(result.verdicts.values()) == [FAIL, PASS, PASS]
    row = make_row(result, summaries)
    assert row.settings == {"c = 0.1": "FAIL", "c = 0.25": "PASS", "c = 0.5": "PASS"}
    assert row.remark == "Holds for c = 0.25 and 0.5. Fails for c = 0.1. It needs a larger c."
    more = make_row(judge_claim(replace(claim, seeds=3), summaries), summaries)
    assert (more.verdict, more.settings["c = 0.5"]) == ("UNDECIDED", "UNDECIDED")
    assert more.remark == ("So far: holds for c = 0.25 and 0.5. Fails for c = 0.1. Needs 3 seeds, 1 run.")
    assert row.measured == [
        "c = 0.1: 50.0 %, FLTrust 60.0 %: -10.0 points",
        "c = 0.25: 65.0 %, FLTrust 60.0 %: +5.0 points",
        "c = 0.5: 70.0 %, FLTrust 60.0 %: +10.0 points",
    ]
    assert make_row(judge_claim(replace(claim, settings={}), summaries), summaries).measured == [
        "BR-DRAG (c = 0.1) 50.0 %, FLTrust 60.0 %: -10.0 points"
    ]


def test_figures_of_different_data_or_scale_are_not_compared() -> None:
    gap = compare(statistic="inverse_ratio", relation=">", threshold=0.0, minus=FULL)
    claim = Claim("X", "the lead is larger", [gap], 1)
    curves = {"drag": rounds(20), "fedavg": rounds(60)}
    full = make_summary("fig3a", curves)
    for other in (make_summary("fig3b", curves, quick=True), make_summary("fig3b", curves, dataset="mnist")):
        summaries = {"fig3a": full, "fig3b": other}
        assert judge_claim(claim, summaries).verdict is NOT_RUN
        assert "the same data and at the same scale" in make_row(judge_claim(claim, summaries), summaries).remark
    summaries = {"fig3a": full, "fig3b": make_summary("fig3b", curves)}
    assert judge_claim(claim, summaries).verdict is FAIL


def test_figures_that_are_meant_for_different_data_are_compared() -> None:
    """FedAvg loses 20 points on CIFAR-10 and 10 points on EMNIST."""
    summaries = {
        "fig5": make_summary("fig5", {"clean": accuracies(0.6), "fedavg": accuracies(0.4)}, dataset="cifar10"),
        "fig7": make_summary("fig7", {"clean": accuracies(0.7), "fedavg": accuracies(0.6)}),
    }
    minus = Comparison("fig7", "clean", versus=["fedavg"])
    more = Comparison("fig5", "clean", ">", 0.0, ["fedavg"], metric="final", statistic="difference", minus=minus)
    result = judge_claim(Claim("X", "x", [more], 1), summaries)
    assert result.verdict is PASS
    assert result.results[0].median.low == pytest.approx(0.1)


def test_an_unknown_metric() -> None:
    comparison = {"figure": "fig3a", "curve": "drag", "metric": "finall", "relation": "<", "threshold": 1.0}
    table = {"id": "X", "text": "x", "comparisons": [comparison]}
    with pytest.raises(SpecError, match="claim X: unknown metric 'finall'; did you mean 'final'"):
        parse_claim(table)


def test_settings_replace_curves_and_figures() -> None:
    comparison = {"figure": "fig", "curve": "br_drag", "versus": ["fltrust"], "metric": "final",
                  "statistic": "difference", "relation": ">", "threshold": 0.0}  # fmt: skip
    table = {"id": "X", "text": "x", "source": "paper", "section": "V-C, Fig. 7", "comparisons": [comparison]}
    settings = {"c = 0.1": {"fig": "fig7"}, "c = 0.25": {"fig": "fig8", "br_drag": "br_drag_25"}}
    claim = parse_claim({**table, "settings": settings})
    assert claim.figures == ["fig7", "fig8"]
    assert [(c.figure, c.curve, c.versus) for (c,) in claim.variants.values()] == [
        ("fig7", "br_drag", ["fltrust"]),
        ("fig8", "br_drag_25", ["fltrust"]),
    ]
    with pytest.raises(SpecError, match="replaces 'br_dragg', which no comparison names"):
        parse_claim({**table, "settings": {"c = 0.1": {"br_dragg": "br_drag"}}})
    with pytest.raises(SpecError, match="claim X: no section"):
        parse_claim({**table, "settings": settings, "section": ""})


def test_labels_of_settings_are_joined() -> None:
    assert join_labels(["c = 0.1", "c = 0.25", "c = 0.5"]) == "c = 0.1, 0.25 and 0.5"
    assert join_labels(["c = 0.1"]) == "c = 0.1"
    assert join_labels(["sorted labels", "partition of the text"]) == "sorted labels and partition of the text"
    assert join_labels(["EMNIST, all clients", "EMNIST, 10 of 40"]) == "EMNIST, all clients; EMNIST, 10 of 40"


def test_the_remark_of_the_claim_is_that_of_its_verdict() -> None:
    claim = Claim("X", "DRAG is faster", [compare()], if_pass="It is.", if_fail="It is slower.")
    mixed = fig3a({"drag": rounds(20, 20, 80), "fedavg": rounds(50, 50, 50)})
    line = make_row(judge_claim(claim, mixed), mixed)
    assert line.verdict == "MIXED"
    assert line.remark == "Holds for 2 of 3 seeds."
    small = fig3a({"drag": rounds(20), "fedavg": rounds(50)}, quick=True)
    assert make_row(judge_claim(claim, small), small).remark == "Holds for 1 of 1 seed. Reduced settings; not evidence."


def test_the_remark_states_the_seeds_and_the_reason() -> None:
    claim = Claim("X", "DRAG is faster", [compare()], if_fail="The baselines are run as published.")
    slow = fig3a({"drag": rounds(60, 70, 80), "fedavg": rounds(50, 60, 70)})
    line = make_row(judge_claim(claim, slow), slow)
    assert line.verdict == "FAIL" and line.remark == "Holds for 0 of 3 seeds. The baselines are run as published."
    few = fig3a({"drag": rounds(20), "fedavg": rounds(50)}, changes=["rounds=100"])
    line = make_row(judge_claim(claim, few), few)
    assert line.verdict == "UNDECIDED" and "Needs 3 seeds, 1 run." in line.remark
    assert "With rounds=100 in fig3a." in line.remark
    assert make_row(judge_claim(claim, {}), {}).remark == "Missing runs: fig3a."
