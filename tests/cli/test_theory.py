"""`dragfl theory`: the table, the files, the report, and wrong inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import dragfl
from dragfl.cli import main
from dragfl.runs.directory import THEORY_FILES, load_run

Capture = pytest.CaptureFixture[str]
TABLES: dict[str, Any] = {
    "name": "small",
    "rounds": 4,
    "clients": {"total": 4, "lr": 0.002},
    "model": {"name": "logistic"},
    "data": {"dataset": "digits", "partition": {"kind": "sorted_shards"}},
    "algorithm": {"name": "drag", "c": 0.005},
    "evaluation": {"every": 4},
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    (tmp_path / "small.toml").write_text(tomli_w.dumps(TABLES))
    return tmp_path


def test_a_covered_spec(capsys: Capture) -> None:
    assert main(["theory", "small.toml"]) == 0
    out = capsys.readouterr().out
    assert "c, at this learning rate" in out and "only with c" in out and "Verdict: covered, as far as" in out
    assert "The paper's own settings, c = 0.1 (CIFAR-10) and c = 0.25 (EMNIST), lie outside" in out
    assert sorted(path.name for path in Path("theory").iterdir()) == sorted(THEORY_FILES)
    assert out.endswith("wrote theory/theory-bound.pdf\n")


@pytest.mark.usefixtures("empty_figures")
def test_a_spec_outside_has_no_bound(capsys: Capture) -> None:
    assert main(["theory", "small.toml", "--rounds", "1", "algorithm.c=0.25", "clients.lr=0.1", "--out", "out"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "8.25 times too large" in out and "No bound: the theorem does not cover this run." in out
    assert "To change: lower both c and clients.lr, for example c = 0 and clients.lr <" in out
    assert sorted(path.name for path in Path("out").iterdir()) == ["theory.json", "theory.pdf", "theory.png"]


@pytest.mark.usefixtures("empty_figures")
def test_only_json_on_standard_output(capsys: Capture) -> None:
    assert main(["theory", "small.toml", "--json", "--rounds", "2", "--models", "2", "clients.total=3"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert out.count("\n") == 1 and err == "" and values["covered"] is True
    assert [m["round"] for m in values["measurement"]["models"]] == [0, 2] and values["measurement"]["clients"] == 3
    assert values["files"][0] == "theory/theory.json"
    assert main(["theory", "small.toml", "--quiet", "--rounds", "0"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.usefixtures("empty_figures")
def test_the_report_shows_a_run() -> None:
    dragfl.run(TABLES, "runs/small")
    dragfl.run(TABLES | {"algorithm": {"name": "fedavg"}}, "runs/fedavg")
    assert main(["theory", "runs/small", "--quiet"]) == 0
    assert main(["report", "runs"]) == 0
    page = Path("report/report.html").read_text()
    assert "<h2>Theorem 1</h2>" in page and "covered, as far as L was measured" in page
    assert {"theory.png", "theory-bound.png"} <= {path.name for path in Path("report/figures").iterdir()}
    run = load_run("runs/small")
    assert run.theory is not None and run.theory["covered"] is True
    run.check_files()  # the files of the run are as they were
    dragfl.run(TABLES, "runs/small", fresh=True)
    assert load_run("runs/small").theory is None and not Path("runs/small/theory.png").exists()
    assert main(["report", "runs"]) == 0
    assert "Theorem 1" not in Path("report/report.html").read_text()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["small.toml", "algorithm.c=1.5"], "1.5 is outside [0, 1]"),
        (["small.toml", "algorithm.name=fedavg"], "'fedavg' has no bound here: Theorem 1 is about DRAG and its c"),
        (["missing.toml"], "missing.toml: no such file"),
        (["small.toml", "--rounds", "-1"], "--rounds: -1; give 0 for the first model only"),
        (["small.toml", "--models", "0"], "--models: 0; give at least 1"),
        (["fig7"], "figure fig7: no curve 'drag'"),
        (["small.toml", "--safe", "model.name=mine:Net"], "mine:Net"),
        (["small.toml", "--out", "small.toml"], "small.toml: cannot be created"),
    ],
)
def test_wrong_inputs(words: list[str], message: str, capsys: Capture) -> None:
    assert main(["theory", *words]) == 2
    error = capsys.readouterr().err
    assert message in error and error.count("\n") == 1


def test_missing_data(capsys: Capture) -> None:
    assert main(["theory", "small.toml", "data.dataset=npz:missing.npz"]) == 3
    assert "missing.npz" in capsys.readouterr().err


def test_run_directories_that_cannot_be_used(capsys: Capture) -> None:
    run = dragfl.run(TABLES, "runs/small")
    assert main(["theory", "runs/small", "algorithm.c=0.1"]) == 2
    assert "a run cannot be changed; give its spec: runs/small/spec.toml" in capsys.readouterr().err
    (run.path / "result.json").unlink()
    assert main(["theory", "runs/small"]) == 2
    assert "has not finished (4 of 4 rounds); finish it with: dragfl resume runs/small" in capsys.readouterr().err
    assert main(["theory", "runs"]) == 6
    assert "runs: not a run directory" in capsys.readouterr().err


def test_a_figure_of_the_paper_is_its_drag_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    from dragfl.cli.theory import _figure_experiment

    monkeypatch.setattr("dragfl.reproduction.datasets.find_local", lambda name: Path("here"))
    found = _figure_experiment("fig3a", ("algorithm.c=0.2",))
    assert found.name == "fig3a" and found.algorithm.name == "drag" and found.clients.total == 40
    assert getattr(found.algorithm.aggregate, "c", None) == 0.2
