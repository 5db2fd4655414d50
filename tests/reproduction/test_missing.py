"""What open claims are missing: seeds, rounds and computing time."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dragfl.reproduction.claims import Claim
from dragfl.reproduction.missing import describe_missing, find_missing, round_seconds, rounds_beyond
from dragfl.reproduction.summary import Record, Summaries
from dragfl.reproduction.verdicts import ClaimResult, Verdict, judge_claim
from tests.reproduction.made_summaries import LIMIT, accuracies, compare, make_summary, rounds


def missing_text(result: ClaimResult, summaries: Summaries) -> str:
    """Without the last sentence, on the rounds that made summaries lack: they have 100 of fig3a's 1000."""
    text, found, _ = describe_missing(result, summaries).partition(" With all rounds of the figures: ")
    assert bool(found) == any(term.figure in summaries for r in result.results for term in r.comparison.terms)
    return text


def timed(records: list[Record], seconds: float) -> list[Record]:
    return [replace(record, seconds=seconds) for record in records]


def test_missing_seeds() -> None:
    """Two more seeds of DRAG at 900 s a run and two of FedAvg at 1800 s: 1.5 h.

    The runs have 100 rounds instead of 1000. Three seeds of each at 9 and 18 s a round: 81,000 s, 22.5 h."""
    curves = {"drag": timed(rounds(20), 900.0), "fedavg": timed(rounds(50), 1800.0)}
    summaries = {"fig3a": make_summary("fig3a", curves)}
    result = judge_claim(Claim("X", "x", [compare()], 3), summaries)
    assert result.verdict is Verdict.UNDECIDED
    assert find_missing(result, summaries).runs == {("fig3a", "drag"): 2, ("fig3a", "fedavg"): 2}
    assert describe_missing(result, summaries) == (
        "2 more seeds of DRAG, FedAvg in fig3a: about 1.5 h of computing. "
        "With all rounds of the figures: at most about 22.5 h."
    )


def test_missing_curves_take_the_time_of_other_curves_of_the_figure() -> None:
    """DRAG took 2 s a round, 100 rounds at most: 3 seeds of FedAvg take 600 s, 10 min."""
    summaries = {"fig3a": make_summary("fig3a", {"drag": timed(rounds(20, 20, 20), 200.0)})}
    result = judge_claim(Claim("X", "x", [compare()], 3), summaries)
    assert round_seconds("fig3a", "fedavg", summaries) == 2.0
    assert missing_text(result, summaries) == "3 seeds of FedAvg in fig3a: about 10 min of computing."
    unknown = describe_missing(judge_claim(Claim("X", "x", [compare()], 3), {}), {})
    assert unknown.startswith("3 seeds of DRAG, FedAvg in fig3a: about ")


def test_missing_rounds() -> None:
    """From 30 % in round 50 to 40 % in round 100: 0.2 points a round, 80 % after 200 more rounds at best.

    One competitor needed 90 rounds, so 80 % stays the target. At 1 s a round for 3 seeds: 600 s."""
    slow = [Record(f"s{s}", s, LIMIT, "rounds", [(50, 0.3), (100, 0.4)], seconds=100.0) for s in range(3)]
    assert rounds_beyond(slow[0], 0.8) == 200
    claim = Claim("X", "x", [compare(relation="<=", threshold=4.0)], 3)
    summaries = {"fig3a": make_summary("fig3a", {"drag": slow, "fedavg": timed(rounds(90, 90, 90), 100.0)})}
    result = judge_claim(claim, summaries)
    assert result.verdict is Verdict.UNDECIDED  # a ratio above 1.1
    assert missing_text(result, summaries) == "at least 200 more rounds of DRAG in fig3a: about 10 min of computing."


def test_a_target_out_of_reach() -> None:
    flat = [replace(record, seconds=100.0) for record in accuracies(0.5, 0.5, 0.5)]
    assert rounds_beyond(flat[0], 0.8) == math.inf
    assert rounds_beyond(replace(flat[0], accuracy=[(50, 0.499), (100, 0.5)]), 0.8) == math.inf  # 15,000 more rounds
    claim = Claim("X", "x", [compare(relation="<=", threshold=4.0)], 3)
    summaries = {"fig3a": make_summary("fig3a", {"drag": flat, "fedavg": rounds(90, 90, 90)})}
    result = judge_claim(claim, summaries)
    assert missing_text(result, summaries) == "The target is out of reach at the present rate of DRAG in fig3a."


@pytest.mark.parametrize("first", [20, 80])
def test_a_decided_claim_misses_nothing(first: int) -> None:
    summaries = {"fig3a": make_summary("fig3a", {"drag": rounds(first), "fedavg": rounds(50)})}
    assert describe_missing(judge_claim(Claim("X", "x", [compare()], 1), summaries), summaries) == ""


def test_a_derived_curve_needs_the_runs_of_its_curve() -> None:
    summaries = {"fig3a": make_summary("fig3a", {"drag": rounds(20, 20, 20)})}
    result = judge_claim(Claim("X", "x", [compare(versus=["adabest_own"])], 3), summaries)
    assert find_missing(result, summaries).runs == {("fig3a", "adabest"): 3}


def test_each_seed_must_be_there_for_all_curves() -> None:
    """DRAG has seeds 0 to 2, FedAvg 1 to 3: seed 0 of FedAvg is missing, though both have three."""
    fedavg = [replace(record, seed=record.seed + 1) for record in rounds(50, 50, 50)]
    summaries = {"fig3a": make_summary("fig3a", {"drag": rounds(20, 20, 20), "fedavg": fedavg})}
    result = judge_claim(Claim("X", "x", [compare()], 3), summaries)
    assert result.verdict is Verdict.UNDECIDED
    assert find_missing(result, summaries).runs == {("fig3a", "fedavg"): 1}
