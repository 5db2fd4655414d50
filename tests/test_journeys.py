"""The tutorials in small: the same files and commands, with fewer runs and rounds."""

from __future__ import annotations

import csv
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main
from tests.test_docs import ROOT, blocks

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty working directory, from which modules are imported and forgotten afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def save_files(page: str) -> None:
    """Save the blocks of a tutorial that the reader saves as files."""
    for block in blocks(ROOT / "docs" / "tutorials" / page):
        if block.file is not None:
            Path(block.file).write_text(block.text)


@pytest.mark.usefixtures("folder")
def test_compare_algorithms_down_to_a_latex_table(capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorials/compare.md: an own CNN, tuned rates, two seeds; both tables have the numbers of the runs."""
    monkeypatch.setattr("dragfl.report.figures.draw_figures", lambda *_: {})
    save_files("compare.md")
    small = ["data.dataset=digits", "clients.total=8", "clients.per_round=4", "rounds=4", "evaluation.every=2"]
    words = ["algorithm.name=fedavg,drag", "seed=0,1", "--tune", "clients.lr=0.1,0.3", "--out", "sweeps/fashion"]
    assert main(["sweep", "fashion.toml", *small, *words, "--jobs", "1", "--json"]) == 0
    tuned = json.loads(capsys.readouterr().out)["tuning"]["tuned"]
    rates = {part["combination"]["algorithm.name"]: part["selected"]["clients.lr"] for part in tuned}
    assert set(rates) == {"fedavg", "drag"} and set(rates.values()) <= {0.1, 0.3}

    final = "sweeps/fashion/final"
    assert main(["report", final, "--csv", "--latex", "--compare", "drag", "fedavg", "--no-figures"]) == 0
    printed = capsys.readouterr().out
    assert "final_accuracy, 2 pairs, seeds 0, 1" in printed and "latex: report/table.tex" in printed
    finals: dict[str, list[float]] = {name: [] for name in rates}
    for path in Path(final).iterdir():
        run = dragfl.load_run(path)
        finals[run.spec["algorithm"]["name"]].append(run.accuracy[-1][1])
    with Path("report/table.csv").open() as file:
        rows = {row["algorithm"]: row for row in csv.DictReader(file)}
    table = Path("report/table.tex").read_text()
    for name, values in finals.items():
        mean = sum(values) / 2
        assert float(rows[name]["final_accuracy_mean"]) == pytest.approx(mean)
        assert f"{100 * mean:.1f}\\,$\\pm$\\," in table
        if rates["fedavg"] != rates["drag"]:
            assert float(rows[name]["clients.lr"]) == rates[name]
    best = max(sum(values) / 2 for values in finals.values())
    assert f"\\textbf{{{100 * best:.1f}" in table

    frame = dragfl.frame(final)
    assert frame.groupby("algorithm.name")["seed"].unique().map(sorted).to_dict() == {"drag": [0, 1], "fedavg": [0, 1]}
    (comparison,) = dragfl.report.compare(final, "drag", "fedavg")
    assert comparison.mean_difference == pytest.approx(sum(finals["drag"]) / 2 - sum(finals["fedavg"]) / 2)
    if shutil.which("pdflatex"):
        Path("paper.tex").write_text(
            "\\documentclass{article}\\usepackage{booktabs}\\begin{document}\\input{report/table.tex}\\end{document}"
        )
        done = subprocess.run(["pdflatex", "-halt-on-error", "paper.tex"], capture_output=True, timeout=120)
        assert done.returncode == 0, done.stdout[-1000:]
