"""Accuracy per class, and of every client on its own label distribution."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import dragfl
from dragfl.cli import main
from dragfl.data.dataset import from_tensors
from dragfl.data.partitions import Resampled, Split
from dragfl.engine import evaluation
from dragfl.engine.evaluation import Score, class_accuracies, class_and_client_metrics, client_accuracies, mean_scores
from dragfl.errors import SpecError
from tests.conftest import Load, kept_bytes

KEYS = {"class_accuracy", "client_accuracy_mean", "client_accuracy_worst_decile", "client_accuracy_variance"}


def counts(*rows: list[int]) -> Any:
    return np.array(rows, np.int64)


def test_by_hand() -> None:
    """Two blocks, three classes with 4, 5 and 0 test samples; 1 + 2 and 2 + 2 correct predictions.

    a = (3/4, 4/5, none), accuracy 7/9. Client 0 has 3:1 of the first two: 3/4 * 3/4 + 1/4 * 4/5 = 0.7625. Client 1 has
    only the second class and the one without test samples: 0.8. Client 2 has only the latter and is left out. Mean
    0.78125, variance ((0.8 - 0.7625) / 2)^2 = 0.01875^2, worst tenth: one client, 0.7625.
    """
    scores = [Score((1, 2, 0), 1.5), Score((2, 2, 0), 3.0)]
    assert mean_scores(scores, 9) == {"accuracy": 7 / 9, "loss": 0.5}
    metrics = class_and_client_metrics(scores, np.array([4, 5, 0]), counts([3, 1, 0], [0, 6, 2], [0, 0, 9]))
    assert set(metrics) == KEYS
    assert metrics["class_accuracy"] == [0.75, 0.8, None]
    assert metrics["client_accuracy_mean"] == pytest.approx(0.78125)
    assert metrics["client_accuracy_worst_decile"] == pytest.approx(0.7625)
    assert metrics["client_accuracy_variance"] == pytest.approx(0.01875**2)
    assert json.loads(json.dumps(metrics, allow_nan=False)) == metrics


def test_the_worst_tenth_is_rounded_up() -> None:
    """Of 21 clients with accuracies 0, 0.05, ..., 1 the worst three are 0, 0.05, 0.1; of ten clients one."""
    per_class = Score(tuple(range(21)), 0.0)
    samples = np.full(21, 20)
    metrics = class_and_client_metrics([per_class], samples, np.eye(21, dtype=np.int64))
    assert metrics["client_accuracy_worst_decile"] == pytest.approx(0.05)
    metrics = class_and_client_metrics([per_class], samples, np.eye(21, dtype=np.int64)[5:15])
    assert metrics["client_accuracy_worst_decile"] == pytest.approx(0.25)


def test_no_client_has_a_tested_class() -> None:
    metrics = class_and_client_metrics([Score((3, 0), 0.0)], np.array([4, 0]), counts([0, 5], [0, 1]))
    assert metrics == {"class_accuracy": [0.75, None]}


@given(st.lists(st.lists(st.integers(0, 9), min_size=4, max_size=4), min_size=1, max_size=25), st.integers(0, 99))
def test_properties(rows: list[list[int]], seed: int) -> None:
    """Within the range of the classes held, independent of the order of clients and of the scale of a client."""
    samples = np.array([7, 3, 11, 0])
    correct = np.random.default_rng(seed).integers(0, samples + 1)
    per_class = class_accuracies([Score(tuple(correct.tolist()), 0.0)], samples)
    accuracies = client_accuracies(counts(*rows), per_class)
    held = [row for row in rows if sum(row[:3])]
    assert len(accuracies) == len(held)
    for value, row in zip(accuracies, held, strict=True):
        some = [a for a, n in zip(per_class, row, strict=True) if n and not np.isnan(a)]
        assert min(some) - 1e-12 <= value <= max(some) + 1e-12
    np.testing.assert_allclose(client_accuracies(counts(*rows[::-1]), per_class), accuracies[::-1])
    np.testing.assert_allclose(client_accuracies(3 * counts(*rows), per_class), accuracies)


def test_a_large_population_is_thinned_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluation, "MAX_CLIENTS", 4)
    labels = np.array([0, 1, 2, 0, 1, 2, 0, 1, 2])
    split = Split.from_owner(np.arange(9), 9)
    assert evaluation.client_label_counts(split, labels, 3).tolist() == [[1, 0, 0]] * 3, "clients 0, 3, 6"
    virtual = Resampled(2)(labels, 1000, np.random.default_rng(0))
    assert evaluation.client_label_counts(virtual, labels, 3).shape == (4, 3)


def test_in_a_simulation(experiment: Load, toy: dragfl.Dataset) -> None:
    """The metrics from the predictions of the model itself, with test blocks that do not divide the test set."""
    simulation = dragfl.simulate(experiment(rounds=2, evaluation={"every": 2, "batch_size": 13}))
    first, last = list(simulation)
    assert not KEYS & set(first.metrics), "only evaluated rounds have them"
    worker = simulation.federation.worker
    right = worker.local.loop.predict(simulation.evaluated_model, toy.test_x, 60).argmax(1) == toy.test_y
    per_class = [right[toy.test_y == k].double().mean().item() for k in range(3)]
    assert last.metrics["class_accuracy"] == pytest.approx(per_class)
    assert last.metrics["accuracy"] == right.double().mean().item()
    # 144 samples of three classes sorted by label: each of the six clients has half of one class.
    assert last.metrics["client_accuracy_mean"] == pytest.approx(np.mean(per_class))
    assert last.metrics["client_accuracy_worst_decile"] == pytest.approx(min(per_class))
    assert last.metrics["client_accuracy_variance"] == pytest.approx(np.var(per_class))


def test_iid_clients_have_the_accuracy_of_the_test_set(experiment: Load) -> None:
    """One client holds all training data, whose labels are distributed as those of the test set."""
    *_, last = dragfl.simulate(experiment(clients={"total": 1}))
    assert last.metrics["client_accuracy_mean"] == pytest.approx(last.metrics["accuracy"])
    assert last.metrics["client_accuracy_variance"] == 0.0


def test_a_class_without_test_samples(experiment: Load, toy: dragfl.Dataset, tmp_path: Path) -> None:
    keep = toy.test_y != 1
    data = from_tensors(toy.x, toy.y, toy.test_x[keep], toy.test_y[keep], classes=3)
    run = dragfl.run(experiment(data={"dataset": data}), tmp_path / "r")
    assert [value is None for value in run.metrics[-1]["class_accuracy"]] == [False, True, False]
    assert 0 <= run.metrics[-1]["client_accuracy_mean"] <= 1


def test_validation_data_have_accuracy_and_loss_only(experiment: Load) -> None:
    *_, last = dragfl.simulate(experiment(evaluation={"every": 1, "validation": 0.25}))
    assert {name for name in last.metrics if name.startswith("validation")} == {
        "validation_accuracy",
        "validation_loss",
    }


def test_workers_count_the_same(tmp_path: Path) -> None:
    tables = {"rounds": 2, "model": {"name": "logistic"}, "evaluation": {"every": 1, "batch_size": 100}}
    one = dragfl.run(dragfl.load(tables, "engine.workers=1"), tmp_path / "one")
    two = dragfl.run(dragfl.load(tables, "engine.workers=2"), tmp_path / "two")
    assert kept_bytes(one.path) == kept_bytes(two.path)
    assert len(one.metrics[-1]["class_accuracy"]) == 10


def test_a_diverging_model_is_scored(experiment: Load) -> None:
    """NaN scores count as predictions of some class; every metric stays a number."""
    worker = dragfl.simulate(experiment()).federation.worker
    w = torch.full((worker.info.dim,), float("nan"))
    metrics = worker.evaluate(w, [worker.score(w, block) for block in range(worker.evaluation_blocks)])
    assert 0 <= metrics["client_accuracy_mean"] <= 1


def test_the_list_in_data_frames_and_values(experiment: Load, tmp_path: Path) -> None:
    run = dragfl.run(experiment(), tmp_path / "r")
    frame = run.to_pandas()
    assert frame["class_accuracy"].iloc[-1] == run.metrics[-1]["class_accuracy"]
    assert run.values("client_accuracy_mean")[-1] == (3, run.metrics[-1]["client_accuracy_mean"])
    with pytest.raises(SpecError, match="metric class_accuracy: not one number for each round"):
        run.values("class_accuracy")


def test_commands_read_the_list(digits_toml: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run that prints JSON, a report of it, and a comparison by a metric that is not one number."""
    for name in ("fedavg", "drag"):
        assert main(["run", str(digits_toml), f"algorithm.name={name}", "--out", str(tmp_path / name), "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert sum(len(line.get("class_accuracy", [])) == 10 for line in lines) >= 8
    report = ["report", *(str(tmp_path / name) for name in ("fedavg", "drag")), "--no-figures", "--out", str(tmp_path)]
    assert main([*report, "--compare", "fedavg", "drag", "--metric", "client_accuracy_mean"]) == 0
    assert main([*report, "--compare", "fedavg", "drag", "--metric", "class_accuracy"]) == 2
    assert "metric class_accuracy: not one number" in capsys.readouterr().err
