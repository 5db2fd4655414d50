"""Every verdict and every rule of censoring, on summaries made by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from dragfl.errors import SpecError
from dragfl.reproduction.claims import Claim, Part, Side, made, rows_of
from dragfl.reproduction.formatting import finding_text, row
from dragfl.reproduction.intervals import Span
from dragfl.reproduction.results import verdicts
from dragfl.reproduction.summary import Record
from dragfl.reproduction.verdicts import Verdict, find, judge, number, over_seeds
from tests.reproduction.hand import LIMIT, accuracies, part, rounds, steady, summary

PASS, FAIL, UNDECIDED, NOT_RUN = Verdict.PASS, Verdict.FAIL, Verdict.UNDECIDED, Verdict.NOT_RUN


def verdict(drag: list[Record], fedavg: list[Record], needed: int = 3, **changes: Any) -> Verdict:
    return find(part(**changes), needed, {"fig3a": summary("fig3a", {"drag": drag, "fedavg": fedavg})}).verdict


def test_pass_needs_the_median_and_80_percent_of_the_seeds() -> None:
    assert verdict(rounds(20, 30, 40), rounds(50, 60, 70)) is PASS
    assert verdict(rounds(20, 30, 80), rounds(50, 60, 70)) is FAIL  # the median holds, but only 2 of 3 seeds
    assert verdict(rounds(20, 30, 40, 20, 80), rounds(50, 50, 50, 50, 50), 5) is PASS  # 4 of 5
    assert verdict(rounds(20, 30, 40, 80, 80), rounds(50, 50, 50, 50, 50), 5) is FAIL
    assert verdict(rounds(60, 70, 80), rounds(50, 60, 70)) is FAIL
    assert verdict(rounds(50, 50, 50), rounds(50, 50, 50)) is FAIL  # as fast is not faster


def test_a_censored_denominator_is_at_most() -> None:
    """DRAG in 30 and FedAvg in more than 100: a ratio of at most 0.3."""
    finding = find(part(), 1, {"fig3a": summary("fig3a", {"drag": rounds(30), "fedavg": rounds(None)})})
    assert finding.verdict is PASS
    assert finding.spans[0].low == 0.0 and finding.spans[0].high == pytest.approx(0.3)
    assert "at most 0.30" in finding_text(
        finding, {"fig3a": summary("fig3a", {"drag": rounds(30), "fedavg": rounds(None)})}
    )
    assert verdict(rounds(30), rounds(None), 1, relation="<=", threshold=0.35) is PASS
    assert verdict(rounds(60), rounds(None), 1, relation="<=", threshold=0.35) is UNDECIDED  # at most 0.6
    assert verdict(rounds(LIMIT), rounds(None), 1) is PASS  # reached in the last round, the other later than that


def test_a_censored_numerator_fails() -> None:
    assert verdict(rounds(None, None, None), rounds(50, 60, 70)) is FAIL
    assert verdict(rounds(None), rounds(90), 1, relation="<=", threshold=2.0) is FAIL  # even where it might be 1.2
    assert verdict(rounds(None), rounds(90), 1, relation="within", threshold=0.2) is FAIL


def test_both_censored_is_undecided() -> None:
    assert verdict(rounds(None, None, None), rounds(None, None, None)) is UNDECIDED
    assert verdict(rounds(30, 30, None), rounds(50, 50, None)) is UNDECIDED  # 2 of 3 hold, the third is open
    assert verdict(rounds(60, 60, None), rounds(50, 50, None)) is FAIL  # whatever the third may be


def test_missing_runs_are_never_a_pass() -> None:
    assert find(part(), 3, {}).verdict is NOT_RUN
    assert find(part(), 3, {"fig3a": summary("fig3a", {"drag": rounds(20, 20, 20)})}).verdict is NOT_RUN
    assert find(part(), 3, {"fig3a": summary("fig3a", {"drag": rounds(20), "fedavg": []})}).verdict is NOT_RUN
    other_seed = [r for r in rounds(50, 50) if r.seed == 1]
    assert verdict(rounds(20), other_seed, 1) is NOT_RUN


def test_too_few_seeds_are_undecided_unless_it_is_a_quick_look() -> None:
    assert verdict(rounds(20, 20), rounds(50, 50), 3) is UNDECIDED
    assert verdict(rounds(60), rounds(50), 3) is UNDECIDED
    curves = {"drag": rounds(20), "fedavg": rounds(50)}
    assert find(part(), 3, {"fig3a": summary("fig3a", curves, quick=True)}).verdict is PASS


def test_the_best_of_several_rivals_counts() -> None:
    curves = {"drag": rounds(40), "fedavg": rounds(None), "scaffold": rounds(30), "adabest": rounds(80)}
    book = {"fig3a": summary("fig3a", curves)}
    assert find(part(versus=["fedavg", "adabest"]), 1, book).verdict is PASS
    assert find(part(versus=["fedavg", "scaffold", "adabest"]), 1, book).verdict is FAIL
    assert finding_text(find(part(versus=["fedavg", "scaffold"]), 1, book), book) == (
        "DRAG 40, SCAFFOLD 30: ratio 1.33"
    )


def test_a_run_that_diverged_reaches_nothing() -> None:
    """Not even what it had reached before."""
    lost = Record("lost", 0, LIMIT, "diverged", [(10, 0.2), (20, 0.9)])
    assert verdict([lost], rounds(50), 1) is FAIL
    book = {"fig3a": summary("fig3a", {"drag": [lost], "fedavg": accuracies(0.5)})}
    for metric, expected in (("final", 0.0), ("mean", 0.0), ("unrest", math.inf)):
        assert number(part(how="value", versus=[], metric=metric), 0, book) == Span.of(expected)
    steadier = Part("fig3a", "fedavg", "<", 0.0, ["drag"], metric="unrest", how="difference")
    assert find(steadier, 1, book).verdict is PASS


def test_accuracies_are_compared_in_points() -> None:
    book = {"fig3a": summary("fig3a", {"drag": accuracies(0.8, 0.82, 0.84), "fedavg": accuracies(0.6, 0.6, 0.6)})}
    higher = part(metric="final", how="difference", relation=">=", threshold=0.2)
    finding = find(higher, 3, book)
    assert finding.verdict is PASS
    assert (
        finding_text(finding, book)
        == "DRAG 82.0 %, FedAvg 60.0 %: difference +22.0 points (+20.0 points to +24.0 points)"
    )
    assert find(part(metric="final", how="difference", relation=">=", threshold=0.25), 3, book).verdict is FAIL


def test_final_accuracy_is_of_the_last_100_rounds_or_half_of_them() -> None:
    long = Record("long", 0, 300, "rounds", [(t, t / 1000) for t in range(10, 301, 10)])
    assert long.final == pytest.approx(sum(range(210, 301, 10)) / 10 / 1000)
    short = Record("short", 0, 40, "rounds", [(10, 0.1), (20, 0.2), (30, 0.3), (40, 0.5)])
    assert short.final == pytest.approx(0.4) and short.unrest == pytest.approx(0.1)


def test_ranks_with_ties_that_censoring_leaves_open() -> None:
    curves = {"drag": rounds(None), "fedavg": rounds(None), "scaffold": rounds(40), "adabest": rounds(20)}
    book = {"fig3a": summary("fig3a", curves)}
    rank = part(versus=["fedavg", "scaffold", "adabest"], how="rank")
    assert number(rank, 0, book) == Span(3, 4)
    assert number(part(of="adabest", versus=["fedavg", "scaffold", "drag"], how="rank"), 0, book) == Span.of(1)
    equal = {"fig3a": summary("fig3a", {"drag": rounds(40), "fedavg": rounds(40), "scaffold": rounds(20)})}
    assert number(part(versus=["fedavg", "scaffold"], how="rank"), 0, equal) == Span.of(2)  # equals share a place


def test_what_two_panels_differ_by() -> None:
    """Lead at full participation 60/20 = 3, at partial 60/40 = 1.5."""
    book = {
        "fig3a": summary("fig3a", {"drag": rounds(20), "fedavg": rounds(60)}),
        "fig3b": summary("fig3b", {"drag": rounds(40), "fedavg": rounds(60)}),
    }
    gap = part(how="inverse", relation=">", threshold=0.0, than=Side("fig3b", "drag", ["fedavg"]))
    assert number(gap, 0, book) == Span.of(1.5)
    assert find(gap, 1, book).verdict is PASS


@pytest.mark.parametrize(
    ("alie", "ipm", "ahead"),
    [((0.5, 0.6), (0.7, 0.6), True), ((0.5, 0.6), (0.7, 0.8), False)],
)
def test_dominated_is_worse_everywhere(alie: tuple[float, float], ipm: tuple[float, float], ahead: bool) -> None:
    mine, theirs = zip(alie, ipm, strict=True)
    curves = {
        "br_drag-alie": [steady(mine[0])], "nnm-alie": [steady(theirs[0])],
        "br_drag-ipm": [steady(mine[1])], "nnm-ipm": [steady(theirs[1])],
    }  # fmt: skip
    claim = Part("attacks", "br_drag", ">=", 0.0, ["nnm"], ["alie", "ipm"], "final", "margin")
    assert find(claim, 1, {"attacks": summary("attacks", curves)}).outcomes[0] is ahead


def test_a_claim_holds_if_all_its_parts_do() -> None:
    good, bad = part(), part(of="fedavg", versus=["drag"])
    book = {"fig3a": summary("fig3a", {"drag": rounds(20), "fedavg": rounds(50)})}
    absent = part(panel="fig3b")
    assert judge(Claim("X", "", [good], 1), book).verdict is PASS
    assert judge(Claim("X", "", [good, bad], 1), book).verdict is FAIL
    assert judge(Claim("X", "", [good, absent], 1), book).verdict is NOT_RUN
    assert judge(Claim("X", "", [bad, absent], 1), book).verdict is NOT_RUN


def test_a_number_that_was_not_measured_decides_nothing() -> None:
    book = {"fig3a": summary("fig3a", {"drag": rounds(20)})}
    aside = part(how="value", versus=[], metric="against")
    assert find(aside, 1, book).verdict is UNDECIDED
    line = row(judge(Claim("X", "they point away", [aside], 3), book), book)
    assert line.because == "Not all of it was measured in these runs: nothing follows."


def test_what_censoring_leaves_open_was_measured() -> None:
    """Neither curve reached the target at either scale: a gap between any two numbers, and one seed of three."""
    curves = {"drag": rounds(None), "fedavg": rounds(None)}
    book = {"fig3a": summary("fig3a", curves), "fig3b": summary("fig3b", curves)}
    gap = part(how="inverse", relation=">", threshold=0.0, than=Side("fig3b", "drag", ["fedavg"]))
    line = row(judge(Claim("X", "the lead is larger", [gap], 3), book), book)
    assert line.verdict == "UNDECIDED" and line.because.startswith("1 of the 3 seeds it takes have been run.")


def test_a_lower_target_of_its_own() -> None:
    book = {"fig3a": summary("fig3a", {"drag": rounds(20), "fedavg": rounds(50)})}
    assert number(part(target=0.4), 0, book) == Span.of(1.0)  # both have 50 % from the start
    assert number(part(target=0.95), 0, book) == Span.of(0.4)  # never above the panel's: runs may have stopped there


def test_a_claim_with_a_lower_target_has_a_second_row() -> None:
    claim = Claim("C0", "DRAG is faster", [part(target=0.7)], also_at=0.3)
    first, second = rows_of(claim)
    assert first is claim
    assert second.id == "C0 at 30 %"
    assert [p.target for p in second.part] == [0.3]
    assert "at 30 %" in second.says
    assert rows_of(second) == [second]


def test_over_seeds_by_the_numbers() -> None:
    below = part(relation="<=", threshold=1.0)
    known = [Span.of(0.5), Span.of(0.6), Span.of(0.7)]
    assert over_seeds(below, known, [True, True, True]) == (PASS, True)
    assert over_seeds(below, [Span(0.0, 2.0)] * 3, [None, None, None]) == (UNDECIDED, None)


def test_panels_of_different_data_or_scale_are_not_compared() -> None:
    gap = part(how="inverse", relation=">", threshold=0.0, than=Side("fig3b", "drag", ["fedavg"]))
    claim = Claim("X", "the lead is larger", [gap], 1)
    curves = {"drag": rounds(20), "fedavg": rounds(60)}
    full = summary("fig3a", curves)
    for other in (summary("fig3b", curves, quick=True), summary("fig3b", curves, dataset="mnist")):
        book = {"fig3a": full, "fig3b": other}
        assert judge(claim, book).verdict is NOT_RUN
        assert "the same data and at the same scale" in row(judge(claim, book), book).because
    book = {"fig3a": full, "fig3b": summary("fig3b", curves)}
    assert judge(claim, book).verdict is FAIL


def test_a_lower_target_that_is_none_has_no_row() -> None:
    """C3 is at the panel's 70 %, its second row at 30 %; a quick look with a target of 20 % can only decide one."""
    curves = {"drag": rounds(20), "fedavg": rounds(60)}
    told = {quick: verdicts({"fig4a": summary("fig4a", curves, target=target, quick=quick)}, ["fig4a"])
            for quick, target in ((False, 0.7), (True, 0.2))}  # fmt: skip
    assert {"C3", "C3 at 30 %"} <= {r.claim for r in told[False]}
    assert "C3" in {r.claim for r in told[True]} and "C3 at 30 %" not in {r.claim for r in told[True]}


def test_a_metric_that_nobody_knows() -> None:
    table = {"id": "X", "says": "x", "part": [{"panel": "fig3a", "of": "drag", "metric": "finall", "relation": "<",
                                               "threshold": 1.0}]}  # fmt: skip
    with pytest.raises(SpecError, match="claim X: unknown metric 'finall'; did you mean 'final'"):
        made(table)


def test_a_reason_for_failing_is_given_only_where_the_median_fails() -> None:
    claim = Claim("X", "DRAG is faster", [part()], 3, "It is.", "It is slower.")
    mixed = {"fig3a": summary("fig3a", {"drag": rounds(20, 20, 80), "fedavg": rounds(50, 50, 50)})}
    line = row(judge(claim, mixed), mixed)
    assert line.verdict == "FAIL"
    assert line.because == "Holds for 2 of 3 seeds. It holds for the median, but not for 80 % of the seeds."
    small = {"fig3a": summary("fig3a", {"drag": rounds(20), "fedavg": rounds(50)}, quick=True)}
    assert row(judge(claim, small), small).because == "Holds for 1 of 1 seed. A quick look, not the paper's setting."


def test_the_sentence_says_how_many_seeds_and_why() -> None:
    claim = Claim("X", "DRAG is faster", [part()], 3, "It is.", "The baselines are run as published.")
    slow = {"fig3a": summary("fig3a", {"drag": rounds(60, 70, 80), "fedavg": rounds(50, 60, 70)})}
    line = row(judge(claim, slow), slow)
    assert line.verdict == "FAIL" and line.because == "Holds for 0 of 3 seeds. The baselines are run as published."
    few = {"fig3a": summary("fig3a", {"drag": rounds(20), "fedavg": rounds(50)}, changes=["rounds=100"])}
    line = row(judge(claim, few), few)
    assert line.verdict == "UNDECIDED" and line.because.startswith("1 of the 3 seeds it takes have been run.")
    assert "With rounds=100." in line.because
    assert row(judge(claim, {}), {}).because == "Runs are missing: fig3a."
