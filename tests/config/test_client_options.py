"""The options of local training as keys of a spec: their range, overrides, and what older runs mean."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dragfl
from dragfl.cli import main
from dragfl.config.compare import comparable, same_result
from dragfl.errors import SpecError

NEW = ("momentum", "weight_decay", "clip_norm", "augment", "availability")
CHANGED = ["momentum=0.9", "weight_decay=1e-4", "clip_norm=1.0", "augment=flip", "availability=0.9"]


def without(tables: dict[str, Any]) -> dict[str, Any]:
    """The tables as an older version wrote them."""
    return tables | {"clients": {k: v for k, v in tables["clients"].items() if k not in NEW}}


def test_an_older_run_is_one_with_the_defaults() -> None:
    tables = dragfl.load({}).tables()
    old = without(tables)
    assert old != tables
    assert comparable(old) == comparable(tables)
    assert same_result(tables, old) and same_result(old, tables)


@pytest.mark.parametrize("change", CHANGED)
def test_another_value_is_another_experiment(change: str) -> None:
    tables = dragfl.load({}, f"clients.{change}").tables()
    assert comparable(tables) != comparable(dragfl.load({}).tables())
    assert comparable(tables) != comparable(without(tables))
    assert dragfl.load(tables).tables() == tables


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("momentum", 1.0, r"outside \[0, 1\)"),
        ("momentum", -0.1, r"outside \[0, 1\)"),
        ("momentum", float("nan"), r"outside \[0, 1\)"),
        ("momentum", "high", "momentum"),
        ("weight_decay", -1e-4, r"outside \[0, "),
        ("weight_decay", float("inf"), r"outside \[0, "),
        ("clip_norm", 0.0, r"outside \(0, "),
        ("clip_norm", float("nan"), r"outside \(0, "),
        ("clip_norm", [1.0], "clip_norm"),
        ("availability", True, "availability"),
        ("momentun", 0.9, "did you mean 'momentum'"),
    ],
)
def test_a_wrong_value(key: str, value: Any, message: str) -> None:
    with pytest.raises(SpecError, match=message) as error:
        dragfl.load({"clients": {key: value}})
    assert "clients" in str(error.value) and key in str(error.value)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], digits_toml: Path) -> None:
    changes = [f"clients.{change}" for change in CHANGED]
    assert main(["run", str(digits_toml), "rounds=2", "--out", str(tmp_path / "run"), "--quiet", *changes]) == 0
    stored = dragfl.load_run(tmp_path / "run").spec["clients"]
    assert {key: stored[key] for key in NEW} == dict(zip(NEW, (0.9, 1e-4, 1.0, "flip", 0.9), strict=True))
    capsys.readouterr()
    assert main(["run", str(digits_toml), "algorithm.name=scaffold", "clients.clip_norm=1"]) == 2
    message = capsys.readouterr().err
    assert (
        "clients.clip_norm" in message and "algorithm.correction = 'scaffold'" in message and "Traceback" not in message
    )


def test_in_a_sweep(capsys: pytest.CaptureFixture[str], digits_toml: Path) -> None:
    arguments = ["clients.momentum=0,0.5", "clients.augment=none,flip+crop", "--out", "out", "--dry-run"]
    assert main(["sweep", str(digits_toml), *arguments]) == 0
    names = [f"momentum{m}-augment{a}" for m in ("0", "0.5") for a in ("none", "flip+crop")]
    assert capsys.readouterr().out.split() == [f"out/{name}" for name in names]
