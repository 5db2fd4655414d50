"""`dragfl demo`: ten runs, their table, and a report."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dragfl
from dragfl import demo
from dragfl.cli import main

NAMES = [
    "drift-fedavg", "drift-drag",
    "random_scaling-fedavg", "random_scaling-fltrust", "random_scaling-br_drag", "random_scaling-cone_drag",
    "sign_flip-fedavg", "sign_flip-fltrust", "sign_flip-br_drag", "sign_flip-cone_drag",
]  # fmt: skip
Capture = pytest.CaptureFixture[str]


def test_the_ten_experiments() -> None:
    experiments = demo.load_experiments()
    assert list(experiments) == NAMES
    drift, attacked = list(experiments.values())[:2], list(experiments.values())[2:]
    assert all(e.attack is None and e.clients.total == 20 for e in drift)
    assert all(e.attackers.attackers == 6 and e.root is not None for e in attacked)
    assert all(name.endswith(f"-{e.algorithm.name}") for name, e in experiments.items())
    assert len({e.seed for e in experiments.values()}) == 1
    plain = [dict(e.tables(), name="", algorithm="") for e in drift]
    assert plain[0] == plain[1], "drift is compared on nothing but the algorithm"


def test_demo(tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: pip install 'dragfl[report]'")
    monkeypatch.setenv("COLUMNS", "200")
    out = tmp_path / "demo"
    assert main(["demo", "--rounds", "3", "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    last = printed.splitlines()[-1]
    assert last == f"report: {out / 'report.html'}"
    page = (out / "report.html").read_text()
    assert not re.findall(r"""(?:src|href)\s*=\s*["']https?://""", page), "the page must work without a network"
    assert list((out / "figures").glob("*.png"))
    runs = {path.name: dragfl.load_run(path) for path in (out / "runs").iterdir()}
    assert sorted(runs) == sorted(NAMES)
    for run in runs.values():
        assert run.finished
        assert len(run.metrics) == 3
    accuracy = f"{100 * runs['drift-drag'].metrics[-1]['accuracy']:.1f} %"
    assert re.search(rf"^drag .* {accuracy}", printed, re.MULTILINE), "the table shows the runs"
    dragfl.load(out / "drift.toml")
    dragfl.load(out / "attack.toml")

    monkeypatch.setattr(
        "dragfl.report.write_report", lambda runs, folder, title: folder / "report.html"
    )  # drawn once is enough
    stamp = (out / "runs" / "drift-drag" / "run.json").stat().st_mtime_ns
    assert main(["demo", "--rounds", "1", "--out", str(out), "--quiet"]) == 0, "a second demo starts from the beginning"
    assert capsys.readouterr().out == f"report: {out / 'report.html'}\n"
    assert (out / "runs" / "drift-drag" / "run.json").stat().st_mtime_ns != stamp
    assert len(dragfl.load_run(out / "runs" / "drift-drag").metrics) == 1


@pytest.mark.parametrize("foreign", ["notes.txt", "runs/mine/spec.toml"])
def test_a_folder_with_other_files_is_refused(tmp_path: Path, capsys: Capture, foreign: str) -> None:
    path = tmp_path / "demo" / foreign
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 2
    assert "exists and was not written by `dragfl demo`; choose another --out" in capsys.readouterr().err
    assert path.read_text() == "precious"


def test_a_file_is_refused(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "demo").write_text("precious")
    assert main(["demo", "--out", str(tmp_path / "demo")]) == 2
    assert "was not written by `dragfl demo`" in capsys.readouterr().err


def test_invalid_rounds(tmp_path: Path, capsys: Capture) -> None:
    assert main(["demo", "--rounds", "0", "--out", str(tmp_path / "demo")]) == 2
    assert "rounds: 0 is below 1" in capsys.readouterr().err
    assert not (tmp_path / "demo").exists()
