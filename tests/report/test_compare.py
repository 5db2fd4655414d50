"""The paired comparison of two algorithms, by hand."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from dragfl import report
from dragfl.errors import SpecError
from dragfl.report.outcomes import Outcome, low_is_best
from dragfl.report.paired import Comparison, Pair

from .conftest import MakeRun

FINALS = {"drag": [0.90, 0.93, 0.92], "fedavg": [0.88, 0.90, 0.93]}


def curve(end: float) -> list[float]:
    """Evaluated in rounds 2, 4, 6, 8, 10."""
    return [0.5, 0.6, 0.7, 0.75, end]


@pytest.fixture
def folder(make_run: MakeRun) -> str:
    for algorithm, ends in FINALS.items():
        for seed, end in enumerate(ends):
            run = make_run(f"{algorithm}{seed}", algorithm=algorithm, seed=seed, rounds=10, curve=curve(end))
    return str(run.path.parent)


def one(folder: str, *names: str, **options: str) -> Comparison:
    (comparison,) = report.compare(folder, *names, **options)
    return comparison


def test_by_hand(folder: str) -> None:
    """Differences 0.02, 0.03, -0.01: mean 0.0133, s = 0.02082, t(2) = 4.3027: ± 0.05171.

    Sums of ±2 ±3 ±1 (in hundredths): observed 4. Of 8 sums, 6, 4, 2, 0 and their negatives: |sum| >= 4 in 4 of 8.
    """
    found = one(folder, "drag", "fedavg")
    assert found.mean_difference == pytest.approx(0.04 / 3)
    assert found.interval == pytest.approx((0.013333 - 0.051714, 0.013333 + 0.051714), abs=2e-5)
    assert (found.wins, found.losses, found.ties, found.undecided) == (2, 1, 0, 0)
    assert (found.p, found.smallest_p) == (0.5, 0.25)
    assert found.lines() == [
        "drag - fedavg: final_accuracy, 3 pairs, seeds 0, 1, 2",
        "mean difference +1.33 percentage points, 95 % interval [-3.84, +6.50]; wins 2, losses 1, ties 0",
        "exact sign-flip test: p = 0.5; the smallest p that 3 pairs allow is 0.25",
    ]
    turned = one(folder, "fedavg", "drag")
    assert turned.mean_difference == pytest.approx(-0.04 / 3)
    assert (turned.wins, turned.losses, turned.p) == (1, 2, 0.5)


def test_only_seeds_that_both_have_finished_are_pairs(folder: str, make_run: MakeRun) -> None:
    make_run("more", seed=7, rounds=10, curve=curve(0.99))
    make_run("half", algorithm="fedavg", seed=7, rounds=10, ran=4, curve=[0.1, 0.2], finished=False)
    assert [pair.seed for pair in one(folder, "drag", "fedavg").pairs] == [0, 1, 2]


def test_a_diverged_run_counts_as_chance_level(folder: str, make_run: MakeRun) -> None:
    """1 / 10 classes against 0.9, although it had reached 0.95 before."""
    make_run("boom", seed=7, rounds=10, ran=4, curve=[0.5, 0.95], diverged=True)
    make_run("fine", algorithm="fedavg", seed=7, rounds=10, curve=curve(0.9))
    pair = one(folder, "drag", "fedavg").pairs[-1]
    assert (pair.seed, pair.first.value, pair.difference) == (7, 0.1, pytest.approx(-0.8))


def test_rounds_to_target(make_run: MakeRun) -> None:
    """Target 0.8: drag in rounds 4, 6, 4, fedavg in 8, 6, 10: differences -4, 0, -6; fewer rounds win."""
    early, middle, late, last = [0.5, 0.8], [0.5, 0.6, 0.8], [0.5, 0.6, 0.7, 0.8], [0.5, 0.6, 0.7, 0.75, 0.8]
    for algorithm, curves in {"drag": [early, middle, early], "fedavg": [late, middle, last]}.items():
        for seed, values in enumerate(curves):
            whole = values + [0.85] * (5 - len(values))
            run = make_run(f"{algorithm}{seed}", algorithm=algorithm, seed=seed, rounds=10, curve=whole)
    found = one(str(run.path.parent), "drag", "fedavg", metric="rounds_to_target")
    assert found.differences == [-4, 0, -6]
    assert (found.wins, found.losses, found.ties) == (2, 0, 1)
    assert "mean difference -3.333, 95 % interval [" in found.lines()[1]


def test_censored_rounds_count_as_wins_only(folder: str) -> None:
    """All reach 0.8 in round 10 and tie, except seed 0 of drag, which does not reach it and loses."""
    log = Path(folder) / "drag0" / "metrics.jsonl"
    log.write_text(log.read_text().replace('"accuracy": 0.9,', '"accuracy": 0.79,'))
    found = one(folder, "drag", "fedavg", metric="rounds_to_target")
    assert found.mean_difference is None and found.interval is None
    assert (found.wins, found.losses, found.ties) == (0, 1, 2)
    assert found.p == 1.0
    assert found.lines()[1:] == [
        "no mean difference: a run did not reach the target or diverged; wins 0, losses 1, ties 2",
        "exact sign test of wins and losses: p = 1; the smallest p that 3 pairs allow is 0.25",
    ]


@pytest.mark.parametrize(
    ("first", "second", "sign"),
    [
        (Outcome(10), Outcome(20), -1),
        (Outcome(10, True), Outcome(10), 1),  # more than 10 against 10
        (Outcome(10, True), Outcome(20), None),  # more than 10 may be 15 or 30
        (Outcome(20), Outcome(10, True), None),
        (Outcome(10), Outcome(10, True), -1),
        (Outcome(10, True), Outcome(40, True), 0),  # neither has reached it
        (Outcome(10, True), Outcome(math.inf), 0),  # not reached, and diverged
        (Outcome(math.inf), Outcome(10), 1),
    ],
)
def test_sign_of_a_censored_pair(first: Outcome, second: Outcome, sign: int | None) -> None:
    assert Pair(0, first, second).sign == sign


def test_another_metric_and_its_direction(folder: str) -> None:
    found = one(folder, "drag", "fedavg", metric="loss")
    assert found.wins == sum(pair.first.value < pair.second.value for pair in found.pairs)
    assert low_is_best("bytes_up") and not low_is_best("step_norm")
    assert "percentage" not in found.lines()[1]


def test_a_tuned_rate_may_differ_and_is_named(make_run: MakeRun) -> None:
    for seed in (0, 1):
        make_run(f"a{seed}", seed=seed, rounds=4, spec={"clients.lr": 0.05})
        run = make_run(f"b{seed}", algorithm="fedavg", seed=seed, rounds=4)
    found = one(str(run.path.parent), "drag", "fedavg")
    assert found.also_differ == {"clients.lr": (0.05, 0.1)}
    assert found.lines()[-1] == "they also differ in clients.lr = 0.05 and 0.1"


def test_several_settings_are_paired_by_equal_settings(make_run: MakeRun) -> None:
    """Two batch sizes and two seeds: four pairs of one dataset; another partition is a comparison of its own."""
    for algorithm in ("drag", "fedavg"):
        for seed in (0, 1):
            for size in (10, 20):
                name = f"{algorithm}{seed}{size}"
                make_run(name, algorithm=algorithm, seed=seed, rounds=4, spec={"clients.batch_size": size})
            run = make_run(
                f"{algorithm}{seed}iid", algorithm=algorithm, seed=seed, rounds=4, spec={"data.partition.kind": "iid"}
            )
    iid, shards = report.compare(run.path.parent, "drag", "fedavg")
    assert (iid.heading, len(iid.pairs)) == ("iid", 2)
    assert (shards.heading, [pair.seed for pair in shards.pairs]) == ("sorted_shards", [0, 1, 0, 1])
    assert not shards.also_differ


@pytest.mark.parametrize(
    ("names", "metric", "message"),
    [
        (("drg", "fedavg"), "final_accuracy", "compare: no run 'drg'; did you mean 'drag'?"),
        (("drag", "drag"), "final_accuracy", "'drag' and 'drag' are the same runs"),
        (("drag", "fedavg"), "acuracy", "has no metric 'acuracy'; did you mean 'accuracy'?"),
    ],
)
def test_mistakes(folder: str, names: tuple[str, str], metric: str, message: str) -> None:
    with pytest.raises(SpecError) as error:
        report.compare(folder, *names, metric=metric)
    assert message in str(error.value)


def test_an_ambiguous_name(folder: str, make_run: MakeRun) -> None:
    make_run("other", rounds=10, spec={"algorithm.aggregate.c": 0.5})
    with pytest.raises(SpecError, match=r"'drag' matches 2 rows: 'drag · c=0.25', 'drag · c=0.5'; give one label"):
        report.compare(folder, "drag", "fedavg")
    assert len(one(folder, "drag · c=0.25", "fedavg").pairs) == 3
    assert [pair.seed for pair in one(folder, "drag · c=0.5", "fedavg").pairs] == [0]


def test_the_message_names_the_ambiguous_side(folder: str, make_run: MakeRun) -> None:
    make_run("other", algorithm="fedavg", rounds=10, spec={"clients.lr": 0.5})
    for names in (("drag", "fedavg"), ("fedavg", "drag")):
        with pytest.raises(SpecError, match=r"'fedavg' matches 2 rows: 'fedavg · lr=0.1', 'fedavg · lr=0.5'; give one"):
            report.compare(folder, *names)


def test_labels_as_the_table_shows_them(make_run: MakeRun) -> None:
    """With two datasets the label of a report is `drag · digits · c=0.25`; the table has `drag · c=0.25` in a block."""
    for dataset, cs in (("digits", (0.25, 0.5)), ("mnist", (0.25,))):
        for c in cs:
            spec = {"data.dataset": dataset, "algorithm.aggregate.c": c}
            make_run(f"{dataset}{c}", rounds=2, spec=spec)
        run = make_run(f"{dataset}-fedavg", algorithm="fedavg", rounds=2, spec={"data.dataset": dataset})
    labels = {row.short_label for row in report.summarize_runs(run.path.parent)}
    assert labels == {"drag · c=0.25", "drag · c=0.5", "drag", "fedavg"}
    (found,) = report.compare(run.path.parent, "drag · c=0.5", "fedavg")
    assert found.heading == "digits" and found.lines()[0].startswith("drag · c=0.5 - fedavg, digits: final_accuracy")


def test_nothing_to_compare(make_run: MakeRun) -> None:
    make_run("a", seed=0, rounds=4, spec={"target_accuracy": None})
    other = make_run("b", algorithm="fedavg", seed=1, rounds=4, spec={"target_accuracy": None})
    with pytest.raises(SpecError, match="no finished runs with the same seed"):
        report.compare(other.path.parent, "drag", "fedavg")
    make_run("c", algorithm="fedavg", seed=0, rounds=4, spec={"target_accuracy": None})
    with pytest.raises(SpecError, match="has no target_accuracy"):
        report.compare(other.path.parent, "drag", "fedavg", metric="rounds_to_target")
    make_run("d", algorithm="fltrust", rounds=4, spec={"data.dataset": "mnist"})
    with pytest.raises(SpecError, match="no dataset, partition and attack in common"):
        report.compare(other.path.parent, "drag", "fltrust")
