"""Validation data: training samples held out before root data and partition, evaluated in addition to the test set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragfl
from dragfl.errors import DataError, SpecError
from tests.conftest import Load


def held_out(experiment: Load, fraction: float = 0.25, **changes: Any) -> Any:
    return dragfl.simulate(experiment(evaluation={"validation": fraction}, **changes))


def client_samples(simulation: Any) -> list[int]:
    worker = simulation.federation.worker
    return sorted(np.concatenate([worker.split.samples_of(m) for m in range(6)]).tolist())


def test_no_client_has_a_validation_sample(experiment: Load) -> None:
    simulation = held_out(experiment)
    rows = simulation.federation.worker.validation.tolist()
    assert len(rows) == 36, "a quarter of 144"
    assert sorted([*rows, *client_samples(simulation)]) == list(range(144))
    other = dragfl.simulate(experiment("seed=4", evaluation={"validation": 0.25}))
    assert other.federation.worker.validation.tolist() != rows, "another seed holds out other samples"


def test_root_data_are_drawn_from_the_rest(experiment: Load, toy: dragfl.Dataset) -> None:
    simulation = held_out(experiment, algorithm={"name": "br_drag"}, root={"size": 30})
    worker = simulation.federation.worker
    root = [int((toy.x == row).all(1).nonzero().item()) for row in worker.root.x]
    assert sorted([*root, *worker.validation, *client_samples(simulation)]) == list(range(144))
    shared = held_out(experiment, algorithm={"name": "br_drag"}, root={"size": 30, "disjoint": False})
    assert client_samples(shared) == sorted(set(range(144)) - set(shared.federation.worker.validation.tolist()))


def test_its_accuracy_and_loss_are_logged(experiment: Load, toy: dragfl.Dataset) -> None:
    """36 samples in batches of 10 give the accuracy that the model has on all of them at once."""
    simulation = dragfl.simulate(experiment(evaluation={"validation": 0.25, "batch_size": 10}))
    metrics = simulation.step().metrics
    worker, w = simulation.federation.worker, simulation.state.w
    rows = worker.validation
    correct, loss = worker.local.loop.score(w, toy.x[rows], toy.y[rows])
    assert metrics["validation_accuracy"] == int(correct.sum()) / 36
    assert metrics["validation_loss"] == pytest.approx(loss / 36, rel=1e-6)
    assert {"accuracy", "loss"} <= set(metrics)


def test_workers_measure_the_same(experiment: Load) -> None:
    tables = {"rounds": 2, "data": {"dataset": "digits"}, "evaluation": {"validation": 0.1, "every": 1}}
    alone, pool = (list(dragfl.simulate(dragfl.load(tables, f"engine.workers={n}"))) for n in (1, 2))
    assert [r.metrics for r in alone] == [r.metrics for r in pool]


def test_the_target_may_refer_to_it(experiment: Load, tmp_path: Path) -> None:
    """The run stops at the first round whose accuracy on the validation data reaches the target."""
    free = dragfl.run(experiment(rounds=8, evaluation={"validation": 0.25}), tmp_path / "free")
    reached = dict(free.values("validation_accuracy"))
    target = sorted(reached.values())[len(reached) // 2]
    first = next(t for t, value in reached.items() if value >= target)
    settings = {"validation": 0.25, "target_on": "validation"}
    stopped = experiment(rounds=8, evaluation=settings, target_accuracy=target, stop_at_target=True)
    run = dragfl.run(stopped, tmp_path / "stopped")
    assert run.result is not None
    assert (run.result["stopped_by"], run.result["rounds"]) == ("target", first)
    assert run.result["rounds_to_target"] == run.rounds_to(target) == first


def test_without_it_the_run_is_the_same_as_before(experiment: Load, tmp_path: Path) -> None:
    """A run directory of a version without these keys is a run of the same experiment."""
    run = dragfl.run(experiment(), tmp_path / "r")
    spec = run.path / "spec.toml"
    keys = ("iterate", "window", "decay", "validation", "target_on")
    lines = [line for line in spec.read_text().splitlines() if not line.startswith(keys)]
    spec.write_text("\n".join(lines) + "\n")
    assert dragfl.run(experiment(), tmp_path / "r").finished
    with pytest.raises(SpecError, match="another experiment"):
        dragfl.run(experiment(evaluation={"iterate": "ema"}), tmp_path / "r")


@pytest.mark.parametrize(
    ("evaluation", "error", "message"),
    [
        ({"validation": 1.0}, SpecError, "validation.*1"),
        ({"target_on": "validation"}, SpecError, "target_on.*set evaluation.validation"),
        ({"validation": 0.001}, DataError, "0.001 of 144 training samples is 0"),
    ],
)
def test_wrong_settings(experiment: Load, evaluation: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        dragfl.simulate(experiment(evaluation=evaluation))
