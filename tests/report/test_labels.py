"""Labels are short and unique."""

from __future__ import annotations

from dragfl import report

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
