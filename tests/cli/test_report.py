"""`dragfl report`: tables, files, JSON, comparisons, damaged runs."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import pytest

from dragfl.cli import main
from tests.conftest import python
from tests.report.conftest import write_run

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two algorithms, two seeds, and one damaged run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    for seed in (0, 1):
        write_run(tmp_path / f"runs/drag{seed}", seed=seed, rounds=4, curve=[0.5, 0.9 + 0.02 * seed])
        write_run(tmp_path / f"runs/fedavg{seed}", algorithm="fedavg", seed=seed, rounds=4, curve=[0.5, 0.8])
    bad = write_run(tmp_path / "runs/bad", seed=2, rounds=4)
    (bad.path / "metrics.jsonl").write_text("torn\n")
    return tmp_path / "runs"


def test_files_and_their_paths(capsys: Capture) -> None:
    assert main(["report", "runs", "--csv", "--latex", "--no-figures", "--compare", "drag", "fedavg"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[-2:] == ["csv: report/table.csv", "latex: report/table.tex"]
    assert printed[-3].startswith("damaged, left out: runs/bad/metrics.jsonl: cannot be read")
    assert "drag - fedavg: final_accuracy, 2 pairs, seeds 0, 1" in printed
    assert any(line.startswith("mean difference +11.00 percentage points, 95 % interval [") for line in printed)
    assert max(len(line) for line in printed[:6]) <= 80 and not any("…" in line for line in printed)
    with Path("report/table.csv").open() as file:
        lines = {line["label"]: line for line in csv.DictReader(file)}
    assert float(lines["drag"]["final_accuracy_mean"]) == pytest.approx(0.91)
    assert r"\toprule" in Path("report/table.tex").read_text()
    assert not Path("report/report.html").exists()


def test_only_json_on_standard_output(capsys: Capture) -> None:
    assert main(["report", "runs", "--json", "--csv", "--no-figures", "--compare", "drag", "fedavg"]) == 0
    out, err = capsys.readouterr()
    values = json.loads(out)
    assert err == "" and out.count("\n") == 1
    assert [row["label"] for row in values["rows"]] == ["drag", "fedavg"]
    assert values["rows"][0]["final_accuracy_mean"] == pytest.approx(0.91)
    assert [run["path"] for run in values["damaged"]] == ["runs/bad"] and "cannot be read" in values["damaged"][0][
        "reason"
    ]
    (comparison,) = values["comparisons"]
    assert (comparison["wins"], comparison["p"], comparison["smallest_p"]) == (2, 0.5, 0.5)
    assert values["files"] == {"csv": "report/table.csv"}


def test_the_page_has_the_comparison(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    assert main(["report", "runs", "--compare", "drag", "fedavg", "--metric", "best_accuracy", "--title", "T"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "report: report/report.html"
    page = Path("report/report.html").read_text()
    assert "Paired comparison" in page and "drag - fedavg: best_accuracy, 2 pairs" in page
    assert "runs/bad" in page and "<h1>T</h1>" in page


def test_without_plotting_packages_the_files_are_written(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dragfl.report.figures.files.find_spec", lambda name: None)
    assert main(["report", "runs", "--latex"]) == 0
    assert "no page and no figures: matplotlib and jinja2 not installed: pip install" in capsys.readouterr().out
    assert main(["report", "runs", "--json"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["files"] == {} and err.startswith("no page and no figures")


def test_tables_and_files_need_neither_torch_nor_matplotlib(tmp_path: Path) -> None:
    code = (
        "import sys; from dragfl.cli import main; "
        "main(['report', 'runs', '--csv', '--latex', '--no-figures', '--compare', 'drag', 'fedavg']); "
        "print([name for name in ('torch', 'matplotlib', 'jinja2', 'pandas') if name in sys.modules])"
    )
    assert python(code, tmp_path).splitlines()[-1] == "[]", sys.version


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["runs/bad"], 6, "dragfl: report: no readable run; runs/bad/metrics.jsonl: cannot be read"),
        (["runs", "--compare", "drag", "krum"], 2, "compare: no run 'krum'"),
        (["runs", "--compare", "drag", "fedavg", "--metric", "speed"], 2, "has no metric 'speed'"),
        (["runs", "--out", "runs/bad/spec.toml"], 2, "spec.toml is a file; give a folder to write to"),
        (["nowhere"], 2, "nowhere: no such folder"),
        (["runs/bad/spec.toml"], 2, "no run found in runs/bad/spec.toml"),
    ],
)
def test_mistakes(capsys: Capture, words: list[str], code: int, message: str) -> None:
    assert main(["report", *words, "--no-figures"]) == code
    out, err = capsys.readouterr()
    assert message in err and out == "" and err.count("\n") == 1
