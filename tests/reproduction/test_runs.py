"""`dragfl reproduce` on the digits dataset: runs, resume, tuning, verdicts and errors."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import dragfl
from dragfl.cli import main
from dragfl.errors import DataError, Interrupted, SpecError
from dragfl.reproduction import datasets
from dragfl.reproduction.datasets import select_dataset
from dragfl.reproduction.figure import figure_names, load_figure, parse_figure
from dragfl.reproduction.results import load_summaries
from dragfl.reproduction.runs import FigureRequest, plan_figure, run_figures
from dragfl.reproduction.summary import Summary, read_summary, summarise, write_summary
from dragfl.runs import fingerprints
from dragfl.runs.sweep import Callbacks
from dragfl.runs.tuning import TUNING_SEEDS

SMALL = ("--rounds", "6", "data.dataset=digits", "model.hidden=8", "evaluation.every=2", "root.size=50", "--jobs", "1")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    return tmp_path


def rounds_from_log(folder: Path, target: float) -> int | None:
    """Rounds to the target computed from the log, without dragfl."""
    with (folder / "metrics.jsonl").open() as lines:
        for line in lines:
            row = json.loads(line)
            if "accuracy" in row and row["accuracy"] >= target:
                return int(row["round"])
    return None


def test_runs_verdicts_and_plots_from_the_command_line(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Run, judge and plot, then again with all runs finished; rounds to the target are those of the log."""
    words = ["reproduce", "fig3a", "compositions3a", "--seeds", "2", *SMALL, "target_accuracy=0.2", "model.hidden=32"]
    assert main(words) == 0
    output = capsys.readouterr().out
    assert output.startswith("14 runs are missing; ")  # 10 + 8 - 4 shared
    assert "run 14/14" in output and "Changed on the command line: data.dataset=digits" in output
    assert "fig3a: EMNIST, all 40 clients" in output and "rounds to 20 %" in output and "SCAFFOLD + DRAG" in output
    assert (
        "C1" in output
        and "C7a" in output
        and "NOT RUN" in output
        and (here / "reproduction/figures/fig3a.png").is_file()
    )

    table = json.loads((here / "reproduction" / "verdicts.json").read_text())
    assert {row["verdict"] for row in table} <= {"PASS", "MIXED", "FAIL", "UNDECIDED", "NOT RUN"}
    assert next(row for row in table if row["claim"] == "C7a")["verdict"] == "NOT RUN"
    kept = load_summaries(here / "reproduction")["fig3a"]
    counted = 0
    for curve, records in kept.curves.items():
        for record in records.values():
            expected = rounds_from_log(here / "reproduction-runs" / record.run, 0.2)
            assert record.rounds_to(0.2) == expected, curve
            counted += expected is not None
    assert counted  # else nothing was compared
    assert main(["reproduce", "compositions3a", "--judge", *words[3:]]) == 0
    assert "no claim needs these figures" in capsys.readouterr().out
    (measured,) = next(row["measured"] for row in table if row["claim"] == "C1")
    seeds = [rounds_from_log(here / "reproduction-runs" / record.run, 0.2) for record in kept.curves["drag"].values()]
    assert measured.startswith(f"DRAG {median(t for t in seeds if t is not None):g}, ") and None not in seeds

    assert main(words) == 0
    assert capsys.readouterr().out.startswith("all runs are finished")
    assert load_summaries(here / "reproduction")["fig3a"] == kept


TUNED = {
    "topic": "t", "title": "t", "paper": "p", "based_on": "fig3a", "include": ["drag"],
    "set": ["rounds=4", "target_accuracy=0.99", "model.hidden=8", "evaluation.every=2"],
    "curves": [
        {
            "id": "fedavg_tuned", "label": "FedAvg", "set": ["algorithm.name=fedavg"],
            "tune": {"key": "algorithm.server_lr", "values": [0.25, 0.5]},
        }
    ],
}  # fmt: skip


def test_controls_are_tuned_on_validation_data_and_seeds_without_verdicts(here: Path) -> None:
    """The selected value has the best median over the tuning seeds, computed here from the logs.

    No run reaches 99 % in 4 rounds, so the best validation accuracy decides. The larger step is better, so the grid is
    extended upwards: 0.5, 0.75, 0.875, at most three times.
    """
    request = FigureRequest(parse_figure("own", TUNED), "digits", (0,))
    passes: list[tuple[int, int]] = []
    run_figures([request], here, Callbacks(), on_plan=lambda missing, later: passes.append((len(missing), len(later))))
    plan = plan_figure(request, here)
    kept = summarise(plan)
    values = list(dict.fromkeys(trial["value"] for trial in kept.tuning))
    assert values[:3] == [0.25, 0.5, 0.75] and len(values) <= 5
    assert passes == [(1 + 2 * 3, 1)] + [(3, 1)] * (len(values) - 2) + [(1, 0)]  # DRAG and two candidates first
    assert kept.seeds == [0] and [trial["seed"] for trial in kept.tuning] == [*TUNING_SEEDS] * len(values)

    best: dict[float, list[float]] = {}
    for trial in plan.tuning:
        spec = tomllib.loads((trial.planned.folder / "spec.toml").read_text())
        assert spec["seed"] == trial.seed and spec["algorithm"]["server"]["lr"] == trial.candidate
        assert (spec["evaluation"]["validation"], spec["evaluation"]["target_on"]) == (0.1, "validation")
        rows = [json.loads(line) for line in (trial.planned.folder / "metrics.jsonl").open()]
        best.setdefault(trial.candidate, []).append(max(row.get("validation_accuracy", 0.0) for row in rows))
    assert kept.tuned == {"fedavg_tuned": max(best, key=lambda value: median(best[value]))}
    for run in plan.runs:
        spec = tomllib.loads((run.planned.folder / "spec.toml").read_text())
        assert (spec["evaluation"]["validation"], spec["evaluation"]["target_on"]) == (0.0, "test")
    assert spec["algorithm"]["server"]["lr"] == kept.tuned["fedavg_tuned"]


def test_finished_runs_of_other_data_are_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = parse_figure("own", {**TUNED, "curves": [], "set": [*TUNED["set"], "rounds=1"]})  # type: ignore[misc]
    request = FigureRequest(figure, "digits", (0,))
    run_figures([request], here, Callbacks())
    run_figures([request], here, Callbacks())
    data = dragfl.data.load("digits")
    monkeypatch.setattr(fingerprints, "load_dataset", lambda name: replace(data, y=data.y.roll(1)))
    with pytest.raises(SpecError, match=r"but not the data .*; choose another folder \(--runs\), or delete it"):
        run_figures([request], here, Callbacks())


def test_an_interrupted_figure_continues(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped in its third run; the same command then gives the summary of an uninterrupted one."""
    changes = ("rounds=4", "model.hidden=8", "evaluation.every=2", "root.size=50")
    request = FigureRequest(load_figure("fig7"), "digits", (0,), changes=changes)
    seen = 0

    def count(_: Any) -> None:
        nonlocal seen
        seen += 1

    def calls(folder: str, stop_after: int) -> None:
        callbacks = Callbacks(on_record=count, should_stop=lambda: seen >= stop_after)
        run_figures([request], here / folder, callbacks)

    with pytest.raises(Interrupted, match=r"reproduce stopped with 2 of 7 runs finished"):
        calls("stopped", 10)
    assert len(summarise(plan_figure(request, here / "stopped")).curves["clean"]) == 1
    calls("stopped", 10**9)
    calls("whole", 10**9)
    first, second = (summarise(plan_figure(request, here / name)) for name in ("stopped", "whole"))
    assert without_times(first) == without_times(second)


def without_times(summary: Summary) -> dict[str, Any]:
    return {
        curve: [(r.run, r.ended, r.accuracy, r.numbers) for r in records.values()]
        for curve, records in summary.curves.items()
    }


def test_a_summary_is_read_as_written(here: Path) -> None:
    assert main(["reproduce", "fig7", "--seeds", "1", *SMALL, "--quiet"]) == 0
    kept = load_summaries(here / "reproduction")["fig7"]
    write_summary(kept, here / "again.json")
    assert read_summary(here / "again.json") == kept
    record = kept.curves["clean"][0]
    assert record.machine.count("torch") == 1 and record.chance == 0.1 and record.seconds > 0
    (here / "reproduction-runs").rename(here / "elsewhere")
    assert main(["reproduce", "fig7", "--seeds", "1", *SMALL, "--quiet", "--judge"]) == 0
    assert load_summaries(here / "reproduction")["fig7"] == kept  # records of runs that are elsewhere stay
    numbers = kept.curves["br_drag"][0].numbers
    assert numbers["over_reference"] == 0.0 and numbers["reversed"] == 0.0 and 0.0 <= numbers["against"] <= 1.0
    assert (here / "reproduction" / "fig7.json").stat().st_size < 20_000


def test_quick_settings_are_stated(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig8", "--quick", *SMALL]) == 0
    output = capsys.readouterr().out
    assert "Reduced settings (--quick)" in output and "digits is a substitute" in output
    assert load_summaries(here / "reproduction-quick")["fig8"].quick
    assert not (here / "reproduction-runs").exists()


def test_a_figure_without_data_is_skipped_with_the_reason(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tried: list[str] = []

    def nothing(name: str, progress: Any = None) -> None:
        tried.append(name)
        raise DataError(f"dataset {name}: not found. Tried:\n  - everything")

    monkeypatch.setattr(datasets, "find_local", lambda name: None)
    monkeypatch.setattr(datasets.data, "load", nothing)
    assert main(["reproduce", "fig3a", "fig3b", "--quick"]) == 3
    assert tried == ["mnist", "emnist47", "emnist"]  # each once, for both figures
    printed = capsys.readouterr()
    assert "skipped, data not available: fig3a" in printed.out and "Tried: - everything" in printed.out
    assert main(["reproduce", "fig3a", "--quick", "--judge"]) == 0  # for that nothing is fetched
    assert "mnist: dataset mnist: not found" in printed.out and "no figure has its data available" in printed.err


def test_the_substitute_for_emnist(monkeypatch: pytest.MonkeyPatch) -> None:
    """EMNIST where it is available; with quick settings MNIST before a download of EMNIST."""
    here: set[str] = set()
    fetched: list[str] = []
    monkeypatch.setattr(datasets, "find_local", lambda name: "here" if name in here else None)
    monkeypatch.setattr(datasets.data, "load", lambda name, progress=None: fetched.append(name))
    assert select_dataset(load_figure("fig3a"), {}, quick=True) == "mnist" and fetched == ["mnist"]
    here.add("emnist47")
    assert select_dataset(load_figure("fig3a"), {}, quick=True) == "emnist47" and fetched == ["mnist"]
    here.add("emnist")
    assert select_dataset(load_figure("fig3a"), {}) == "emnist"


def test_command_line_errors(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "fig33"]) == 2
    assert "unknown figure 'fig33'" in capsys.readouterr().err
    assert main(["reproduce", "fig7", "seed=4"]) == 2
    assert "use --seeds" in capsys.readouterr().err
    for words, message in (
        (["--seeds", "0"], "--seeds: 0"),
        (["data.dataset=5"], "data.dataset: 5 is not the name of a dataset"),
        (["data={dataset='digits'}"], "reproduce: data cannot be set here; use data.dataset=NAME"),
        (["--runs", __file__], "is not a folder"),
    ):
        assert main(["reproduce", "fig7", *words]) == 2
        assert message in capsys.readouterr().err


def test_judge_ignores_runs_with_other_settings(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Runs of 6 rounds exist, runs of 5 rounds do not: every verdict is NOT RUN."""
    assert main(["reproduce", "fig7", "--seeds", "1", *SMALL, "--quiet"]) == 0
    capsys.readouterr()
    assert main(["reproduce", "fig7", "--seeds", "1", *SMALL, "--rounds", "5", "--judge"]) == 0
    assert "claims of the paper: 0 PASS, 0 MIXED, 0 FAIL, 0 UNDECIDED" in capsys.readouterr().out
    (here / "reproduction" / "fig7.json").write_text("{")
    assert main(["reproduce", "fig8", *SMALL, "--judge"]) == 6
    assert "delete it and run `dragfl reproduce fig7 --judge`" in " ".join(capsys.readouterr().err.split())


def test_list_and_dry_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "--list", "--quick", "data.dataset=digits"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in figure_names())
    assert main(["reproduce", "fig7", "--dry-run", "data.dataset=digits", "root.size=50"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 3 * 7
    assert main(["reproduce", "controls3a", "--list", "data.dataset=digits"]) == 0
    # 2 x 3 x 3 that tune, 3 of each of FedAvg, DRAG and FedExP, 6 with the selected values
    assert "33 runs, 33 missing" in capsys.readouterr().out
    assert main(["reproduce", "controls3a", "--dry-run", "data.dataset=digits"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "and 6 runs that depend on these"
