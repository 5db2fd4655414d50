"""Labels are short and unique."""

from __future__ import annotations

import pytest

from dragfl import report
from dragfl.report.labels import given_name

from .conftest import MakeRun


def labels(*runs: object) -> list[str]:
    """The labels of these runs, one group each, in the order given (the table is sorted)."""
    return [group.label for group in report.group_runs(report.find_runs(list(runs)))]  # type: ignore[arg-type]


def test_the_algorithm_alone_if_it_is_unique(make_run: MakeRun) -> None:
    assert labels(make_run("a"), make_run("b", algorithm="fedavg")) == ["drag", "fedavg"]


def test_one_run_with_an_attack(make_run: MakeRun) -> None:
    assert labels(make_run("a", algorithm="br_drag", attack="sign_flip")) == ["br_drag · sign_flip"]


def test_an_attack_that_all_runs_share_is_left_out(make_run: MakeRun) -> None:
    runs = make_run("a", attack="sign_flip"), make_run("b", algorithm="br_drag", attack="sign_flip")
    assert labels(*runs) == ["drag", "br_drag"]


def test_different_attacks_are_named(make_run: MakeRun) -> None:
    runs = make_run("a"), make_run("b", attack="sign_flip"), make_run("c", attack="alie")
    assert labels(*runs) == ["drag · no attack", "drag · sign_flip", "drag · alie"]


def test_only_settings_that_distinguish_runs_are_named(make_run: MakeRun) -> None:
    """c splits the three runs; the batch size splits them the same way and is left out; lr splits the rest."""
    one = make_run("a", spec={"algorithm.aggregate.c": 0.1, "clients.batch_size": 5})
    two = make_run("b", spec={"algorithm.aggregate.c": 0.5, "clients.batch_size": 6, "clients.lr": 0.1})
    three = make_run("c", spec={"algorithm.aggregate.c": 0.5, "clients.batch_size": 6, "clients.lr": 0.2})
    other = make_run("d", algorithm="fedavg")
    assert labels(one, two, three, other) == [
        "drag · c=0.1",
        "drag · c=0.5 · lr=0.1",
        "drag · c=0.5 · lr=0.2",
        "fedavg",
    ]


def test_names_and_kinds_have_no_key(make_run: MakeRun) -> None:
    runs = make_run("a"), make_run("b", spec={"data.dataset": "mnist", "clients.lr": 0.5})
    assert labels(*runs) == ["drag · digits", "drag · mnist"]


def test_a_setting_that_only_one_run_has(make_run: MakeRun) -> None:
    runs = make_run("a", spec={"algorithm.server.beta": 0.9}), make_run("b")
    assert labels(*runs) == ["drag · server beta=0.9", "drag · no server beta"]


def test_names_are_those_of_the_spec_without_modules(make_run: MakeRun) -> None:
    """A new part needs no entry in the report."""
    one = make_run("a", spec={"algorithm.name": "scaffold+my_package.rules:NewRule"}, attack="my_package:NewAttack")
    two = make_run("b", spec={"algorithm.name": "brand_new"})
    assert labels(one, two) == ["scaffold+NewRule · NewAttack", "brand_new · no attack"]


def test_runs_that_differ_only_in_workers_are_one_group(make_run: MakeRun) -> None:
    assert labels(make_run("a", seed=1, spec={"engine.workers": 4}), make_run("b", seed=2)) == ["drag"]


def test_the_name_that_the_user_gave_comes_first(make_run: MakeRun) -> None:
    """Then what differs, with its values; an algorithm that the name contains is not repeated."""
    plain = make_run("a", spec={"name": "drift"})
    half = make_run("b", spec={"name": "drag-half", "clients.per_round": 4})
    other = make_run("c", algorithm="fedavg", spec={"name": "fedavg"})
    assert labels(plain, half, other) == ["drift · drag · per_round=8", "drag-half · per_round=4", "fedavg"]


def test_a_part_of_a_name_is_no_algorithm(make_run: MakeRun) -> None:
    """`br_drag` in a name does not stand for `drag`, nor does a name that two algorithms share."""
    runs = make_run("a", spec={"name": "like-br_drag"}), make_run("b", algorithm="fedavg", spec={"name": "fedavg-x"})
    assert labels(*runs) == ["like-br_drag · drag", "fedavg-x"]
    both = [make_run(a, algorithm=a, spec={"name": "drag-or-fedavg"}) for a in ("drag", "fedavg")]
    assert sorted(labels(*both, runs[0])) == ["drag-or-fedavg · drag", "drag-or-fedavg · fedavg", "like-br_drag · drag"]


def test_a_name_that_all_runs_share_is_left_out(make_run: MakeRun) -> None:
    runs = [make_run(a, algorithm=a, spec={"name": "mine"}) for a in ("drag", "fedavg")]
    assert labels(*runs) == ["drag", "fedavg"]
    assert labels(runs[0]) == ["mine · drag"], "of a single run it is shown"


def test_the_number_of_a_run_without_a_name_is_no_name(make_run: MakeRun) -> None:
    runs = make_run("a", spec={"name": "run-1"}), make_run("b", spec={"name": "run-12", "clients.lr": 0.5})
    assert labels(*runs) == ["drag · lr=0.1", "drag · lr=0.5"]


@pytest.mark.parametrize(
    ("names", "seeds", "given"),
    [
        (["mine-seed0", "mine-seed1"], [0, 1], "mine"),
        (["mine-0", "mine-1"], [0, 1], "mine"),
        (["mine_s7"], [7], "mine"),
        (["fedavg-2"], [2], "fedavg-2"),
        (["mine", "mine"], [0, 1], "mine"),
        (["first", "second"], [0, 1], "first, second"),
        (["a", "b", "c"], [0, 1, 2], "a and 2 more"),
        (["run", "run"], [0, 1], ""),
        (["run-1", "run-2"], [1, 2], ""),
    ],
)
def test_the_name_of_runs_with_several_seeds(names: list[str], seeds: list[int], given: str) -> None:
    assert given_name(names, seeds) == given


def test_a_partition_has_its_values(make_run: MakeRun) -> None:
    """Without those that are its defaults (min_size = 10, cap = false)."""
    partition = {"kind": "dirichlet_class", "a": 0.3, "min_size": 10, "cap": False}
    one, two = make_run("a"), make_run("b", spec={"data.partition": partition})
    three = make_run("c", spec={"data.partition": {**partition, "a": 0.1, "min_size": 4}})
    assert labels(one, two, three) == [
        "drag · sorted_shards",
        "drag · dirichlet_class a=0.3",
        "drag · dirichlet_class a=0.1 min_size=4",
    ]


def test_runs_can_be_compared_by_their_names(make_run: MakeRun) -> None:
    curves = {"mine": [0.5, 0.9], "theirs": [0.5, 0.8]}
    runs = [
        make_run(f"{name}{seed}", seed=seed, rounds=4, curve=curve, spec={"name": name, "clients.lr": curve[1]})
        for name, curve in curves.items()
        for seed in (0, 1)
    ]
    (comparison,) = report.compare(runs, "mine", "theirs")
    assert comparison.wins == 2
