"""The packaged figures and claims: all load, all resolve, and every figure is needed by a claim."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from dragfl.config.compare import comparable
from dragfl.data.partitions.by_label import LabelMod
from dragfl.errors import SpecError
from dragfl.reproduction import runs
from dragfl.reproduction.claims import claims_for, load_claims
from dragfl.reproduction.figure import figure_names, load_figure, parse_figure
from dragfl.reproduction.runs import FigurePlan, FigureRequest, plan_figure, unique_runs
from dragfl.runs.tuning import TUNING_SEEDS, Score

FIGURES = ("fig3a", "fig3a_text", "fig3b", "fig3b_text", "fig4a", "fig4b", "fig5", "fig6", "fig7", "fig8")
DRIFT = FIGURES[:6]


def plan(name: str, seeds: tuple[int, ...] = (0,), *, quick: bool = False) -> FigurePlan:
    figure = load_figure(name)
    return plan_figure(FigureRequest(figure, figure.datasets[0], seeds, quick), Path("nowhere"))


def run_names(name: str, seeds: tuple[int, ...] = (0,), *, quick: bool = False) -> list[str]:
    return [run.planned.name for run in plan(name, seeds, quick=quick).runs]


def test_the_figures_of_the_paper_come_first() -> None:
    assert tuple(figure_names()[: len(FIGURES)]) == FIGURES


@pytest.mark.parametrize("name", figure_names())
def test_a_figure_resolves_at_both_scales(name: str) -> None:
    figure = load_figure(name)
    for quick in (False, True):
        for dataset in {*figure.datasets, *(figure.quick.datasets if quick else ())}:
            planned = plan_figure(FigureRequest(figure, dataset, (0, 1), quick), Path("nowhere")).planned
            assert planned
            assert all(p.experiment.dataset == dataset for p in planned)
    assert figure.title and figure.paper and figure.assumed
    assert claims_for(name) or name.startswith(("compositions", "authors")), "no claim needs this figure"


@pytest.mark.parametrize("name", DRIFT)
def test_the_drift_figures_have_the_five_curves_of_the_paper(name: str) -> None:
    """And a derived one: AdaBest's paper evaluates another model."""
    curves = load_figure(name).curves
    assert [c.label for c in curves if c.of is None] == ["FedAvg", "FedProx", "SCAFFOLD", "AdaBest", "DRAG"]
    assert [(c.id, c.of) for c in curves if c.of is not None] == [("adabest_own", "adabest")]


@pytest.mark.parametrize("name", ["controls3a", "controls3b", "controls4a", "controls4b"])
def test_the_controls_are_tuned_on_validation_data(name: str) -> None:
    figure = load_figure(name)
    tuned = {curve.id: curve.tune for curve in figure.curves if curve.tune is not None}
    assert set(tuned) == {"fedavg_tuned", "fedavgm"} and all(tune.on == "validation" for tune in tuned.values())
    assert figure["fedexp_own"].of == "fedexp"


@pytest.mark.parametrize("name", ["fig3a_text", "fig3b_text"])
def test_the_partition_of_the_text(name: str) -> None:
    """47 classes on 40 clients: clients 0 to 6 also have the labels 40 to 46."""
    tables = settings(name, "drag")
    assert tables["data"]["partition"] == {"kind": "label_mod", "q": 1.0}
    without = {**tables, "data": settings(name.removesuffix("_text"), "drag")["data"], "name": ""}
    assert without == {**settings(name.removesuffix("_text"), "drag"), "name": ""}
    split = LabelMod(1.0)(np.arange(47).repeat(3), 40, np.random.default_rng(0))
    classes = [len({i // 3 for i in split.samples_of(client)}) for client in range(40)]
    assert (classes.count(1), classes.count(2)) == (33, 7)


def settings(name: str, curve: str) -> dict[str, object]:
    return next(run.planned.experiment.tables() for run in plan(name).runs if run.curve == curve)


@pytest.mark.parametrize(
    ("name", "total", "sampled", "c", "alpha", "beta", "target"),
    [
        ("fig3a", 40, 40, 0.25, 1.0, 0.8, 0.8),
        ("fig3b", 40, 10, 0.25, 0.6, 0.8, 0.8),
        ("fig4a", 20, 20, 0.1, 1.0, 0.2, 0.7),
        ("fig4b", 20, 5, 0.1, 0.2, 0.2, 0.7),
    ],
)
def test_the_settings_of_the_drift_figures(
    name: str, total: int, sampled: int, c: float, alpha: float, beta: float, target: float
) -> None:
    tables = settings(name, "drag")
    assert tables["target_accuracy"] == target and tables["evaluation"]["every"] == 10
    assert comparable(tables)["clients"] == {
        "total": total, "per_round": sampled, "local_steps": 5, "batch_size": 20, "lr": 0.1, "sampling": "replacement",
    }  # fmt: skip
    assert tables["data"]["partition"] == {"kind": "sorted_shards"}
    aggregate = tables["algorithm"]["aggregate"]
    assert (aggregate["c"], aggregate["alpha"], aggregate["variant"]) == (c, alpha, "paper")
    assert settings(name, "fedprox")["algorithm"]["correction"]["mu"] == 0.2
    adabest = settings(name, "adabest")["algorithm"]
    assert (adabest["correction"]["mu"], adabest["server"]["beta"]) == (0.02, beta)


@pytest.mark.parametrize(
    ("name", "attackers", "kind"),
    [("fig5", 1, "iid"), ("fig6", 1, "sorted_shards"), ("fig7", 4, "iid"), ("fig8", 4, "sorted_shards")],
)
def test_the_settings_of_the_attack_figures(name: str, attackers: int, kind: str) -> None:
    tables = settings(name, "br_drag")
    assert tables["data"]["partition"] == {"kind": kind}
    assert tables["clients"]["total"] == tables["clients"]["per_round"] == 10
    assert tables["attack"]["attackers"] == attackers and tables["attack"]["variance"] == 3.0
    assert tables["root"]["size"] == 3000 and not tables["root"]["disjoint"]
    assert tables["algorithm"]["aggregate"]["c"] == 0.1
    assert "attack" not in settings(name, "clean")


def test_figures_share_runs_with_the_same_settings() -> None:
    assert set(run_names("fig3a")) & set(run_names("compositions3a")) == {
        n for n in run_names("fig3a") if "drag" in n or "scaff" in n
    }
    assert not set(run_names("fig3a")) & set(run_names("fig3b"))
    assert not set(run_names("fig3a")) & set(run_names("fig3a", quick=True))
    everything = [p for name in figure_names() for p in plan(name, quick=True).planned]
    assert len(unique_runs(everything)) < len(everything) - 40


def test_run_names_differ_only_in_the_seed() -> None:
    zero, one = run_names("fig7", (0,)), run_names("fig7", (1,))
    assert [name.removesuffix("s0") for name in zero] == [name.removesuffix("s1") for name in one]


def test_a_derived_curve_has_no_runs_of_its_own() -> None:
    table = {"topic": "f", "title": "t", "paper": "p", "based_on": "fig3a", "include": ["fedavg", "adabest"]}
    derived = {"id": "adabest_own", "label": "AdaBest, own model", "of": "adabest"}
    figure = parse_figure("own", {**table, "curves": [derived]})
    planned = plan_figure(FigureRequest(figure, "emnist47", (0, 1)), Path("nowhere"))
    assert figure["adabest_own"].of == "adabest"
    assert [run.curve for run in planned.runs] == ["fedavg", "fedavg", "adabest", "adabest"]


@pytest.mark.parametrize(
    ("key", "values", "best", "tried"),
    [
        ("algorithm.c", [0.1, 0.2, 0.4], 0.2, []),  # inside the grid
        ("algorithm.c", [0.2, 0.4], 0.05, [0.1, 0.05, 0.025]),  # 0.05 lies inside once 0.025 has been tried
        ("algorithm.c", [0.5, 0.6], 0.01, [0.25, 0.125, 0.0625]),  # at most three times
        ("algorithm.alpha", [0.5, 1.0], 1.0, []),  # alpha is at most 1: the range ends here
        ("clients.lr", [0.5, 1.0], 1.8, [2.0, 4.0]),
    ],
)
def test_a_grid_is_extended_until_its_best_value_lies_inside(
    monkeypatch: pytest.MonkeyPatch, key: str, values: list[float], best: float, tried: list[float]
) -> None:
    """Scores by hand: the accuracy falls with the distance to the best value, and nothing reaches the target."""
    monkeypatch.setattr(runs, "score_trial", lambda trial: Score(None, 1 - abs(trial.candidate - best) / 10))
    curve = {"id": "x", "label": "X", "set": ["algorithm.name=drag"], "tune": {"key": key, "values": values}}
    table = {"topic": "f", "title": "t", "paper": "p", "based_on": "fig3a", "curves": [curve]}
    planned = plan_figure(FigureRequest(parse_figure("own", table), "emnist47", (0,)), Path("nowhere"))
    expected = [*values, *tried]
    assert [trial.candidate for trial in planned.tuning] == [value for value in expected for _ in TUNING_SEEDS]
    assert planned.tuned == {"x": min(expected, key=lambda value: abs(value - best))}


def test_tuning_on_test_data_is_a_choice_of_the_figure() -> None:
    for on, expected in (("test", (0.0, "test")), ("validation", (0.1, "validation"))):
        curve = {"id": "x", "label": "X", "tune": {"key": "clients.lr", "values": [0.1, 0.2], "on": on}}
        table = {"topic": "f", "title": "t", "paper": "p", "based_on": "fig3a", "curves": [curve]}
        planned = plan_figure(FigureRequest(parse_figure("own", table), "emnist47", (0,)), Path("nowhere"))
        evaluations = [trial.planned.experiment.evaluation for trial in planned.tuning]
        assert {(e.validation, e.target_on) for e in evaluations} == {expected} and planned.untuned == ["x"]


def test_every_claim_exists_once() -> None:
    ids = [claim.id for claim in load_claims()]
    assert len(set(ids)) == len(ids)
    for number in (*range(1, 32), *range(35, 45)):  # C32 to C34 are about the theory
        assert any(re.fullmatch(rf"C{number}[a-h]?", i) for i in ids), f"C{number}"


def test_every_figure_of_the_paper_has_claims_of_the_paper() -> None:
    claims = [claim for claim in load_claims() if claim.source == "paper"]
    for number in range(3, 9):
        assert any(f"Fig. {number}" in claim.section for claim in claims), f"Fig. {number}"


def test_the_c_that_the_paper_does_not_state_is_judged_with_three_values() -> None:
    """Every claim of the paper that compares BR-DRAG with other algorithms."""
    claims = [
        c
        for c in load_claims()
        if c.source == "paper" and any(k.curve == "br_drag" and k.versus for k in c.comparisons)
    ]
    assert len(claims) == 7
    for claim in claims:
        assert list(claim.settings) == ["c = 0.1", "c = 0.25", "c = 0.5"]


def test_errors_in_a_figure() -> None:
    with pytest.raises(SpecError, match="did you mean 'fig3b'"):
        load_figure("fig3c")
    table = {"topic": "f", "title": "t", "paper": "p", "based_on": "fig3a"}
    with pytest.raises(SpecError, match=r"no curve 'fedavgg'.*did you mean 'fedavg'"):
        parse_figure("own", {**table, "include": ["fedavgg"]})
    with pytest.raises(SpecError, match="two curves have the id 'drag'"):
        parse_figure("own", {**table, "include": ["drag"], "curves": [{"id": "drag", "label": "DRAG"}]})
    with pytest.raises(SpecError, match="no datasets"):
        parse_figure("own", {"topic": "f", "title": "t", "paper": "p"})
    derived = {"id": "own_drag", "label": "DRAG, own", "of": "drag"}
    for curve, message in (
        (derived, "of = 'drag' is not a curve with runs of this figure"),
        ({**derived, "set": ["algorithm.c=1.0"]}, "`of` with `set` or `tune`"),
        ({**derived, "of": "own_drag"}, "of = 'own_drag' is not a curve with runs"),
    ):
        with pytest.raises(SpecError, match=re.escape(f"figure own, curve 'own_drag': {message}")):
            parse_figure("own", {**table, "include": ["fedavg"], "curves": [curve]})
    own = parse_figure("own", {**table, "curves": [{"id": "x", "label": "X", "set": ["algorithm.name=drog"]}]})
    with pytest.raises(SpecError, match=r"figure own: .*did you mean 'drag'"):
        plan_figure(FigureRequest(own, "emnist47", (0,)), Path("nowhere"))
    with pytest.raises(SpecError, match="seed 100 is reserved for tuning"):
        plan("fig3a", (100,))
