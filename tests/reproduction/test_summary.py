"""Telemetry of a record, from small logs, and estimates of run time."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragfl import load
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.run_time import RunTimes, estimate_round_seconds, format_duration
from dragfl.reproduction.runs import FigurePlan, FigureRequest, plan_figure
from dragfl.reproduction.summary import TELEMETRY, Record, add_derived, summarise, telemetry
from dragfl.runs.sweep_plan import PlannedRun
from tests.reproduction.made_summaries import make_summary

METRICS: list[dict[str, Any]] = [
    {"bytes_up": 10, "bytes_down": 20, "step_ratio": 1.0, "mean_norm": 4.0, "pairwise_cosine": 0.1, "step_norm": 1.0,
     "reference_norm": 2.0},
    {"bytes_up": 30, "bytes_down": 20, "step_ratio": 3.0, "mean_norm": 2.0, "pairwise_cosine": 0.3, "step_norm": 3.0,
     "reference_norm": 2.5},
    {"bytes_up": 0, "bytes_down": 20, "skipped": "no usable update"},
    {"bytes_up": 10, "bytes_down": 20, "step_ratio": 0.0, "mean_norm": 3.0, "step_norm": 0.0, "reference_norm": 2.5},
]  # fmt: skip
CLIENTS: list[dict[str, Any]] = [
    {"cosine": [0.5, -0.1, None], "attacker": [False, True, False], "divergence": [0.05, 1.2, None]},
    {"cosine": [-0.2, 0.3], "attacker": [False, True], "divergence": [-0.1, 0.2]},
    {"loss": [1.0]},
]


def test_telemetry() -> None:
    """Bytes 30, 50, 20 and 30 a round: 32.5. A step of 3 is longer than its reference of 2.5, one of 1 and one of 0
    are not. Two of four rounds have no step. Honest cosines 0.5 and -0.2: half point away. Attackers' lambda 1.2 and
    0.2: half are reversed. Of four lambdas one is negative, and shortens."""
    numbers = telemetry(METRICS, CLIENTS)
    assert numbers == {
        "bytes": 32.5,
        "step_ratio": 1.0,
        "mean_norm": 3.0,
        "pairwise_cosine": pytest.approx(0.2),
        "reference_norm": 2.5,
        "over_reference": pytest.approx(1 / 3),
        "skipped": 0.5,
        "against": 0.5,
        "reversed": 0.5,
        "shortened": 0.25,
    }
    assert set(numbers) == set(TELEMETRY)


def test_telemetry_without_data_is_left_out() -> None:
    assert telemetry([{"bytes_up": 1, "bytes_down": 1}], []) == {"bytes": 2, "skipped": 0.0}
    assert telemetry([], []) == {}


def test_pairwise_cosines_are_over_the_first_100_rounds() -> None:
    rows = [{"bytes_up": 0, "bytes_down": 0, "pairwise_cosine": 0.1 if t < 100 else 0.9} for t in range(300)]
    assert telemetry(rows, [])["pairwise_cosine"] == pytest.approx(0.1)


def test_run_time_estimates(tmp_path: Path) -> None:
    """40 clients x 5 steps x 20 samples on the network of 500 units: 0.01 + 4 x 0.035 s a round."""
    experiment = load({"rounds": 100, "clients": {"total": 40, "local_steps": 5, "batch_size": 20},
                       "model": {"name": "mlp", "hidden": 500}})  # fmt: skip
    assert estimate_round_seconds(experiment) == pytest.approx(0.15)
    planned = PlannedRun(tmp_path / "x", experiment)
    assert RunTimes([planned]).remaining([planned]) == pytest.approx(15.0)
    assert (format_duration(15), format_duration(200), format_duration(3 * 3600)) == ("15 s", "3 min", "3.0 h")


def plan_one_seed(figure: str) -> FigurePlan:
    return plan_figure(FigureRequest(load_figure(figure), "emnist47", (0,)), Path("nowhere"))


def stored_record(plan: FigurePlan, curve: str, name: str = "") -> Record:
    run = next(run.planned.name for run in plan.runs if run.curve == curve)
    return Record(name or run, 0, 1000, "rounds", [(10, 0.5)], own=[(10, 0.6)])


def test_a_stored_record_is_kept_if_its_run_has_the_settings_of_the_figure() -> None:
    plan = plan_one_seed("fig3a")
    curves = {
        "drag": [stored_record(plan, "drag")],
        "fedavg": [stored_record(plan, "fedavg", "emnist47-fedavg-0-r1000-s0")],
    }
    kept = summarise(plan, make_summary("fig3a", curves))
    assert kept.curves["drag"][0].accuracy == [(10, 0.5)] and not kept.curves["fedavg"]


def test_a_stored_record_of_a_run_that_figures_share_is_used_in_each() -> None:
    fig3a = plan_one_seed("fig3a")
    stored = make_summary("fig3a", {"drag": [stored_record(fig3a, "drag")]})
    kept = summarise(plan_one_seed("compositions3a"), None, [stored])
    assert kept.curves["drag"] == stored.curves["drag"] and not kept.curves["scaffold"]


def test_a_kept_record_is_the_one_of_the_curve_with_the_runs() -> None:
    """Its derived curve has the same run with the accuracies of another model."""
    plan = plan_one_seed("fig3a")
    made = make_summary("fig3a", {"adabest": [stored_record(plan, "adabest")]})
    stored = replace(made, curves=add_derived(plan.request.figure, made.curves))
    kept = summarise(plan, stored)
    assert [record.accuracy for record in stored.records] == [[(10, 0.5)]]
    assert kept.curves["adabest"][0].accuracy == [(10, 0.5)] and kept.curves["adabest_own"][0].accuracy == [(10, 0.6)]
