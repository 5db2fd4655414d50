"""Attacks on the data: attackers send the update of plain SGD on their poisoned samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as nnf

import dragfl
from dragfl import data
from dragfl.aggregates import AGGREGATES
from dragfl.data.dataset import from_tensors
from dragfl.errors import DataError, Interrupted, SpecError
from dragfl.rng import rng
from dragfl.types import no_state
from tests.conftest import Load, kept_bytes
from tests.engine.plain_sgd import sgd

CLOSE = {"atol": 2e-6, "rtol": 0}
Relabel = Callable[[Tensor, Tensor], Tensor]


@dataclass(frozen=True)
class RecordingMean:
    """The mean, which records every update."""

    seen: list[dict[int, Tensor]] = field(default_factory=list)
    mean: Any = field(default_factory=AGGREGATES["mean"])

    init = no_state

    def needs(self, state: Any) -> frozenset[Any]:
        return frozenset()

    def begin(self, *given: Any) -> Any:
        self.seen.append({})
        return self.mean.begin(*given)

    def fold(self, plan: Any, block: Any) -> Any:
        self.seen[-1] |= {int(m): row.clone() for m, row in zip(block.client, block.delta, strict=True)}
        return self.mean.fold(plan, block)

    def finish(self, *given: Any) -> Any:
        return self.mean.finish(*given)


@dataclass
class Simulated:
    """A federation after its rounds: updates by round and client, and the model before each round."""

    simulation: Any
    updates: list[dict[int, Tensor]]
    models: list[Tensor]
    records: list[Any]

    @property
    def attackers(self) -> list[int]:
        return sorted(self.simulation.federation.adversary.fixed)


def simulated(experiment: Load, attack: dict[str, Any] | None, **changes: Any) -> Simulated:
    recorder = RecordingMean()
    simulation = dragfl.simulate(experiment(algorithm={"aggregate": recorder}, attack=attack, **changes))
    models, records = [], []
    while not simulation.done:
        models.append(simulation.state.w)
        records.append(simulation.step())
    return Simulated(simulation, recorder.seen, models, records)


def plain_update(run: Simulated, t: int, client: int, x: Tensor, y: Tensor) -> Tensor:
    """Plain SGD on the client's samples (x, y), with the batches of its address."""
    spec = run.simulation.experiment.clients
    drawn = rng(3, "batch", t, client).integers(0, len(y), (spec.local_steps, spec.batch_size))
    return sgd(run.simulation.federation.model.module, run.models[t], x, y, list(drawn), spec.lr)


def own(run: Simulated, client: int) -> tuple[Tensor, Tensor]:
    dataset, mine = run.simulation.federation.worker.dataset, run.simulation.federation.worker.split.samples_of(client)
    return dataset.x[mine], dataset.y[mine]


FLIPS: list[tuple[dict[str, Any], Relabel]] = [
    ({}, lambda y, rows: 2 - y),
    ({"mode": "shift"}, lambda y, rows: (y + 1) % 3),
    ({"mode": "shift", "shift": 2}, lambda y, rows: (y + 2) % 3),
    ({"mode": "pair", "source": 0, "target": 2}, lambda y, rows: torch.where(y == 0, 2, y)),
    ({"sample_fraction": 0.5}, lambda y, rows: torch.where(torch.isin(torch.arange(len(y)), rows), 2 - y, y)),
]


@pytest.mark.parametrize(("settings", "relabel"), FLIPS)
def test_label_flip(experiment: Load, settings: dict[str, Any], relabel: Relabel) -> None:
    """Classes come from the data: 3 here. Which half is flipped is drawn once for a client: rng(seed, "poison", m)."""
    run = simulated(experiment, {"name": "label_flip", "attackers": 3, **settings}, data={"partition": {"kind": "iid"}})
    assert len(run.attackers) == 3
    for t in range(3):
        for m in run.attackers:
            x, y = own(run, m)
            rows = torch.from_numpy(rng(3, "poison", m).choice(len(y), len(y) // 2, replace=False))
            poisoned = relabel(y, rows)
            assert not torch.equal(poisoned, y)
            torch.testing.assert_close(run.updates[t][m], plain_update(run, t, m, x, poisoned), **CLOSE)


@pytest.mark.parametrize("attack", [{"name": "label_flip"}, {"name": "dynamic_label_flip", "sample_fraction": 0.5}])
def test_the_updates_of_honest_clients_are_unchanged(experiment: Load, attack: dict[str, Any]) -> None:
    """In the first round, where every client starts from the same model with and without attackers."""
    iid = {"partition": {"kind": "iid"}}
    clean = simulated(experiment, None, rounds=1, data=iid)
    run = simulated(experiment, {**attack, "attackers": 2}, rounds=1, data=iid)
    changed = [m for m in range(6) if not torch.equal(run.updates[0][m], clean.updates[0][m])]
    assert changed == run.attackers


def test_dynamic_label_flip(experiment: Load) -> None:
    """The least likely class under the model of this round, so the labels change from round to round."""
    run = simulated(experiment, {"name": "dynamic_label_flip", "attackers": 2})
    weight = run.simulation.federation.model
    flipped = []
    for t in range(3):
        W, b = weight.views(run.models[t])
        for m in run.attackers:
            x, y = own(run, m)
            poisoned = (x @ W.T + b).argmin(1)
            flipped.append(poisoned)
            assert not torch.equal(poisoned, y)
            torch.testing.assert_close(run.updates[t][m], plain_update(run, t, m, x, poisoned), **CLOSE)
    assert any(not torch.equal(flipped[0], other) for other in flipped[2::2])


IMAGES: dict[str, Any] = {"data": {"dataset": "digits", "partition": {"kind": "iid"}}}


@pytest.mark.parametrize("copies", [False, True])
def test_backdoor(experiment: Load, copies: bool) -> None:
    """A 2x2 square of value 9 at the top left and label 7 on a quarter of the samples; digits are stored in 0..16."""
    settings = {"target": 7, "size": 2, "value": 9.0, "corner": "top left", "sample_fraction": 0.25, "copies": copies}
    run = simulated(experiment, {"name": "backdoor", "attackers": 2, **settings}, **IMAGES)
    for m in run.attackers:
        x, y = (value.clone() for value in own(run, m))
        rows = rng(3, "poison", m).choice(len(y), round(0.25 * len(y)), replace=False)
        stamped, label = x[rows].clone(), torch.full((len(rows),), 7)
        stamped[:, :, :2, :2] = 9
        if copies:
            x, y = torch.cat([x, stamped]), torch.cat([y, label])
        else:
            x[rows], y[rows] = stamped, label
        for t in range(3):
            torch.testing.assert_close(run.updates[t][m], plain_update(run, t, m, x / 16.0, y), **CLOSE)


def test_scale_multiplies_the_update(experiment: Load) -> None:
    plain = simulated(experiment, {"name": "backdoor", "attackers": 2}, rounds=1, **IMAGES)
    scaled = simulated(experiment, {"name": "backdoor", "attackers": 2, "scale": 5.0}, rounds=1, **IMAGES)
    for m in range(6):
        factor = 5.0 if m in plain.attackers else 1.0
        assert torch.equal(scaled.updates[0][m], factor * plain.updates[0][m])
    torch.testing.assert_close(
        scaled.simulation.state.w - scaled.models[0],
        torch.stack([scaled.updates[0][m] for m in range(6)]).mean(0),
        **CLOSE,
    )


def test_attack_success_is_logged_at_every_evaluation(experiment: Load) -> None:
    """The fraction of test images of other classes that are classified as 4 with the trigger in a corner."""
    run = simulated(
        experiment,
        {"name": "backdoor", "attackers": 2, "target": 4, "scale": 3.0},
        rounds=5,
        evaluation={"every": 2, "batch_size": 100},
        clients={"local_steps": 10},
        **IMAGES,
    )
    assert ["attack_success" in record.metrics for record in run.records] == [False, True, False, True, True]
    assert ["accuracy" in record.metrics for record in run.records] == [False, True, False, True, True]
    digits = data.load("digits")
    x = digits.test_x[digits.test_y != 4].float()
    x[:, :, 5:, 5:] = 16.0
    for t in (2, 4):
        W, b = run.simulation.federation.model.views(run.models[t])
        as_target = ((x / 16.0).flatten(1) @ W.T + b).argmax(1) == 4
        assert run.records[t - 1].metrics["attack_success"] == pytest.approx(as_target.double().mean().item(), abs=2e-3)


def test_label_flips_log_no_attack_success(experiment: Load) -> None:
    run = simulated(experiment, {"name": "label_flip", "attackers": 2}, rounds=1)
    assert "accuracy" in run.records[0].metrics
    assert "attack_success" not in run.records[0].metrics


def test_model_replacement_reaches_a_high_success_rate(experiment: Load) -> None:
    """One attacker of ten, its update times the cohort, as in Bagdasaryan et al.: the mean is the attacker's model."""
    attack = {"name": "backdoor", "attackers": 1, "target": 3, "scale": 10.0, "sample_fraction": 0.5}
    changes = {"clients": {"total": 10, "local_steps": 20, "batch_size": 20}, "rounds": 8, **IMAGES}
    attacked = simulated(experiment, attack, **changes).records[-1].metrics
    weak = simulated(experiment, {**attack, "scale": 1.0}, **changes).records[-1].metrics
    assert attacked["attack_success"] > 0.9
    assert attacked["accuracy"] > 0.8
    assert weak["attack_success"] < 0.5


@pytest.mark.parametrize(
    "attack",
    [
        {"name": "label_flip", "sample_fraction": 0.4},
        {"name": "dynamic_label_flip"},
        {"name": "backdoor", "target": 1, "scale": 2.0},
    ],
)
def test_a_resumed_run_has_the_same_bits(experiment: Load, tmp_path: Path, attack: dict[str, Any]) -> None:
    """The spec of the run directory suffices to resume."""
    spec = experiment(rounds=5, attack={**attack, "attackers": 2}, clients={"per_round": 4}, **IMAGES)
    whole = dragfl.run(spec, tmp_path / "whole")
    stop = iter([False, False, True])
    with pytest.raises(Interrupted):
        dragfl.run(spec, tmp_path / "cut", should_stop=lambda: next(stop))
    again = dragfl.resume(tmp_path / "cut")
    assert kept_bytes(again.path) == kept_bytes(whole.path)
    clean = dragfl.run(experiment(rounds=5, clients={"per_round": 4}, **IMAGES), tmp_path / "clean")
    assert clean.metrics != whole.metrics


@pytest.mark.parametrize(
    ("attack", "resolved"),
    [
        ({"name": "label_flip"}, {"mode": "mirror", "shift": 1, "sample_fraction": 1.0}),
        (
            {"name": "label_flip", "mode": "pair", "source": 1, "target": 2},
            {"mode": "pair", "shift": 1, "source": 1, "target": 2, "sample_fraction": 1.0},
        ),
        ({"name": "dynamic_label_flip", "sample_fraction": 1}, {"sample_fraction": 1.0}),
        (
            {"name": "backdoor", "target": 2, "copies": True},
            {"target": 2, "size": 3, "corner": "bottom right", "sample_fraction": 0.5, "copies": True, "scale": 1.0},
        ),
    ],
)
def test_the_resolved_table_loads_as_the_same_attack(attack: dict[str, Any], resolved: dict[str, Any]) -> None:
    spec = dragfl.load({"attack": {**attack, "attackers": 4}})
    table = spec.tables()["attack"]
    assert {k: table[k] for k in resolved} == resolved
    assert table["name"] == attack["name"]
    assert dragfl.load(spec.tables()).tables() == spec.tables()
    assert dragfl.load(spec.tables()).attack == spec.attack


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ({"name": "label_flip", "sample_fraction": 0.0}, "sample_fraction: 0.0; give a number above 0"),
        (
            {"name": "dynamic_label_flip", "sample_fraction": 1.2},
            "sample_fraction: 1.2; give a number above 0",
        ),
        ({"name": "backdoor", "sample_fraction": -1.0}, "sample_fraction: -1.0"),
        ({"name": "label_flip", "mode": "pair", "source": 1}, "target: None; give a class from 0"),
        ({"name": "label_flip", "mode": "mirrored"}, "did you mean 'mirror'"),
        ({"name": "label_flip", "sources": 1}, r"attack\.sources: unknown key 'sources'; did you mean 'source'"),
        ({"name": "backdoor", "scale": 0.0}, "scale: 0.0; give a positive number"),
        ({"name": "backdoor", "target": -1}, "target: -1"),
    ],
)
def test_invalid_settings(experiment: Load, attack: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        experiment(attack={**attack, "attackers": 1})


@pytest.mark.parametrize(
    ("attack", "message"),
    [
        ({"name": "backdoor", "target": 10}, r"attack\.target: 10; give a class of the data, 0 to 9"),
        ({"name": "label_flip", "mode": "pair", "source": 0, "target": 10}, "target: 10; give a class from 0 to 9"),
        ({"name": "label_flip", "mode": "pair", "source": 11, "target": 0}, "source: 11; give a class from 0 to 9"),
        ({"name": "label_flip", "mode": "shift", "shift": 20}, "shift: 20 of 10 classes changes no label"),
        ({"name": "label_flip", "classes": 12}, r"attack\.classes: 12, but the data have 10 classes; leave it out"),
        ({"name": "backdoor", "value": 300.0}, r"attack\.value: 300; the images are stored as bytes"),
    ],
)
def test_settings_that_do_not_fit_the_data(
    experiment: Load, tmp_path: Path, attack: dict[str, Any], message: str
) -> None:
    spec = experiment(attack={**attack, "attackers": 1}, **IMAGES)
    with pytest.raises(SpecError, match=message):
        dragfl.run(spec, tmp_path / "run")
    assert not (tmp_path / "run").exists(), "refused before anything is written"


@pytest.mark.parametrize(("settings", "dataset"), [({"size": 9}, "digits"), ({}, None)])
def test_a_trigger_that_does_not_fit(experiment: Load, settings: dict[str, Any], dataset: str | None) -> None:
    spec = experiment(attack={"name": "backdoor", "attackers": 1, **settings}, data={"dataset": dataset or toy_like()})
    with pytest.raises(DataError, match="does not fit inputs of shape"):
        dragfl.simulate(spec)


def toy_like() -> dragfl.Dataset:
    x = torch.randn(60, 6)
    return from_tensors(x, torch.arange(60) % 3, x, torch.arange(60) % 3)


def test_the_stored_data_are_not_changed(experiment: Load) -> None:
    digits = data.load("digits")
    run = simulated(experiment, {"name": "backdoor", "attackers": 6}, rounds=1, **IMAGES)
    held = run.simulation.federation.worker.dataset
    assert torch.equal(held.x, digits.x)
    assert torch.equal(held.y, digits.y)


def test_with_all_labels_flipped_the_model_learns_the_flipped_labels(experiment: Load) -> None:
    """With everyone flipped the model learns 9 - y: right on the flipped labels, wrong on the test data."""
    run = simulated(
        experiment, {"name": "label_flip", "attackers": 6}, rounds=20, clients={"local_steps": 10}, **IMAGES
    )
    assert run.records[-1].metrics["accuracy"] < 0.05
    digits = data.load("digits")
    W, b = run.simulation.federation.model.views(run.simulation.state.w)
    scores = digits.inputs(digits.test_x).flatten(1) @ W.T + b
    assert (scores.argmax(1) == 9 - digits.test_y).double().mean() > 0.85
    assert nnf.cross_entropy(scores, 9 - digits.test_y) < 1.0
