"""The panels and claims that are shipped: all load, all resolve, and every one serves or is served."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dragfl.errors import SpecError
from dragfl.reproduction import claims
from dragfl.reproduction import figure as panel
from dragfl.reproduction.plan import Scale, lay_out, unique

FIGURES = ("fig3a", "fig3b", "fig4a", "fig4b", "fig5", "fig6", "fig7", "fig8")


def laid(name: str, seeds: tuple[int, ...] = (0,), *, quick: bool = False) -> list[str]:
    one = panel.load(name)
    return [run.planned.name for run in lay_out(one, Scale(one.datasets[0], seeds, quick), Path("nowhere")).runs]


def test_every_figure_of_the_paper_has_a_panel() -> None:
    assert tuple(panel.names()[: len(FIGURES)]) == FIGURES


@pytest.mark.parametrize("name", panel.names())
def test_a_panel_resolves_at_both_scales(name: str) -> None:
    one = panel.load(name)
    for quick in (False, True):
        for dataset in {*one.datasets, *(one.quick.datasets if quick else ())}:
            made = lay_out(one, Scale(dataset, (0, 1), quick), Path("nowhere"))
            assert made.planned
            assert all(p.experiment.dataset == dataset for p in made.planned)
    assert one.title and one.paper and one.assumed
    assert claims.served_by(name) or name.startswith(("compositions", "authors")), "a panel serves a claim"


@pytest.mark.parametrize("name", FIGURES[:4])
def test_the_drift_figures_have_the_papers_five_curves(name: str) -> None:
    assert [curve.label for curve in panel.load(name).curve] == ["FedAvg", "FedProx", "SCAFFOLD", "AdaBest", "DRAG"]


def settings(name: str, curve: str) -> dict[str, object]:
    one = panel.load(name)
    runs = lay_out(one, Scale(one.datasets[0], (0,)), Path("nowhere")).runs
    return next(run.planned.experiment.tables() for run in runs if run.curve == curve)


@pytest.mark.parametrize(
    ("name", "total", "sampled", "c", "alpha", "beta", "target"),
    [
        ("fig3a", 40, 40, 0.25, 1.0, 0.8, 0.8),
        ("fig3b", 40, 10, 0.25, 0.6, 0.8, 0.8),
        ("fig4a", 20, 20, 0.1, 1.0, 0.2, 0.7),
        ("fig4b", 20, 5, 0.1, 0.2, 0.2, 0.7),
    ],
)
def test_the_papers_settings_of_drift(
    name: str, total: int, sampled: int, c: float, alpha: float, beta: float, target: float
) -> None:
    tables = settings(name, "drag")
    assert tables["target_accuracy"] == target and tables["evaluation"]["every"] == 10
    clients = tables["clients"]
    assert clients == {
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
def test_the_papers_settings_of_attacks(name: str, attackers: int, kind: str) -> None:
    tables = settings(name, "br_drag")
    assert tables["data"]["partition"] == {"kind": kind}
    assert tables["clients"]["total"] == tables["clients"]["per_round"] == 10
    assert tables["attack"]["attackers"] == attackers and tables["attack"]["variance"] == 3.0
    assert tables["root"]["size"] == 3000 and not tables["root"]["disjoint"]
    assert tables["algorithm"]["aggregate"]["c"] == 0.1
    assert "attack" not in settings(name, "clean")


def test_panels_share_runs_with_the_same_settings() -> None:
    assert set(laid("fig3a")) & set(laid("compositions3a")) == {n for n in laid("fig3a") if "drag" in n or "scaff" in n}
    assert not set(laid("fig3a")) & set(laid("fig3b"))
    assert not set(laid("fig3a")) & set(laid("fig3a", quick=True))
    everything = [p for name in panel.names() for p in lay_out(
        panel.load(name), Scale(panel.load(name).datasets[0], (0,), True), Path("nowhere")).planned]  # fmt: skip
    assert len(unique(everything)) < len(everything) - 40


def test_a_seed_is_another_run_of_the_same_settings() -> None:
    zero, one = laid("fig7", (0,)), laid("fig7", (1,))
    assert [name.removesuffix("s0") for name in zero] == [name.removesuffix("s1") for name in one]


def test_every_claim_is_there_once() -> None:
    ids = [claim.id for claim in claims.load()]
    assert len(set(ids)) == len(ids)
    for number in range(1, 32):
        assert any(re.fullmatch(rf"C{number}[a-d]?", i) for i in ids), f"C{number}"


def test_mistakes_in_a_panel() -> None:
    with pytest.raises(SpecError, match="did you mean 'fig3b'"):
        panel.load("fig3c")
    table = {"figure": "f", "title": "t", "paper": "p", "like": "fig3a"}
    with pytest.raises(SpecError, match=r"no curve 'fedavgg'.*did you mean 'fedavg'"):
        panel.made("own", {**table, "also": ["fedavgg"]})
    with pytest.raises(SpecError, match="two curves are called 'drag'"):
        panel.made("own", {**table, "also": ["drag"], "curve": [{"id": "drag", "label": "DRAG"}]})
    with pytest.raises(SpecError, match="no datasets"):
        panel.made("own", {"figure": "f", "title": "t", "paper": "p"})
    own = panel.made("own", {**table, "curve": [{"id": "x", "label": "X", "set": ["algorithm.name=drog"]}]})
    with pytest.raises(SpecError, match=r"panel own: .*did you mean 'drag'"):
        lay_out(own, Scale("emnist47", (0,)), Path("nowhere"))
    with pytest.raises(SpecError, match="seed 100 is one that controls are tuned on"):
        lay_out(panel.load("fig3a"), Scale("emnist47", (100,)), Path("nowhere"))
