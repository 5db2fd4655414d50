"""`dragfl data show SPEC` prints the split that a run of the spec trains on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dragfl
from dragfl import data
from dragfl.cli import main
from dragfl.data.partitions import label_counts

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")


def write_spec(root: str = "", partition: str = "{ kind = 'dirichlet_class', a = 0.5 }", seed: int = 4) -> None:
    Path("x.toml").write_text(
        f"seed = {seed}\nrounds = 1\n[data]\ndataset = 'digits'\npartition = {partition}\n"
        f"[clients]\ntotal = 5\n[model]\nname = 'logistic'\n{root}"
    )


def show(capsys: Capture, *words: str) -> dict[str, Any]:
    assert main(["data", "show", "x.toml", "--json", "--no-figures", *words]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize(
    ("root", "samples"),
    [
        ("", 1438),
        ("[root]\nsize = 150", 1288),
        ("[root]\nsize = 150\ndisjoint = true\nbias = 0.5\nbiased_class = 3", 1288),
        ("[root]\nsize = 150\nnoise = 0.4\nfilter = 'confident'", 1288),
        ("[root]\nsize = 150\ndisjoint = false", 1438),
        ("[root]\nsize = 150\nsource = 'test'", 1438),
    ],
)
def test_root_data_are_removed_as_in_a_run(capsys: Capture, root: str, samples: int) -> None:
    write_spec(root)
    found = show(capsys)
    split = dragfl.simulate(dragfl.load("x.toml")).federation.worker.split
    assert found["samples"] == samples == sum(split.sizes)
    assert found["clients"] == 5
    assert (found["size_min"], found["size_max"]) == (min(split.sizes), max(split.sizes))


def test_the_table_shows_the_split_of_the_run(capsys: Capture) -> None:
    """Client by client: the samples and the classes that the run trains on."""
    write_spec("[root]\nsize = 150\nbias = 0.5\nbiased_class = 3")
    assert main(["data", "show", "x.toml", "--no-figures"]) == 0
    printed = capsys.readouterr().out
    split = dragfl.simulate(dragfl.load("x.toml")).federation.worker.split
    counts = label_counts(split, data.load("digits").y.numpy(), 10, range(5))
    assert "digits, dirichlet_class(a=0.5)" in printed
    for client, row in enumerate(counts):
        line = next(line for line in printed.splitlines() if line.startswith(f"{client:>6} "))
        cells = line.split(maxsplit=3)
        assert cells[:3] == [str(client), f"{row.sum():,}", str((row > 0).sum())]
        most = int(np.argmax(row))
        assert cells[3].startswith(f"{most} {row[most] / row.sum():.0%}")


def test_the_seed_of_the_spec_is_used(capsys: Capture) -> None:
    write_spec()
    mine = show(capsys)
    write_spec(seed=5)
    assert show(capsys) != mine
    assert show(capsys, "--seed", "4") != mine


def test_nothing_is_run_or_written(capsys: Capture) -> None:
    write_spec("[root]\nsize = 150")
    show(capsys)
    assert [path.name for path in Path().iterdir()] == ["x.toml"]


@pytest.mark.parametrize(
    ("spec", "code", "message"),
    [
        ({"root": "[root]\nsize = 1436"}, 3, "2 samples are too few for 5 clients"),
        ({"root": "[root]\nsize = 2000"}, 3, "root.size: 2000 of the 1438 train samples"),
        ({"root": "[root]\nsize = 150\nbias = 1.0\nbiased_class = 3"}, 3, "needs 150 of class 3"),
        ({"root": "[root]\nsise = 150"}, 2, "root.sise: unknown key 'sise'; did you mean 'size'?"),
        ({"partition": "{ kind = 'label_mud' }"}, 2, "did you mean 'label_mod'?"),
    ],
)
def test_show_and_run_report_the_same_error(capsys: Capture, spec: dict[str, str], code: int, message: str) -> None:
    write_spec(**spec)
    assert main(["data", "show", "x.toml", "--no-figures"]) == code
    shown = capsys.readouterr()
    assert message in shown.err
    assert main(["run", "x.toml"]) == code
    assert capsys.readouterr().err == shown.err


def test_no_such_file(capsys: Capture) -> None:
    assert main(["data", "show", "nowhere.toml"]) == 2
    assert "nowhere.toml: no such file" in capsys.readouterr().err


def test_get_a_user_file(capsys: Capture) -> None:
    np.savez("mine.npz", x=np.zeros((20, 3)), y=np.arange(20) % 2)
    assert main(["data", "get", "digits", "npz:mine.npz"]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == 2
    assert printed[1].startswith("npz:mine.npz: ")
    assert printed[1].endswith("2 classes; read")
    assert main(["data", "get", "digitts"]) == 2
    assert "did you mean 'digits'?" in capsys.readouterr().err
