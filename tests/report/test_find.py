"""Which run directories a report reads: tuning runs and folders that cannot be opened are left out, and named."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl import report
from dragfl.cli import main
from dragfl.errors import SpecError
from dragfl.report.find import load_runs

from .conftest import write_run

NOTE = "2 tuning runs left out: they are no results; to see them, give their folder 'tuning'"


@pytest.fixture
def tuned(tmp_path: Path) -> Path:
    """A tuned sweep: two tuning runs, one final run."""
    for seed in (100, 101):
        write_run(tmp_path / f"sweeps/a/tuning/lr0.1-seed{seed}", seed=seed, rounds=2)
    write_run(tmp_path / "sweeps/a/final/lr0.1-seed0", seed=0, rounds=2)
    (tmp_path / "sweeps/a/tuning.json").write_text("{}")
    return tmp_path / "sweeps/a"


def names(found: report.Summary) -> list[str]:
    return [run.path.name for group in found.groups for run in group.runs]


@pytest.mark.parametrize("above", [False, True])
def test_tuning_runs_are_left_out(
    tuned: Path, above: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tuned.parent if above else tuned
    summary = report.read_summary(folder)
    assert names(summary) == ["lr0.1-seed0"] and summary.values()["tuning_runs_left_out"] == 2
    assert main(["report", str(folder), "--no-figures"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == NOTE
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    page = report.write_report(summary, tuned / "page").read_text()
    assert "<dt>tuning runs left out</dt><dd>2</dd>" in page
    with pytest.warns(UserWarning, match="2 tuning runs left out"):
        assert set(dragfl.frame(folder)["seed"]) == {0}


def test_tuning_runs_are_read_if_they_are_asked_for(tuned: Path) -> None:
    assert names(report.read_summary(tuned / "tuning")) == ["lr0.1-seed100", "lr0.1-seed101"]
    both = load_runs([tuned, tuned / "tuning"])
    assert len(both.runs) == 3 and both.notes() == []
    (tuned / "tuning.json").unlink()  # a folder that only has this name
    assert len(load_runs(tuned).runs) == 3


def test_final_runs_of_an_earlier_selection_are_left_out(tuned: Path) -> None:
    """A later call with more candidates has selected lr 0.2; the runs with lr 0.1 stay in the folder."""
    write_run(tuned / "final/lr0.2-seed0", seed=0, rounds=2)
    candidates = [{"name": f"lr{lr}", "values": {"clients.lr": lr}} for lr in (0.1, 0.2)]
    table = {"tuned": [{"selected": {"clients.lr": 0.2}, "candidates": candidates}]}
    (tuned / "tuning.json").write_text(json.dumps(table))
    summary = report.read_summary(tuned)
    assert names(summary) == ["lr0.2-seed0"] and summary.values()["final_runs_left_out"] == 1
    assert summary.found.notes()[-1].startswith("1 final runs left out: tuning.json selects other values now")
    assert names(report.read_summary(tuned / "final/lr0.1-seed0")) == ["lr0.1-seed0"]


def test_the_tuning_runs_of_an_arena_are_left_out(tuned: Path) -> None:
    (tuned / "tuning.json").rename(tuned / "arena.json")
    assert names(report.read_summary(tuned)) == ["lr0.1-seed0"]


def test_only_tuning_runs(tuned: Path) -> None:
    (tuned / "final").rename(tuned.parent.parent / "moved")
    with pytest.raises(SpecError, match="only tuning runs, in its folder 'tuning'"):
        report.read_summary(tuned)


def test_a_folder_that_cannot_be_opened_is_listed(tuned: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed, scandir = tuned / "final", os.scandir

    def refuse(path: Any) -> Any:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scandir(path)

    write_run(tuned / "open", rounds=2)
    monkeypatch.setattr("os.scandir", refuse)
    summary = report.read_summary(tuned)
    assert names(summary) == ["open"]
    assert list(map(str, summary.damaged)) == [f"{closed}: cannot be opened (Permission denied)"]


def test_a_run_that_finishes_while_it_is_read_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its last round is written after metrics.jsonl was read, before the report asks whether it has finished."""
    run = write_run(tmp_path / "a", rounds=4)
    whole, result = (run.path / "metrics.jsonl").read_text(), (run.path / "result.json").read_text()
    (run.path / "metrics.jsonl").write_text("".join(whole.splitlines(True)[:3]))
    (run.path / "result.json").unlink()
    check = report.find.check_run

    def then_finish(run: report.find.Run, **options: Any) -> None:
        check(run, **options)
        (run.path / "metrics.jsonl").write_text(whole)
        (run.path / "result.json").write_text(result)

    monkeypatch.setattr("dragfl.report.find.check_run", then_finish)
    (found,) = load_runs(tmp_path).runs
    assert found.finished and len(found.metrics) == 4


def test_a_path_without_permission_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    write_run(tmp_path / "a", rounds=2)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert main(["report", str(tmp_path / "a"), "--no-figures", "--csv", "--out", "/none/out"]) == 2
    assert (
        capsys.readouterr().err == "dragfl: /none/out: permission denied; change its permissions or give another path\n"
    )
