"""The numbers of the summary table, for curves with known answers."""

from __future__ import annotations

import io
import math
from pathlib import Path

import pytest
from rich.console import Console

from dragfl import report
from dragfl.errors import DamagedRun, SpecError
from dragfl.report.numbers import MeanStd, RoundsToTarget, format_bytes, format_seeds, mean_std
from dragfl.report.tables import table_note

from .conftest import MODEL_BYTES, MakeRun

# Evaluated every 2 of 10 rounds: round 2, 4, 6, 8, 10.
EARLY = [0.5, 0.8, 0.9, 0.9, 0.85]  # reaches 0.8 in round 4
LATE = [0.5, 0.6, 0.7, 0.8, 0.95]  # in round 8
NEVER = [0.5, 0.6, 0.7, 0.75, 0.7]


def curves(make_run: MakeRun, *chosen: list[float]) -> report.Row:
    for i, curve in enumerate(chosen):
        make_run(f"seed{i}", seed=i, rounds=10, curve=curve)
    (row,) = report.summarize_runs(make_run("more/last", seed=99, rounds=10, curve=EARLY).path.parents[1])
    return row


def test_seeds_of_one_experiment_are_one_row(make_run: MakeRun) -> None:
    """Rounds 4, 8, 4: median 4. Best 0.9, 0.95, 0.9: mean 0.9167, deviation 0.0289. Final 0.85, 0.95, 0.85."""
    row = curves(make_run, EARLY, LATE)
    assert row.label == "drag"
    assert row.seeds == (0, 1, 99)
    assert row.rounds_to_target == RoundsToTarget((4, 8, 4))
    assert str(row.rounds_to_target) == "4 (4–8)"
    assert row.best_accuracy is not None and row.final_accuracy is not None
    assert row.best_accuracy.mean == pytest.approx(2.75 / 3)
    assert row.best_accuracy.std == pytest.approx(0.05 / math.sqrt(3))
    assert str(row.final_accuracy) == "88.3 ± 5.8 %"
    assert row.bytes_up == row.bytes_down == 10 * 8 * MODEL_BYTES
    assert row.cells()["bytes up"] == "16 MB"
    assert row.cells()["rounds"] == "10"


def test_a_seed_that_never_reaches_the_target_is_censored(make_run: MakeRun) -> None:
    """8, never, 4: the median is 8, the range open."""
    row = curves(make_run, LATE, NEVER)
    assert row.rounds_to_target.median == 8
    assert str(row.rounds_to_target) == "8 (4 to > 10; 2 of 3 runs)"


@pytest.mark.parametrize(
    ("reached", "text"),
    [
        (RoundsToTarget((120,)), "120"),
        (RoundsToTarget((110, 130)), "120 (110–130)"),
        (RoundsToTarget((120, 120)), "120"),
        (RoundsToTarget((), (600,)), "not reached (> 600)"),
        (RoundsToTarget((), (600, 400)), "not reached (> 400)"),
        (RoundsToTarget((110,), (600, 600)), "> 600 (110 to > 600; 1 of 3 runs)"),
        (RoundsToTarget((110,), (600,)), "> 600 (110 to > 600; 1 of 2 runs)"),
        (RoundsToTarget((), (), (37,)), "not yet (> 37)"),
        (RoundsToTarget((110, 130), (), (37,)), "120 (110–130), 1 not yet"),
        (RoundsToTarget(()), "—"),
        (RoundsToTarget((), diverged=(12,)), "diverged at round 12"),
        (RoundsToTarget((), (), (37,), (12, 40)), "diverged at round 12–40, 1 not yet"),
        (RoundsToTarget((), (600,), diverged=(12,)), "not reached (> 600), 1 diverged"),
        (RoundsToTarget((110, 130), diverged=(12,)), "130 (110 to never; 2 of 3 runs), 1 diverged"),
        (RoundsToTarget((110,), diverged=(12, 40)), "never (110 to never; 1 of 3 runs), 2 diverged"),
        (RoundsToTarget((110, 130), (600,), (), (12,)), "> 600 (110 to > 600; 2 of 4 runs), 1 diverged"),
    ],
)
def test_rounds_to_target_as_text(reached: RoundsToTarget, text: str) -> None:
    assert str(reached) == text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1 kB"), (38_500_000, "38.5 MB"), (999_960, "1 MB"), (1.23e12, "1.23 TB")],
)
def test_bytes_as_text(count: float, text: str) -> None:
    assert format_bytes(count) == text


def test_one_value_has_no_deviation() -> None:
    assert str(mean_std([0.5])) == "50.0 %"
    assert mean_std([]) is None


def test_a_target_on_validation_data_has_a_column_of_its_own(make_run: MakeRun) -> None:
    """The test accuracy is no part of it: without a validation accuracy the target is not reached."""
    rows = report.summarize_runs(make_run("held-out", spec={"evaluation": {"target_on": "validation"}}))
    (line,) = (row.cells() for row in rows)
    assert line["rounds to 80 % (validation data)"].startswith("not reached")
    assert "rounds to 80 %" not in line


def test_no_target_column_without_a_target(make_run: MakeRun) -> None:
    rows = report.summarize_runs(make_run("free", spec={"target_accuracy": None}))
    assert not any(name.startswith("rounds to") for name in rows[0].cells())


def test_an_unfinished_run_is_marked_and_not_averaged(make_run: MakeRun) -> None:
    make_run("whole", seed=0, rounds=10, curve=LATE)
    run = make_run("half", seed=1, rounds=10, ran=5, curve=[0.1, 0.2], finished=False)
    (row,) = report.summarize_runs(run.path.parent)
    assert row.unfinished == (1,)
    assert row.cells()["rounds"] == "5–10 of 10 (unfinished: seed 1)"
    assert str(row.rounds_to_target) == "8, 1 not yet"
    assert str(row.best_accuracy) == "95.0 %"  # of the finished run


def test_a_run_without_a_round_yet(make_run: MakeRun) -> None:
    (row,) = report.summarize_runs(make_run("new", ran=0, finished=False))
    assert row.best_accuracy is None
    assert row.cells()["rounds"] == "0 of 20 (unfinished)"


def test_a_diverged_run_has_no_accuracy(make_run: MakeRun) -> None:
    """It reached the target of 80 % in round 4 and diverged in round 5. It counts as 1 / 10 for 10 classes."""
    (row,) = report.summarize_runs(make_run("boom", ran=4, curve=[0.5, 0.9], diverged=True))
    cells = row.cells()
    assert (row.diverged, row.diverged_at, row.all_diverged) == ((0,), (5,), True)
    for column in ("rounds to 80 %", "best accuracy", "final accuracy"):
        assert cells[column] == "diverged at round 5"
    assert cells["rounds"] == "4 of 20 (diverged at round 5)"
    assert row.best_accuracy == row.final_accuracy == MeanStd(0.1, None)


def test_a_diverged_seed_counts_as_chance_level(make_run: MakeRun) -> None:
    """Best 0.9, 0.1 and final 0.85, 0.1: means 0.5 and 0.475, deviations 0.8 / sqrt 2 and 0.75 / sqrt 2."""
    make_run("fine", seed=0, rounds=10, curve=EARLY)
    run = make_run("boom", seed=1, rounds=10, ran=7, curve=[0.5, 0.8, 0.95], diverged=True)
    (row,) = report.summarize_runs(run.path.parent)
    cells = row.cells()
    assert (cells["best accuracy"], cells["final accuracy"]) == ("50.0 ± 56.6 %", "47.5 ± 53.0 %")
    assert cells["rounds"] == "7–10 of 10 (diverged at round 8: seed 1)"
    assert row.rounds_to_target == RoundsToTarget((4,), diverged=(8,))
    assert not row.all_diverged


def test_a_diverged_run_ranks_below_one_that_learns(make_run: MakeRun) -> None:
    make_run("slow", algorithm="fedavg", rounds=10, curve=[0.1, 0.1, 0.1, 0.1, 0.2])
    run = make_run("boom", rounds=10, ran=8, curve=[0.9] * 4, diverged=True)
    rows = report.summarize_runs(run.path.parent)
    assert [row.algorithm for row in rows] == ["fedavg", "drag"]
    assert "counts as chance level (1 / classes)" in table_note(rows)
    assert "chance" not in table_note(rows[:1])


def test_a_diverged_run_of_version_01_counts_as_zero(make_run: MakeRun) -> None:
    """Its run.json has no number of classes."""
    run = make_run("boom", ran=4, diverged=True)
    (run.path / "run.json").write_text("{}")
    (row,) = report.summarize_runs(run.path)
    assert row.final_accuracy == MeanStd(0.0, None)
    assert row.cells()["final accuracy"] == "diverged at round 5"


def test_two_runs_with_the_same_seed_are_separate_rows(make_run: MakeRun) -> None:
    make_run("a", spec={"name": "before"})
    make_run("b", spec={"name": "after"})
    rows = report.summarize_runs([make_run("c", spec={"name": "after"}).path.parent])
    assert [row.label for row in rows] == ["before · drag", "after · drag · b", "after · drag · c"]


def test_rich_tables_show_every_row_and_escapes_markup(make_run: MakeRun) -> None:
    make_run("one", spec={"algorithm.name": "mine:[red]Own"})
    rows = report.summarize_runs(make_run("two", algorithm="fedavg").path.parent)
    console = Console(width=160, record=True, file=io.StringIO())
    for table in report.rich_tables(rows, 160):
        console.print(table)
    text = console.export_text()
    assert "[red]Own" in text and "fedavg" in text and "to 80 %" in text


def test_an_error_names_the_folder_without_runs(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"no run found in .*searched for folders with a spec\.toml"):
        report.summarize_runs(tmp_path)
    with pytest.raises(SpecError, match="nowhere: no such folder"):
        report.summarize_runs(tmp_path / "nowhere")


def test_an_error_names_a_damaged_file(make_run: MakeRun) -> None:
    run = make_run("torn")
    (run.path / "metrics.jsonl").write_text("not json\n")
    with pytest.raises(DamagedRun, match=r"metrics\.jsonl"):
        report.summarize_runs(run.path)


def test_many_seeds_are_a_range() -> None:
    assert format_seeds([0, 1, 2, 3]) == "0, 1, 2, 3"
    assert format_seeds([0, 5, 6, 7, 8, 9, 20]) == "0, 5–9, 20"
