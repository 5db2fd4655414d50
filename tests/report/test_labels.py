"""Labels are short, and tell runs apart."""

from __future__ import annotations

from dragfl import report

from .conftest import MakeRun


def labels(*runs: object) -> list[str]:
    """The labels of these runs, one group each, in the order given (the table itself is ranked)."""
    return [group.label for group in report.group_runs(report.find_runs(list(runs)))]  # type: ignore[arg-type]


def test_the_algorithm_is_enough(make_run: MakeRun) -> None:
    assert labels(make_run("a"), make_run("b", algorithm="fedavg")) == ["DRAG", "FedAvg"]


def test_one_attacked_run_says_so(make_run: MakeRun) -> None:
    assert labels(make_run("a", algorithm="br_drag", attack="sign_flip")) == ["BR-DRAG · sign_flip"]


def test_an_attack_that_all_share_is_left_out(make_run: MakeRun) -> None:
    runs = make_run("a", attack="sign_flip"), make_run("b", algorithm="br_drag", attack="sign_flip")
    assert labels(*runs) == ["DRAG", "BR-DRAG"]


def test_attacks_that_differ_are_named(make_run: MakeRun) -> None:
    runs = make_run("a"), make_run("b", attack="sign_flip"), make_run("c", attack="alie")
    assert labels(*runs) == ["DRAG · no attack", "DRAG · sign_flip", "DRAG · alie"]


def test_only_settings_that_tell_apart_are_named(make_run: MakeRun) -> None:
    """c splits the three runs into two; the batch size goes with it and adds nothing; lr tells the rest apart."""
    one = make_run("a", spec={"algorithm.aggregate.c": 0.1, "clients.batch_size": 5})
    two = make_run("b", spec={"algorithm.aggregate.c": 0.5, "clients.batch_size": 6, "clients.lr": 0.1})
    three = make_run("c", spec={"algorithm.aggregate.c": 0.5, "clients.batch_size": 6, "clients.lr": 0.2})
    other = make_run("d", algorithm="fedavg")
    assert labels(one, two, three, other) == [
        "DRAG · c=0.1",
        "DRAG · c=0.5 · lr=0.1",
        "DRAG · c=0.5 · lr=0.2",
        "FedAvg",
    ]


def test_names_and_kinds_stand_alone(make_run: MakeRun) -> None:
    runs = make_run("a"), make_run("b", spec={"data.dataset": "mnist", "clients.lr": 0.5})
    assert labels(*runs) == ["DRAG · digits", "DRAG · mnist"]


def test_a_setting_only_one_has(make_run: MakeRun) -> None:
    runs = make_run("a", spec={"algorithm.server.beta": 0.9}), make_run("b")
    assert labels(*runs) == ["DRAG · server beta=0.9", "DRAG · no server beta"]


def test_a_composition_is_named_by_its_parts(make_run: MakeRun) -> None:
    run = make_run("a", spec={"algorithm.name": "custom", "algorithm.correction.name": "scaffold"})
    assert labels(run) == ["scaffold + drag"]


def test_worker_count_does_not_split_an_experiment(make_run: MakeRun) -> None:
    assert labels(make_run("a", seed=1, spec={"engine.workers": 4}), make_run("b", seed=2)) == ["DRAG"]
