"""A sweep with tuned keys: tuning runs on a validation split, then final runs on all training data."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from statistics import median
from typing import Any

import pytest

import dragfl
from dragfl.cli import main
from dragfl.errors import SpecError
from dragfl.runs.sweep import Callbacks
from dragfl.runs.tuning import TUNING_SEEDS, Score
from dragfl.runs.tuning_plan import Tuned, plan_final, plan_tuning
from tests.conftest import DIGITS, merged

SMALL = merged(tomllib.loads(DIGITS), {"rounds": 4, "attack": None, "evaluation": {"every": 2}})
GRID: dict[str, list[Any]] = {"algorithm.name": ["fedavg", "fedprox"], "seed": [0, 1]}
TUNE = {"clients.lr": [0.001, 0.1, 0.3]}


def test_the_plan(tmp_path: Path) -> None:
    """Two algorithms x three candidates x three tuning seeds; the seeds of the grid are those of the final runs."""
    first, second = plan_tuning(merged(SMALL, {"target_accuracy": 0.5, "stop_at_target": True}), GRID, TUNE, tmp_path)
    assert first.combination == {"algorithm.name": "fedavg"} and second.combination == {"algorithm.name": "fedprox"}
    assert [list(candidate.values()) for candidate in first.candidates] == [[0.001], [0.1], [0.3]]
    assert [p.folder for p in first.runs[0]] == [
        tmp_path / "tuning" / f"fedavg-lr0.001-seed{seed}" for seed in TUNING_SEEDS
    ]
    for p in [*first.planned, *second.planned]:
        evaluation = p.experiment.evaluation
        assert (evaluation.validation, evaluation.target_on, p.experiment.stop_at_target) == (0.1, "validation", False)
    tuned = Tuned(second.combination, second.candidates, [[]], second.candidates[1])
    final = plan_final(merged(SMALL, {"evaluation": {"validation": 0.2}}), GRID, [tuned], tmp_path)
    assert [p.folder for p in final] == [tmp_path / "final" / f"fedprox-lr0.1-seed{seed}" for seed in (0, 1)]
    assert {p.experiment.evaluation.validation for p in final} == {0.0}


def test_the_fraction_of_the_spec_is_kept_and_several_keys_are_combined(tmp_path: Path) -> None:
    spec = merged(SMALL, {"evaluation": {"validation": 0.2}, "target_accuracy": 0.5, "stop_at_target": True})
    tune = {"clients.lr": [0.1, 0.2], "clients.local_steps": [1, 2]}
    (only,) = plan_tuning(spec, {}, tune, tmp_path, best_by="rounds")
    assert [tuple(candidate.values()) for candidate in only.candidates] == [(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]
    assert {p.experiment.evaluation.validation for p in only.planned} == {0.2}
    assert all(p.experiment.stop_at_target for p in only.planned), "rounds to the target are what counts"


def test_a_value_at_the_edge_is_a_warning() -> None:
    candidates = [{"lr": lr, "beta": beta} for lr in (1.0, 2.0, 4.0) for beta in (0.5, 0.9)]
    tuned = Tuned({"algorithm.name": "fedavgm"}, candidates, [[Score(None, 0.5)]] * 6, {"lr": 2.0, "beta": 0.9})
    assert tuned.at_edge == {"beta": 0.95}
    assert tuned.warnings == [
        "algorithm.name=fedavgm: the selected beta=0.9 is at the edge of its grid; add 0.95 to its values"
    ]


def test_it_is_a_warning_if_all_tuning_runs_diverged() -> None:
    tuned = Tuned({}, [{"lr": 1.0}, {"lr": 2.0}], [[Score(None, None)]] * 2, {"lr": 1.0})
    assert tuned.warnings == ["sweep: all tuning runs diverged, so the first candidate is used; try other values"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"best_by": "accuracy"}, "best_by 'accuracy' is unknown; known: rounds, validation_accuracy"),
        ({"best_by": "rounds"}, "sweep, run 'fedavg-lr0.001-seed100': best_by 'rounds' needs target_accuracy"),
        ({"tune": {"seed": [0, 1]}}, "'seed' cannot be tuned here; the tuning seeds are fixed"),
        (
            {"tune": {"algorithm.name": ["drag", "fedavg"]}},
            "'algorithm.name' cannot be tuned here; it is a key of the grid",
        ),
        ({"tune": {"clients.lr": [0.1]}}, "1 value to tune 'clients.lr'; give at least two"),
        ({"grid": {"seed": [0, 101]}}, "seed 101 is reserved for tuning"),
        ({"grid": {"seed": []}}, "no values for 'seed'"),
        ({"grid": {"seed": [0, -1]}}, "sweep, run 'lr0.001-seed-1': override 'seed=-1': seed"),
        ({"grid": {"algorithm.name": []}}, "no values for 'algorithm.name'"),
        ({"grid": {"evaluation.validation": [0.1, 0.2]}}, "'evaluation.validation' has a fixed value in tuning runs"),
        ({"tune": {"clients.lr": [0.1, -1.0]}}, "sweep, run 'fedavg-lr-1.0-seed100': "),
    ],
)
def test_mistakes_are_reported_before_any_run(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as error:
        dragfl.sweep(SMALL, **{"grid": GRID, "tune": TUNE, "out": tmp_path / "out", **changes})
    assert message in str(error.value)
    assert not (tmp_path / "out").exists()


def best_values(out: Path, algorithm: str) -> dict[float, float]:
    """Candidate -> median over the tuning seeds of its best validation accuracy, computed from the logs."""
    medians = {}
    for lr in TUNE["clients.lr"]:
        best = []
        for seed in TUNING_SEEDS:
            lines = (out / "tuning" / f"{algorithm}-lr{lr}-seed{seed}" / "metrics.jsonl").open()
            best.append(max(json.loads(line).get("validation_accuracy", 0.0) for line in lines))
        medians[lr] = median(best)
    return medians


@pytest.mark.filterwarnings("ignore:.*at the edge of its grid")
def test_from_python(tmp_path: Path) -> None:
    """The final runs have each algorithm's best value; the same call runs nothing again."""
    runs = dragfl.sweep(SMALL, GRID, tmp_path, tune=TUNE)
    assert [run.path.parent.name for run in runs] == ["final"] * 4
    table = json.loads((tmp_path / "tuning.json").read_text())
    for algorithm, own, tuned in zip(("fedavg", "fedprox"), (runs[:2], runs[2:]), table["tuned"], strict=True):
        medians = best_values(tmp_path, algorithm)
        best = max(medians, key=lambda lr: medians[lr])
        assert tuned["selected"] == {"clients.lr": best} and len(tuned["candidates"]) == 3
        assert [c["name"] for c in tuned["candidates"]] == [f"{algorithm}-lr{lr}" for lr in TUNE["clients.lr"]]
        assert [run.spec["clients"]["lr"] for run in own] == [best] * 2
        assert [run.spec["seed"] for run in own] == [0, 1]
        assert all("validation_accuracy" not in row for run in own for row in run.metrics)
    seen: list[Any] = []
    dragfl.sweep(SMALL, GRID, tmp_path, Callbacks(on_record=seen.append), tune=TUNE)
    assert seen == []


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.001 and 0.002 are too small for four rounds, so the best value is the largest: a warning names the next one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr("dragfl.report.write_report", lambda runs, out: Path(out) / "report.html")
    Path("small.toml").write_text(DIGITS.replace("rounds = 12", "rounds = 4"))
    words = [
        "sweep",
        "small.toml",
        "--tune",
        "clients.lr=0.001,0.002,0.2",
        "seed=0,1",
        "attack.name=none",
        "--jobs",
        "1",
    ]
    assert main([*words, "--dry-run"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 10 and lines[-1] == "and 2 final runs with the selected values"
    assert main(words) == 0
    printed = capsys.readouterr().out
    assert "run 9/11" in printed and "run 11/11" in printed
    assert "tuning by validation_accuracy: attack.name=none" in printed and "seed 102" in printed
    assert "the selected clients.lr=0.2 is at the edge of its grid; add 0.4 to its values" in printed
    assert printed.splitlines()[-1] == "report: sweeps/small-seed-none-tune-lr/report.html"
    assert sorted(path.name for path in Path("sweeps/small-seed-none-tune-lr/final").iterdir()) == [
        "none-lr0.2-seed0",
        "none-lr0.2-seed1",
    ]
