"""Runs without a name are numbered."""

from __future__ import annotations

from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
from dragfl.errors import SpecError
from tests.conftest import Load


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_each_experiment_gets_a_number(experiment: Load) -> None:
    runs = [dragfl.run(experiment(rounds=1, seed=seed)) for seed in (0, 1)]
    assert [str(run.path) for run in runs] == ["runs/run-1", "runs/run-2"]
    assert [run.name for run in runs] == ["run-1", "run-2"]


def test_the_same_experiment_is_not_repeated(experiment: Load) -> None:
    for seed in (0, 1):
        dragfl.run(experiment(rounds=1, seed=seed))
    records: list[object] = []
    again = dragfl.run(experiment(rounds=1, seed=0), on_record=records.append)
    assert str(again.path) == "runs/run-1" and not records
    assert sorted(path.name for path in Path("runs").iterdir()) == ["run-1", "run-2"]
    fresh = dragfl.run(experiment(rounds=1, seed=0), on_record=records.append, fresh=True)
    assert str(fresh.path) == "runs/run-1" and len(records) == 1


def test_gaps_and_other_folders(experiment: Load) -> None:
    """The next number is above all that exist, whatever they hold."""
    for name in ("run-7", "run-x", "run"):
        (Path("runs") / name).mkdir(parents=True)
    Path("runs/run-9").write_text("")
    Path("runs/run-3").mkdir()
    Path("runs/run-3/spec.toml").write_text("torn = ")
    assert str(dragfl.run(experiment(rounds=1)).path) == "runs/run-10"


def test_an_unfinished_one_names_the_command_that_resumes_it(experiment: Load) -> None:
    with pytest.raises(dragfl.errors.Interrupted):
        dragfl.run(experiment(rounds=3), should_stop=lambda: True)
    with pytest.raises(
        SpecError, match="runs/run-1: holds this run, unfinished; continue with: dragfl resume runs/run-1"
    ):
        dragfl.run(experiment(rounds=3))


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    Path("x.toml").write_text('rounds = 1\n[model]\nname = "logistic"\n')
    for words in ([], ["seed=5"], []):
        assert main(["run", "x.toml", *words]) == 0
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("run directory")]
    assert shown == ["run directory: runs/run-1", "run directory: runs/run-2", "run directory: runs/run-1"]
    assert main(["run", "x.toml", "name=mine", "--quiet"]) == 0
    assert main(["run", "x.toml", "--out", "there", "--quiet"]) == 0
    assert dragfl.load_run("there").name == "run"
