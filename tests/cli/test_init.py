"""`dragfl init` and `dragfl schema`: a file that runs as written, and editors that know its keys."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_starter_runs_as_written(capsys: Capture) -> None:
    assert main(["init"]) == 0
    assert capsys.readouterr().out == "wrote experiment.toml; run it with: dragfl run experiment.toml\n"
    assert main(["run", "experiment.toml", "--quiet"]) == 0
    assert capsys.readouterr().err == "", "no warning either"
    run = dragfl.load_run("runs/experiment")
    assert run.result is not None and run.result["best_accuracy"] > 0.8


def test_its_commented_tables_are_valid() -> None:
    """The attack and the root data, with the # removed."""
    main(["init", "mine.toml"])
    lines = Path("mine.toml").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("# [attack]"))
    end = next(i for i, line in enumerate(lines) if line.startswith("[model]"))
    tables = [line for line in lines[start:end] if line.startswith(("# [", "# name", "# attackers", "# size"))]
    text = "\n".join([*lines[:start], *(line[2:] for line in tables), *lines[end:]])
    Path("attacked.toml").write_text(text)
    experiment = dragfl.load("attacked.toml", "algorithm.name=br_drag")
    assert experiment.name == "mine" and experiment.attackers.attackers == 4 and experiment.root is not None


def test_nothing_is_overwritten(capsys: Capture) -> None:
    Path("experiment.toml").write_text("mine")
    Path("dragfl.schema.json").write_text("mine too")
    assert main(["init"]) == 2
    assert capsys.readouterr().err == "dragfl: experiment.toml: exists already; give another file name\n"
    assert main(["init", "other.toml"]) == 0
    assert Path("experiment.toml").read_text() == "mine" and Path("dragfl.schema.json").read_text() == "mine too"


@pytest.mark.parametrize(
    ("file", "message"),
    [
        ("mine", "init: mine does not end in .toml; give a file such as mine.toml"),
        ("nowhere/mine.toml", "nowhere/mine.toml: cannot be written (No such file or directory)"),
    ],
)
def test_mistakes(file: str, message: str, capsys: Capture) -> None:
    assert main(["init", file]) == 2
    assert message in capsys.readouterr().err
    assert not list(Path().iterdir())


def test_the_first_line_names_the_schema(capsys: Capture) -> None:
    main(["init"])
    capsys.readouterr()
    assert main(["schema"]) == 0
    printed = capsys.readouterr().out
    (directive, name) = Path("experiment.toml").read_text().splitlines()[0].split(" ./")
    assert directive == "#:schema" and Path(name).read_text() == printed
    assert json.loads(printed)["title"] == "dragfl experiment"
