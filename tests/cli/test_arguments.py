"""Options and key=value words in any order, and unknown options."""

from __future__ import annotations

import itertools
import tomllib
from pathlib import Path

import pytest

import dragfl
from dragfl.cli import main

Capture = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, digits_toml: Path) -> None:
    monkeypatch.chdir(tmp_path)


ORDERS = list(itertools.permutations([["--dry-run"], ["rounds=7"], ["clients.lr=0.3"], ["--out", "there"]]))


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("order", ORDERS)
def test_any_order(capsys: Capture, order: tuple[list[str], ...], before: bool) -> None:
    """In any order after the file; options may also come before it."""
    words = [word for part in order for word in part]
    options = [word for part in order for word in part if part[0].startswith("--")]
    rest = [word for part in order for word in part if not part[0].startswith("--")]
    arguments = [*options, "small.toml", *rest] if before else ["small.toml", *words]
    assert main(["run", *arguments]) == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert (tables["rounds"], tables["clients"]["lr"]) == (7, 0.3)
    assert tables == dragfl.load("small.toml", "rounds=7", "clients.lr=0.3").tables()
    assert not Path("there").exists()
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--out", "there", "rounds=1"],
        ["rounds=1", "--out", "there"],
        ["--quiet", "rounds=1", "--out", "there", "seed=5"],
        ["--out=there", "rounds=1"],
    ],
)
def test_out_is_the_run_directory(capsys: Capture, arguments: list[str]) -> None:
    assert main(["run", "small.toml", *arguments]) == 0
    run = dragfl.load_run("there")
    assert len(run.metrics) == 1
    assert not Path("runs").exists()


def test_words_after_options_count(capsys: Capture) -> None:
    """Words before, between and after options all count, in their order."""
    words = ["rounds=1", "--dry-run", "algorithm.c=0.7", "--out", "x", "seed=9"]
    assert main(["run", "small.toml", *words]) == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert (tables["rounds"], tables["algorithm"]["aggregate"]["c"], tables["seed"]) == (1, 0.7, 9)


def test_words_of_a_sweep_in_any_order(capsys: Capture) -> None:
    plans = []
    for arguments in (
        ["seed=0,1", "clients.lr=0.1,0.2", "--dry-run"],
        ["--dry-run", "seed=0,1", "clients.lr=0.1,0.2"],
        ["seed=0,1", "--dry-run", "clients.lr=0.1,0.2"],
    ):
        assert main(["sweep", "small.toml", *arguments]) == 0
        plans.append(capsys.readouterr().out.splitlines())
    assert plans[0] == plans[1] == plans[2]
    assert plans[0][-1] == "sweeps/small-seed-lr/seed1-lr0.2"
    assert len(plans[0]) == 4


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["run", "small.toml", "--nope"], "--nope"),
        (["run", "small.toml", "--nope", "rounds=1"], "--nope"),
        (["run", "small.toml", "rounds=1", "--nope=3"], "--nope=3"),
        (["run", "small.toml", "-x", "--dry-run", "rounds=1"], "-x"),
        (["sweep", "small.toml", "seed=0", "--jsn"], "--jsn"),
        (["list", "algorithms", "rounds=1"], "rounds=1"),
        (["resume", "there", "rounds=1"], "rounds=1"),
        (["report", "there", "--zzz"], "--zzz"),
    ],
)
def test_unknown_arguments(capsys: Capture, arguments: list[str], named: str) -> None:
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    hint = "; did you mean '--json'?" if named == "--jsn" else f"; see `dragfl {arguments[0]} --help`"
    assert printed.err == f"dragfl: {arguments[0]}: unrecognized arguments: {named}{hint}\n"
    assert not Path("runs").exists()


@pytest.mark.parametrize("word", ["rounds", "rounds 7", "=7"])
def test_a_word_without_a_value(capsys: Capture, word: str) -> None:
    assert main(["run", "small.toml", "--dry-run", word]) == 2
    assert "write it as key=value" in capsys.readouterr().err


def test_values_with_brackets_and_quotes(capsys: Capture) -> None:
    words = ["data.partition={kind='shards', k=2}", "clients.local_steps=[1, 3]", "name='a b=c'"]
    assert main(["run", "small.toml", "--dry-run", *words]) == 0
    tables = tomllib.loads(capsys.readouterr().out)
    assert tables["data"]["partition"] == {"kind": "shards", "k": 2}
    assert tables["clients"]["local_steps"] == [1, 3]
    assert tables["name"] == "a b=c"
