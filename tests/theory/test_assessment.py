"""Constants measured along a run, and the judgement of a spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import dragfl
from dragfl.errors import SpecError
from dragfl.theory import Assessment, assess, largest_lr, measure
from dragfl.theory.assumptions import outside_the_theorem

TABLES: dict[str, Any] = {
    "rounds": 8,
    "clients": {"total": 4, "lr": 0.002},
    "model": {"name": "logistic"},
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "algorithm": {"name": "drag", "c": 0.005},
    "evaluation": {"every": 8},
}


def spec(*overrides: str) -> dragfl.Experiment:
    return dragfl.load(TABLES, *overrides)


@pytest.fixture(scope="module")
def covered() -> Assessment:
    return assess(spec())


def test_a_covered_spec(covered: Assessment) -> None:
    assert covered.covered and covered.changes == [] and "as far as L was measured" in covered.verdict
    assert covered.measurement.rounds == 8 and [m.round for m in covered.measurement.models] == [0, 2, 4, 6, 8]
    assert covered.x == pytest.approx(0.002 * 5 * covered.measurement.constants.smoothness)
    bound = covered.bound(8)
    assert bound is not None and bound.total > covered.measurement.mean_squared_gradient > 0
    assert all(row[3] == "holds" for row in covered.conditions)
    json.dumps(covered.values(), allow_nan=False)


def test_the_constants_are_the_largest_values(covered: Assessment) -> None:
    """f0 - f* is the loss of the first model: about log 10 for ten classes."""
    m = covered.measurement
    assert m.constants.smoothness == max(max(model.smoothness) for model in m.models)
    assert m.constants.noise == m.spreads["noise"].most >= m.spreads["noise"].median >= m.spreads["noise"].least > 0
    assert m.constants.gap == m.models[0].loss == pytest.approx(np.log(10), rel=0.1)
    assert (m.clients, m.population, m.samples) == (4, 4, 4 * 200)


def test_the_mean_of_the_squared_gradients_is_a_trapezoid(covered: Assessment) -> None:
    a, b, c, d, e = (model.squared_gradient for model in covered.measurement.models)
    assert covered.measurement.mean_squared_gradient == pytest.approx((a / 2 + b + c + d + e / 2) / 4)


def test_the_same_spec_gives_the_same_numbers(covered: Assessment) -> None:
    again = measure(spec(), rounds=8, models=3)
    assert again.models[-1].squared_gradient == pytest.approx(covered.measurement.models[-1].squared_gradient, rel=1e-4)
    assert again.models[-1].noise == pytest.approx(covered.measurement.models[-1].noise, rel=1e-4)


def test_the_curvature_of_logistic_regression(covered: Assessment) -> None:
    """The Hessian of softmax regression is at most max |(x, 1)|^2 / 2."""
    digits = dragfl.data.load("digits")
    size = digits.inputs(digits.x).flatten(1).square().sum(1).max()
    assert 0 < covered.measurement.constants.smoothness <= (float(size) + 1) / 2


def test_a_large_c_needs_both_changed() -> None:
    found = assess(spec("algorithm.c=0.25", "clients.lr=0.1"), rounds=1, models=1)
    assert not found.covered and found.bound(8) is None and found.values()["bound"] is None
    assert "whatever L is" in found.verdict
    lr = largest_lr(0.01, found.measurement.constants.smoothness, 5)
    assert lr is not None and f"c = 0.01 and clients.lr < {lr:.3g}" in found.changes[0]
    assert found.conditions[0] == (
        "c, for any learning rate",
        "0.25",
        "< 1/33 = 0.0303",
        "8.25 times too large",
    )
    assert any("c = 0.25 (EMNIST), lie outside" in note for note in found.notes)


def test_a_large_learning_rate_alone() -> None:
    found = assess(spec("clients.lr=0.1"), rounds=0)
    lr = largest_lr(0.005, found.measurement.constants.smoothness, 5)
    assert lr is not None and found.changes == [f"lower clients.lr from 0.1 to below {lr:.3g}, with c = 0.005 as it is"]
    assert assess(spec(f"clients.lr={0.99 * lr}"), rounds=0).covered


def test_a_c_that_is_too_large_for_the_learning_rate() -> None:
    found = assess(spec("algorithm.c=0.029"), rounds=0)
    assert not found.covered and len(found.changes) == 2
    most = float(found.changes[1].split("below ")[1].split(",")[0])
    assert assess(spec(f"algorithm.c={0.99 * most}"), rounds=0).covered


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        (["clients.momentum=0.9"], "clients.momentum"),
        (["algorithm.correction=scaffold"], "'Scaffold'"),
        (["algorithm.server_lr=2.0"], "the server step"),
        (["attack.name=sign_flip", "attack.attackers=1"], "[attack]"),
        (["clients.local_steps=[2, 5]"], "different numbers"),
        (["algorithm.divergence=angle"], "linear form"),
        (["algorithm.c={kind='inverse_sqrt', start=0.005}"], "schedule"),
    ],
)
def test_settings_that_the_theorem_does_not_have(overrides: list[str], text: str) -> None:
    (found,) = outside_the_theorem(spec(*overrides))
    assert text in found


def test_no_bound_for_a_run_outside_the_theorem() -> None:
    found = assess(spec("clients.momentum=0.5"), rounds=0)
    assert found.feasible and not found.covered and found.bound(8) is None
    assert "not stated for this run" in found.verdict and found.changes[0].startswith("not in the theorem: clients.mom")


@pytest.mark.parametrize("name", ["fedavg", "br_drag"])
def test_an_algorithm_without_a_bound(name: str) -> None:
    tables = TABLES | {"algorithm": {"name": name}, "root": {"size": 20}}
    with pytest.raises(SpecError, match="Theorem 1 is about DRAG and its c; set algorithm"):
        assess(dragfl.load(tables))


def test_data_that_are_elsewhere() -> None:
    with pytest.raises(SpecError, match="the data of the clients are not here"):
        assess(spec("flower.data=own"))


def test_a_run_is_measured_at_its_end_too(tmp_path: Path) -> None:
    """The last model of eight repeated rounds is the final model of the run."""
    run = dragfl.run(spec(), tmp_path / "run")
    found, whole = assess(run, rounds=2).measurement, assess(run).measurement
    assert [m.round for m in found.models] == [0, 1, 2, 8]
    assert found.models[-1].loss == pytest.approx(whole.models[-1].loss, rel=1e-6)
    assert found.mean_squared_gradient < found.models[0].squared_gradient  # the final model is not in it


def test_an_unfinished_run(tmp_path: Path) -> None:
    run = dragfl.run(spec(), tmp_path / "run")
    (run.path / "result.json").unlink()
    with pytest.raises(SpecError, match=r"has not finished \(8 of 8 rounds\); finish it with: dragfl resume"):
        assess(dragfl.load_run(run.path))


def test_a_run_that_diverges_is_measured_up_to_there() -> None:
    found = assess(spec("clients.lr=1e6", "model.name=mlp", "model.hidden=5", "rounds=30"))
    assert found.measurement.diverged and found.measurement.models[0].round == 0
    json.dumps(found.values(), allow_nan=False)
    assert any("diverged" in note for note in found.notes)


def test_progress_counts_to_the_end() -> None:
    seen: list[tuple[int, int]] = []
    measure(spec(), rounds=2, models=2, progress=lambda done, of: seen.append((done, of)))
    assert seen[-1][0] == seen[-1][1] == len(seen) == 2 + 2 * (4 + 4)


def test_a_network_with_batch_norm_and_drop_out() -> None:
    module = torch.nn.Sequential(
        torch.nn.Flatten(),
        torch.nn.Linear(64, 5),
        torch.nn.BatchNorm1d(5),
        torch.nn.Dropout(0.5),
        torch.nn.Linear(5, 10),
    )
    tables = TABLES | {"model": {"name": module, "buffers": "average"}}
    first, second = (measure(dragfl.load(tables), rounds=1, models=2) for _ in range(2))
    assert first.models[1].loss == pytest.approx(second.models[1].loss) and first.constants.smoothness > 0
