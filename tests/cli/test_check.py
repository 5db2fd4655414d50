"""`dragfl check`: one line for each property, exit code 0 or 2, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from dragfl.cli import main

MODULE = """
def trimmed(updates, f, power: int = 1):
    return power * updates.sort(0).values[f : len(updates) - f].mean(0)


def first(updates):
    return updates[0]


def unclear(a, b):
    return a


def net(num_classes):
    from torch import nn

    return nn.Sequential(nn.Flatten(), nn.Linear(12, num_classes))
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "checked_x.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    yield
    sys.modules.pop("checked_x", None)


def test_what_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "checked_x:trimmed", "f=2"]) == 0
    head, *lines, last = capsys.readouterr().out.splitlines()
    assert head == "checked_x:trimmed: aggregate" and len(lines) == 17
    assert "  ok    permutation  the order of the updates does not matter, within float tolerance" in lines
    assert any(line.startswith("  yes   bounded ") for line in lines)
    assert last == "13 of 13 contracts hold; yes and no are information"
    assert max(map(len, lines)) <= 100


@pytest.mark.parametrize("words", [["cone_drag"], ["nnm+cone_drag", "f=1"]])
def test_a_rule_with_directions(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 0
    printed = capsys.readouterr().out
    assert "13 of 13 contracts hold" in printed
    assert "  yes   scale " in printed and "  yes   zero " in printed
    assert "not checked" not in printed


def test_what_does_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "checked_x:first"]) == 2
    printed = capsys.readouterr().out
    assert "  FAIL  permutation  with the updates in another order" in printed
    assert "  no    bounded      two of seven updates of size 1e6" in printed
    assert "12 of 13 contracts hold" in printed


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "checked_x:first", "--as", "aggregate", "--json"]) == 2
    answer = json.loads(capsys.readouterr().out)
    assert (answer["part"], answer["kind"], answer["passed"]) == ("checked_x:first", "aggregate", False)
    assert [row["name"] for row in answer["findings"] if row["required"] and not row["holds"]] == ["permutation"]


def test_a_model_of_another_shape(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "checked_x:net"]) == 2
    assert "no inputs of these shapes are accepted: (1, 8, 8): " in capsys.readouterr().out
    assert main(["check", "checked_x:net", "--shape", "3,2x2"]) == 0
    assert "it accepts inputs of shape (3, 2, 2)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["checked_x:trimed"], "module 'checked_x' has no 'trimed'; did you mean 'trimmed'"),
        (["nowhere_x:rule"], "check: cannot import 'nowhere_x'"),
        (["checked_x:unclear"], "do not show what it is; give its kind (--as): aggregate, correction"),
        (["checked_x:trimmed", "g=2"], "check.g: checked_x:trimmed has no setting 'g'"),
        (["checked_x:trimmed", "power=x"], "check.power: expected `int`, got `str`"),
        (["checked_x:trimmed", "f"], "override 'f': write it as key=value"),
        (["checked_x:net", "--shape", "1,a"], "--shape: '1,a'; give positive numbers with commas"),
        (["checked_x:first", "--as", "attack"], "checked_x:first has no parameter 'own'"),
    ],
)
def test_mistakes(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", *words]) == 2
    assert message in capsys.readouterr().err
