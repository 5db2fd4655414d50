"""An experiment simulated in memory, round by round."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.errors import Interrupted
from tests.conftest import Load, kept_bytes


def test_a_simulation_has_the_metrics_of_a_run(experiment: Load, tmp_path: Path) -> None:
    run = dragfl.run(experiment(algorithm={"name": "drag"}), tmp_path / "r")
    records = list(dragfl.simulate(experiment(algorithm={"name": "drag"})))
    assert [{"round": r.round, **r.metrics} for r in records] == run.metrics
    assert [{"round": r.round, **r.clients} for r in records] == run.clients


def test_a_simulation_can_be_paused_and_continued(experiment: Load) -> None:
    whole = list(dragfl.simulate(experiment(rounds=5)))
    simulation = dragfl.simulate(experiment(rounds=5))
    first: list[Any] = []
    for record in simulation:
        first.append(record)
        if record.round == 2:
            break
    rest = list(simulation)
    assert [r.metrics for r in first + rest] == [r.metrics for r in whole]
    assert simulation.done
    assert list(simulation) == []
    measured = simulation.evaluate()
    assert {"accuracy", "loss", "class_accuracy"} < set(measured)
    assert measured == {name: whole[-1].metrics[name] for name in measured}


def test_a_simulation_stops_at_the_target(experiment: Load) -> None:
    assert len(list(dragfl.simulate(experiment(target_accuracy=0.01, stop_at_target=True)))) == 1


def test_resume_keeps_the_block_and_trainer_of_the_first_start(experiment: Load, tmp_path: Path) -> None:
    """They fix the order of sums: an experiment without them takes them from the run directory."""
    fixed = experiment(engine={"block": 2, "trainer": "reference"})
    whole = dragfl.run(fixed, tmp_path / "whole")
    with pytest.raises(Interrupted):
        dragfl.run(fixed, tmp_path / "cut", should_stop=lambda: True)
    cut = dragfl.resume(tmp_path / "cut", experiment())
    assert kept_bytes(cut.path) == kept_bytes(whole.path)
