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
from tests.conftest import TIMEOUT_S
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
    assert main(["report", "sweeps/fashion", "--csv", "--latex", "--compare", "drag", "fedavg", "--no-figures"]) == 0
    printed = capsys.readouterr().out
    assert "final_accuracy, 2 pairs, seeds 0, 1" in printed and "12 tuning runs left out" in printed
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
        assert f"{100 * mean:.1f}{{\\scriptsize\\,$\\pm$\\," in table
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
        done = subprocess.run(["pdflatex", "-halt-on-error", "paper.tex"], capture_output=True, timeout=TIMEOUT_S)
        assert done.returncode == 0, done.stdout[-1000:]


ATTACK_AND_DEFENCE = """
import torch

def opposite(own, honest, rng, scale=20.0):
    return (-scale * honest.mean(0)).expand_as(own)

def nearest_half(updates):
    distance = (updates - updates.median(0).values).norm(dim=1)
    return updates[distance <= distance.median()].mean(0)
"""


@pytest.mark.usefixtures("folder")
def test_a_security_researcher_adds_an_attack_and_a_defence_and_reads_off_who_was_caught(
    capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """docs/tutorials/attack.md. Updates 20 times as long and reversed: a rule by distances flags all of them.

    Clients 0 to 9 with equal data distributions, three of them attackers, four rounds. The mean has no suspicion, so
    it has no rates; root_only is a row because FLTrust uses root data.
    """
    monkeypatch.setattr("dragfl.report.arena.figures.draw_matrix", lambda *_: [])
    Path("journey_parts.py").write_text(ATTACK_AND_DEFENCE)
    Path("federation.toml").write_text(
        'name = "federation"\nrounds = 4\n[root]\nsize = 40\n[clients]\ntotal = 10\nlocal_steps = 2\n'
        '[attack]\nattackers = 3\n[model]\nname = "logistic"\n[evaluation]\nevery = 2\n'
    )
    sides = ["--defences", "fedavg,fltrust,journey_parts:nearest_half", "--attacks", "journey_parts:opposite,sign_flip"]
    assert main(["arena", "federation.toml", *sides, "--jobs", "1", "--json"]) == 0
    numbers = json.loads(capsys.readouterr().out)["numbers"]
    (matrix,) = numbers["matrices"]
    cells = {(row["defence"], cell["attack"]): cell for row in matrix["defences"] for cell in row["attacks"]}
    assert {defence for defence, _ in cells} == {"fedavg", "fltrust", "journey_parts:nearest_half", "root_only"}
    assert matrix["clients_add"]["defence"] == "fltrust"

    caught = cells["journey_parts:nearest_half", "journey_parts:opposite"]["detection"]
    assert (caught["true_positive_rate"], caught["false_positive_rate"], caught["auc"]) == (1.0, 0.0, 1.0)
    clients = caught["clients"]
    assert clients["client"] == list(range(10)) and clients["sampled"] == [4] * 10
    assert sorted(clients["attacked"]) == [0] * 7 + [4] * 3 and clients["flagged"] == clients["attacked"]
    assert cells["fedavg", "journey_parts:opposite"]["detection"] is None
    accuracy = {defence: cells[defence, "journey_parts:opposite"]["accuracy"]["mean"] for defence, _ in cells}
    assert accuracy["journey_parts:nearest_half"] > accuracy["fedavg"] + 0.2
    assert Path("arena/federation/arena.html").exists()


NOTEBOOK = """
import torch
from torch import nn

SCALE = 1.0

class Net(nn.Module):
    def __init__(self, num_classes=10):
        super().__init__()
        self.hidden, self.out = nn.Linear(64, 8), nn.Linear(8, num_classes)

    def forward(self, x):
        return self.out(torch.relu(SCALE * self.hidden(x.flatten(1))))
"""


@pytest.mark.usefixtures("folder")
def test_a_notebook_that_changes_its_model_is_never_given_old_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/tutorials/notebook.md: every change of a cell is another run; the numbers are those of a new directory."""
    cells = type(sys)("cells")
    monkeypatch.setitem(sys.modules, "cells", cells)
    settings = {"rounds": 2, "clients": {"total": 4, "local_steps": 2}, "evaluation": {"every": 1}}
    edits = [
        ("relu(", "tanh("),
        ("SCALE = 1.0", "SCALE = 0.5"),
        ("nn.Linear(64, 8), nn.Linear(8,", "nn.Linear(64, 9), nn.Linear(9,"),
        ("return self.out(", "return 2 * self.out("),
    ]
    code, numbers = NOTEBOOK, []
    for step, (before, after) in enumerate([("", ""), *edits]):
        code = code.replace(before, after) if before else code
        exec(code, vars(cells))
        tables = {**settings, "model": vars(cells)["Net"]}
        if step:
            with pytest.raises(dragfl.errors.SpecError, match=r"runs/run-1: its settings are the same, but not the "):
                dragfl.run(tables)
        given = dragfl.run(tables, fresh=bool(step))
        assert given.metrics == dragfl.run(tables, f"new{step}").metrics
        exec(code, vars(cells))  # the cell again: the same run
        assert dragfl.run({**settings, "model": vars(cells)["Net"]}).metrics == given.metrics
        numbers.append(str(given.metrics))
    assert len(set(numbers)) == len(numbers)
