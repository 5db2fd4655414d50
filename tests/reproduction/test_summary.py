"""Records and summaries: kept records, derived curves, older files, telemetry; estimates of run time."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dragfl import load
from dragfl.reproduction.figure import load_figure
from dragfl.reproduction.intervals import Interval
from dragfl.reproduction.run_time import RunTimes, estimate_round_seconds, format_duration
from dragfl.reproduction.runs import FigurePlan, FigureRequest, plan_figure
from dragfl.reproduction.summary import (
    TELEMETRY,
    Record,
    add_derived,
    read_summary,
    summarise,
    telemetry,
    write_summary,
)
from dragfl.reproduction.verdicts import rounds_to
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


def plan(figure: str, folder: Path, *changes: str) -> FigurePlan:
    return plan_figure(FigureRequest(load_figure(figure), "emnist47", (0, 1), changes=changes), folder)


def test_stored_records_are_kept_only_for_runs_with_the_same_settings(tmp_path: Path) -> None:
    """Stored are seeds 0 and 1 of DRAG. The name of the first is that of today's run, the other had another c."""
    names = {run.seed: run.planned.name for run in plan("fig3a", tmp_path).runs if run.curve == "drag"}
    first = Record(names[0], 0, 1000, "rounds", [(10, 0.5)], commit="abc", machine="elsewhere")
    other = Record("emnist47-drag-00000000-r1000-s1", 1, 1000, "rounds", [(10, 0.6)])
    stored = make_summary("fig3a", {"drag": [first, other]})
    assert summarise(plan("fig3a", tmp_path), stored).curves["drag"] == {0: first}
    assert summarise(plan("fig3a", tmp_path)).curves["drag"] == {}
    assert summarise(plan("fig3a", tmp_path, "rounds=500"), stored).curves["drag"] == {}
    assert summarise(plan("fig3a", tmp_path, "clients.lr=0.2"), stored).curves["drag"] == {}


def test_a_tuned_curve_is_kept_with_all_its_tuning_runs(tmp_path: Path) -> None:
    """On a machine without tuning runs the stored ones have selected the value; its run has the value in its name."""
    planned = plan("controls3a", tmp_path)
    assert "fedavgm" in planned.untuned
    trials = [
        {"curve": run.curve, "value": run.candidate, "seed": run.seed, "rounds": None, "best": 0.5, "seconds": 1.0,
         "run": run.planned.name}
        for run in planned.tuning if run.curve == "fedavgm"
    ]  # fmt: skip
    tune = load_figure("controls3a")["fedavgm"].tune
    assert tune is not None
    final = ("algorithm.name=fedavgm", f"{tune.key}={tune.values[0]}")
    figure = load_figure("controls3a")
    plain = replace(figure, curves=[replace(figure["fedavgm"], set=list(final), tune=None)])
    name = plan_figure(FigureRequest(plain, "emnist47", (0,)), tmp_path).runs[0].planned.name
    record = Record(name, 0, 1000, "rounds", [(10, 0.5)])
    stored = make_summary("controls3a", {"fedavgm": [record]}, tuning=trials, tuned={"fedavgm": tune.values[0]})
    kept = summarise(planned, stored)
    assert kept.curves["fedavgm"] == {0: record}
    assert kept.tuned == {"fedavgm": tune.values[0]} and kept.tuning == trials
    lost = summarise(planned, replace(stored, tuning=trials[1:]))
    assert lost.curves["fedavgm"] == {} and lost.tuned == {} and lost.tuning == trials[1:]


def test_a_derived_curve_shows_the_own_model_of_the_same_runs(tmp_path: Path) -> None:
    """The run stopped at the target of 80 % in round 30; the other model had 70 % there: more than 30 rounds."""
    accuracy, own = [(10, 0.5), (20, 0.7), (30, 0.8)], [(10, 0.4), (20, 0.6), (30, 0.7)]
    record = Record("run", 0, 1000, "target", accuracy, own=own, machine="here")
    write_summary(make_summary("fig3a", {"adabest": [record]}), tmp_path / "fig3a.json")
    assert "adabest_own" not in (tmp_path / "fig3a.json").read_text()
    summary = read_summary(tmp_path / "fig3a.json")
    assert summary.curves["adabest"][0] == record
    derived = summary.curves["adabest_own"][0]
    assert (derived.accuracy, derived.ended, derived.own) == (own, "target", [])
    assert rounds_to(0.8, derived) == Interval.above(30) and rounds_to(0.7, derived) == Interval.exact(30)
    lost = Record("run", 0, 1000, "diverged", [], diverged_at=4)
    write_summary(make_summary("fig3a", {"adabest": [lost]}), tmp_path / "fig3a.json")
    assert read_summary(tmp_path / "fig3a.json").curves["adabest_own"][0].diverged


def test_a_summary_of_an_earlier_version(tmp_path: Path) -> None:
    """Its records have no machine, commit, chance level or round of divergence; its tuning runs have no name."""
    row = {"run": "r", "seed": 0, "limit": 100, "ended": "diverged", "accuracy": [0.1, 0.2], "every": 10,
           "numbers": {}, "seconds": 3.0}  # fmt: skip
    table = {"panel": "fig4a", "dataset": "cifar10", "rounds": 100, "target": 0.7, "quick": False, "changes": [],
             "tuned": {}, "tuning": [{"curve": "x", "value": 1, "seed": 100}], "machine": "a machine",
             "curves": {"drag": [row]}}  # fmt: skip
    (tmp_path / "fig4a.json").write_text(json.dumps(table))
    record = read_summary(tmp_path / "fig4a.json").curves["drag"][0]
    assert (record.machine, record.commit, record.diverged_at) == ("a machine", "", None)
    assert record.final == record.chance == 0.1
    assert record.accuracy == [(10, 0.1), (20, 0.2)] and record.best == 0.2
    write_summary(read_summary(tmp_path / "fig4a.json"), tmp_path / "again.json")
    assert read_summary(tmp_path / "again.json") == read_summary(tmp_path / "fig4a.json")
