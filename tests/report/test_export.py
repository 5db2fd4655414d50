"""The summary as plain numbers: CSV and JSON."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import pytest

from dragfl import report
from dragfl.errors import SpecError
from dragfl.report.export import csv_text, plain, report_values, row_values
from dragfl.runs.directory import Run

from .conftest import MODEL_BYTES, MakeRun

EARLY = [0.5, 0.8, 0.9, 0.9, 0.85]  # evaluated in rounds 2, 4, 6, 8, 10; reaches 0.8 in round 4
LATE = [0.5, 0.6, 0.7, 0.8, 0.95]  # in round 8
NEVER = [0.5, 0.6, 0.7, 0.75, 0.7]


def table(folder: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(csv_text(report.summarize_runs(folder)))))


def add_metrics(run: Run, **metrics: Any) -> Run:
    """Add metrics to the last round, as an evaluation does."""
    *lines, last = (run.path / "metrics.jsonl").read_text().splitlines()
    text = "\n".join([*lines, json.dumps({**json.loads(last), **metrics})])
    (run.path / "metrics.jsonl").write_text(text + "\n")
    return Run(run.path)


def test_numbers_of_a_row_by_hand(make_run: MakeRun) -> None:
    """Final 0.85 and 0.95: mean 0.9, s = 0.1 / sqrt 2, t(1) = 12.7062: 0.9 ± 12.7062 * 0.05 = 0.9 ± 0.6353.

    Rounds to 0.8: 4 and 8. Each round sends 8 clients the model and gets it back; 0.01 s a round.
    """
    make_run("a", seed=0, rounds=10, curve=EARLY)
    run = make_run("b", seed=1, rounds=10, curve=LATE)
    (line,) = table(run.path.parent)
    assert float(line["final_accuracy_mean"]) == pytest.approx(0.9)
    assert float(line["final_accuracy_std"]) == pytest.approx(0.1 / math.sqrt(2))
    assert float(line["final_accuracy_ci_low"]) == pytest.approx(0.9 - 0.63531, abs=1e-5)
    assert float(line["final_accuracy_ci_high"]) == pytest.approx(0.9 + 0.63531, abs=1e-5)
    assert (line["final_accuracy_n"], line["seeds"], line["label"]) == ("2", "0 1", "drag")
    assert (line["rounds_to_target_median"], line["rounds_to_target_min"], line["rounds_to_target_max"]) == (
        "6.0",
        "4",
        "8",
    )
    per_round = 2 * 8 * MODEL_BYTES
    assert [float(line[f"bytes_to_target_{key}"]) for key in ("median", "min", "max")] == [
        6 * per_round, 4 * per_round, 8 * per_round
    ]  # fmt: skip
    assert float(line["seconds_to_target_median"]) == pytest.approx(0.06)
    assert (line["dataset"], line["partition"], line["attack"]) == ("digits", "sorted_shards", "no attack")


def test_missing_values_are_empty_or_null(make_run: MakeRun) -> None:
    """One seed that does not reach the target: no deviation, no interval, no median."""
    (row,) = report.summarize_runs(make_run("a", rounds=10, curve=NEVER))
    values = row_values(row)
    for key in ("final_accuracy_std", "final_accuracy_ci_low", "rounds_to_target_median", "bytes_to_target_median"):
        assert values[key] is None
    assert (values["runs_reached_target"], values["runs_not_reached_target"]) == (0, 1)
    assert not any(key.startswith(("client_", "class_")) for key in values)
    (line,) = csv.DictReader(io.StringIO(csv_text([row])))
    assert line["final_accuracy_std"] == "" and line["final_accuracy_n"] == "1"


def test_settings_that_differ_are_columns(make_run: MakeRun) -> None:
    make_run("a", spec={"clients.lr": 0.05, "engine.workers": 2})
    run = make_run("b", spec={"clients.lr": 0.1, "engine.workers": 1})
    lines = table(run.path.parent)
    assert sorted(line["clients.lr"] for line in lines) == ["0.05", "0.1"]
    assert "clients.total" not in lines[0] and "engine.workers" not in lines[0]


def test_evaluation_is_no_part_of_the_seconds(make_run: MakeRun) -> None:
    """Ten rounds of 2 s, of which 0.5 s are evaluation; the target is reached in round 4: 6 s."""
    run = make_run("a", rounds=10, curve=EARLY)
    lines = [json.dumps({"round": t, "seconds": 2.0, "evaluation_seconds": 0.5}) for t in range(1, 11)]
    (run.path / "timing.jsonl").write_text("\n".join(lines) + "\n")
    (row,) = report.summarize_runs(run.path)
    assert row.cells()["seconds to 80 %"] == "6 s"
    assert row.cells()["bytes to 80 %"] == "12.8 MB"
    (run.path / "timing.jsonl").write_text(lines[0] + "\n")
    (row,) = report.summarize_runs(run.path)
    assert row.seconds_to_target is None and "seconds to 80 %" not in row.cells()


def test_costs_of_a_run_that_does_not_reach_the_target_are_censored(make_run: MakeRun) -> None:
    (row,) = report.summarize_runs(make_run("a", rounds=10, curve=NEVER))
    assert row.cells()["bytes to 80 %"] == "not reached (> 32 MB)"
    assert row.cells()["seconds to 80 %"] == "not reached (> 0.1 s)"


def test_client_and_class_metrics(make_run: MakeRun) -> None:
    """Means over two seeds, of the last round that has them; a class without test samples has no value."""
    for seed, (mean, worst, variance, classes) in enumerate(
        [(0.8, 0.4, 0.02, [1.0, 0.6, None]), (0.9, 0.6, 0.04, [0.8, 0.8, None])]
    ):
        run = make_run(f"s{seed}", seed=seed, rounds=2)
        add_metrics(
            run,
            client_accuracy_mean=mean,
            client_accuracy_worst_decile=worst,
            client_accuracy_variance=variance,
            class_accuracy=classes,
        )
    (row,) = report.summarize_runs(run.path.parent)
    values = row_values(row)
    assert values["client_accuracy_mean_mean"] == pytest.approx(0.85)
    assert values["client_accuracy_worst_decile_mean"] == pytest.approx(0.5)
    assert values["client_accuracy_variance_mean"] == pytest.approx(0.03)
    assert values["class_accuracy_0_mean"] == pytest.approx(0.9) and values["class_accuracy_2_mean"] is None
    cells = row.cells()
    assert (cells["client mean"], cells["client worst 10 %"]) == ("85.0 ± 7.1 %", "50.0 ± 14.1 %")
    assert cells["client variance"] == "0.0300"


def test_a_diverged_run_has_chance_level_for_clients_and_classes(make_run: MakeRun) -> None:
    """0.8 and 1 / 10: mean 0.45; the variance is of the run that did not diverge."""
    fine = add_metrics(make_run("fine", rounds=2), client_accuracy_mean=0.8, client_accuracy_variance=0.02)
    boom = make_run("boom", seed=1, rounds=4, ran=2, diverged=True, spec={"rounds": 2})
    add_metrics(boom, client_accuracy_mean=0.9, client_accuracy_variance=0.5, class_accuracy=[0.9, None])
    (row,) = report.summarize_runs(fine.path.parent)
    assert row.clients["client_accuracy_mean"].mean == pytest.approx(0.45)
    assert row.clients["client_accuracy_variance"].mean == pytest.approx(0.02)
    assert row.class_accuracy == (0.1, None)


def test_the_page_has_client_columns_and_classes(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    run = add_metrics(
        make_run("a", rounds=2), client_accuracy_mean=0.8, client_accuracy_worst_decile=0.4, class_accuracy=[0.25, None]
    )
    text = report.write_report(run, tmp_path / "out").read_text()
    assert "client worst 10 %" in text and "own label distribution" in text
    assert "Accuracy by class" in text and "25.0" in text


def test_json_is_plain(make_run: MakeRun) -> None:
    values = report_values(report.summarize_runs(make_run("a", rounds=4)))
    assert json.loads(json.dumps(values, allow_nan=False)) == values
    assert plain({"a": (math.inf, math.nan, -math.inf, 1.5), 2: Path("x")}) == {"a": [None, None, None, 1.5], "2": "x"}


def test_runs_on_different_datasets_are_not_ranked_together(make_run: MakeRun) -> None:
    """fedavg on mnist is faster than drag on digits, but stays in the block of its dataset."""
    make_run("a", algorithm="fedavg", rounds=10, curve=EARLY, spec={"data.dataset": "mnist"})
    make_run("b", algorithm="drag", rounds=10, curve=LATE)
    run = make_run("c", algorithm="fedavg", rounds=10, curve=NEVER)
    rows = report.summarize_runs(run.path.parent)
    assert [(row.problem[0], row.algorithm) for row in rows] == [
        ("digits", "drag"), ("digits", "fedavg"), ("mnist", "fedavg")
    ]  # fmt: skip


def test_data_that_differ_under_one_name_are_not_ranked_together(make_run: MakeRun) -> None:
    for algorithm, digest in (("drag", "aaaaaaaa"), ("fedavg", "bbbbbbbb"), ("fltrust", "aaaaaaaa")):
        run = make_run(algorithm, algorithm=algorithm, rounds=2)
        info = json.loads((run.path / "run.json").read_text()) | {"fingerprints": {"data": digest, "model": "m"}}
        (run.path / "run.json").write_text(json.dumps(info))
    rows = report.summarize_runs(run.path.parent)
    assert [(row.problem[0], row.algorithm) for row in rows if row.algorithm == "fedavg"] == [
        ("digits (data bbbbbb)", "fedavg")
    ]
    assert {row.problem[0] for row in rows if row.algorithm != "fedavg"} == {"digits (data aaaaaa)"}
    with pytest.raises(SpecError, match="no dataset, partition and attack in common"):
        report.compare(run.path.parent, "drag", "fedavg")
    assert len(report.compare(run.path.parent, "drag", "fltrust")) == 1


def test_a_file_as_folder_is_an_error(make_run: MakeRun, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match="is a file; give a folder"):
        report.write_csv(report.summarize_runs(make_run("a", rounds=2)), tmp_path / "file" / "table.csv")
