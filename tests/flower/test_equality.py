"""A federation on a grid has the bits of the simulator: every preset, attacks, partial participation, any order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import torch

import dragfl
from dragfl.algorithms import PRESETS
from dragfl.rng import rng
from tests.conftest import Load
from tests.engine.custom_attacks import GrowingAttack
from tests.flower.native import Federation, without_nodes

ROOT = {"root": {"size": 20}}


def assert_equal_to_simulator(experiment: dragfl.Experiment, federation: Federation) -> None:
    simulation, native = dragfl.simulate(experiment), federation.simulation()
    expected, records = list(simulation), list(native)
    assert torch.equal(simulation.state.w, native.state.w)
    assert [without_nodes(r) for r in records] == [without_nodes(r) for r in expected]


def out_of_order(federation: Federation) -> Federation:
    """Replies arrive after up to nine seconds, drawn for each node and round."""
    federation.grid.delay = lambda node, round: 9.0 * float(rng(0, "delay", node, round).random())
    return federation


@pytest.mark.parametrize("block", [1, 4])
@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_has_the_bits_of_the_simulator(experiment: Load, tmp_path: Path, name: str, block: int) -> None:
    """Three rounds of all six clients. Node ids are above 2^63. No node trains twice in a round."""
    spec = experiment(algorithm={"name": name}, **ROOT, clients={"lr": 0.05}, engine={"block": block})
    federation = out_of_order(Federation(spec, tmp_path))
    assert_equal_to_simulator(spec, federation)
    assert min(federation.grid.ids) > 2**63
    assert sorted(sent for sent in federation.grid.sent if sent[1] == "train") == [
        (m, "train", t) for m in range(6) for t in (1, 2, 3)
    ]


@pytest.mark.parametrize("trainer", ["reference", "dense"])
def test_clients_that_the_simulator_trains_in_groups_send_the_same_updates(
    experiment: Load, tmp_path: Path, trainer: str
) -> None:
    """The dense trainer trains a block of the simulator at once; only the logged loss may differ in its last digit."""
    spec = experiment(model={"name": "mlp", "hidden": 8}, engine={"block": 4, "trainer": trainer})
    simulation, native = dragfl.simulate(spec), Federation(spec, tmp_path).simulation()
    losses = [(a.metrics["train_loss"], b.metrics["train_loss"]) for a, b in zip(simulation, native, strict=True)]
    assert torch.equal(simulation.state.w, native.state.w)
    assert all(a == pytest.approx(b, rel=1e-6) for a, b in losses)


@pytest.mark.parametrize(
    "attack",
    [
        {"name": "sign_flip", "attackers": 2},
        {"name": "alie", "attackers": 2},
        {"name": "label_flip", "fraction": 0.5, "redraw": True},
        {"name": GrowingAttack(), "attackers": 2},
    ],
    ids=["own", "colluding", "data", "state"],
)
@pytest.mark.parametrize("algorithm", ["drag", "scaffold", "median"])
def test_attacks_have_the_bits_of_the_simulator(
    experiment: Load, tmp_path: Path, attack: dict[str, Any], algorithm: str
) -> None:
    spec = experiment(attack=attack, algorithm={"name": algorithm}, engine={"block": 4})
    assert_equal_to_simulator(spec, out_of_order(Federation(spec, tmp_path)))


@pytest.mark.parametrize("algorithm", ["drag", "scaffold", "mime", "trimmed_mean"])
def test_a_sampled_cohort_has_the_bits_of_the_simulator(experiment: Load, tmp_path: Path, algorithm: str) -> None:
    """Three of six clients a round, some of them unavailable, with different numbers of local steps."""
    clients = {"per_round": 3, "availability": 0.7, "local_steps": [1, 3]}
    spec = experiment(rounds=5, algorithm={"name": algorithm}, clients=clients, engine={"block": 2})
    assert_equal_to_simulator(spec, Federation(spec, tmp_path))


def test_kept_results_spill_to_disk_with_the_same_bits(
    experiment: Load, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first round of DRAG keeps all updates; with no memory allowed, each is written to a temporary file."""
    reserved: list[int] = []
    reserve = os.posix_fallocate
    monkeypatch.setattr(
        os, "posix_fallocate", lambda file, start, size: reserved.append(size) or reserve(file, start, size)
    )
    spec = experiment(rounds=2, algorithm={"name": "drag"}, state={"memory_mb": 0}, engine={"block": 1})
    native = Federation(spec, tmp_path).simulation()
    list(native)
    assert reserved == [4 * native.federation.info.dim] * 6
    in_memory = experiment(rounds=2, algorithm={"name": "drag"}, engine={"block": 1})
    assert_equal_to_simulator(in_memory, Federation(spec, tmp_path / "again"))
